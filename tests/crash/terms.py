"""SIGTERM under load, again and again: each supervisor ends in order and in time, what did not end is
given back unharmed, and nothing is lost. A second SIGTERM ends at once. SIGUSR1 shows what runs."""

import random
import signal
import time

from holdfast import Holdfast
from tests.crash.fleet import Fleet, fleet
from tests.crash.scene import Proof, Scene, pause, statuses, unfinished, until
from tests.support.witness import check

LONG = {"times": 50, "processes": 2, "grace": 2.0, "late": 1.0, "seed": 1}
ENGINES = ("sqlite", "postgres")


def prove(
    scene: Scene, *, times: int, processes: int, grace: float, late: float, seed: int
) -> Proof:
    """`late`: seconds after the grace period in which the supervisor must have ended."""
    proof = Proof()
    chance = random.Random(seed)
    ids: list[str] = []
    ends: list[tuple[float, int]] = []
    with scene.app() as app, fleet(scene, processes=processes, grace=grace) as workers:
        workers.start().until_ready()
        for _ in range(times):
            ids += _enqueue(app, grace, chance)
            pause(chance.uniform(0.0, 0.5))  # in the midst of the work
            ends.append(_succeed(workers))
            workers.until_ready()
        until(lambda: unfinished(app) == 0, 120, "every job finished")
        found = statuses(app)
        spent = [job.id for job in app.jobs.search() if (job.attempts, job.crashes) != (1, 0)]
        given_back = sum(job.claim_no > 1 for job in app.jobs.search())
    slowest = max(seconds for seconds, _ in ends)
    proof.figures |= {
        "SIGTERMs": len(ends),
        "jobs": len(ids),
        "given back": given_back,
        "attempts spent": len(spent),
        "slowest end": f"grace + {slowest - grace:.2f} s",
    }
    proof.take(check(scene.facts(), ids, found))
    proof.expect(not spent, f"attempts or crashes were spent: {len(spent)}, e.g. of {spent[:1]}")
    proof.expect(given_back, "nothing was interrupted: nothing was proved")
    proof.expect(all(code == 0 for _, code in ends), f"exit codes {[code for _, code in ends]}")
    proof.expect(slowest <= grace + late, f"{slowest:.2f} s until the end, not {grace + late:g} s")
    return proof


def _enqueue(app: Holdfast, grace: float, chance: random.Random) -> list[str]:
    """Most end within the grace period, some do not, and of those some cannot be stopped."""
    jobs = [app.enqueue("short", {"ms": chance.randrange(300)}) for _ in range(20)]
    jobs += [app.enqueue("threaded", {"ms": chance.randrange(300)}) for _ in range(5)]
    jobs.append(app.enqueue("patient", {"seconds": grace + 0.5}))
    jobs.append(app.enqueue("stubborn", {"seconds": grace + 1.5}))
    return [job.id for job in jobs]


def _succeed(workers: Fleet) -> tuple[float, int]:
    """Stop the supervisor while the next one starts, as in a deployment: the seconds until it ended,
    and its exit code."""
    [one] = workers.living()
    children = workers.children()
    begin = time.monotonic()
    one.send_signal(signal.SIGTERM)
    workers.start()
    workers.bury(children)
    code = one.wait(60)
    return time.monotonic() - begin, code
