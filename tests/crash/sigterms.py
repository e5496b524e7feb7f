"""SIGTERM under load, repeatedly: each supervisor ends in order and in time, unfinished jobs are
released without spending an attempt, and no job is lost. A second SIGTERM ends immediately. SIGUSR1
prints the stacks of running jobs."""

import random
import signal
import time

from holdfast import Holdfast
from tests.crash.testbed import CrashTestbed, Report, pause, statuses, unfinished, until
from tests.crash.worker_group import WorkerGroup, worker_group
from tests.support.history import check_history

LONG_RUN = {"times": 50, "processes": 2, "grace": 2.0, "late": 1.0, "seed": 1}
ENGINES = ("sqlite", "postgres")


def run(
    testbed: CrashTestbed, *, times: int, processes: int, grace: float, late: float, seed: int
) -> Report:
    """`late`: seconds after the grace period in which the supervisor must have ended."""
    report = Report()
    rng = random.Random(seed)
    ids: list[str] = []
    ends: list[tuple[float, int]] = []
    with testbed.app() as app, worker_group(testbed, processes=processes, grace=grace) as workers:
        workers.start().until_ready()
        for _ in range(times):
            ids += _enqueue(app, grace, rng)
            pause(rng.uniform(0.0, 0.5))  # while jobs run
            ends.append(_replace_supervisor(workers))
            workers.until_ready()
        until(lambda: unfinished(app) == 0, 120, "every job finished")
        found = statuses(app)
        spent = [job.id for job in app.jobs.search() if (job.attempts, job.crashes) != (1, 0)]
        given_back = sum(job.claim_no > 1 for job in app.jobs.search())
    slowest = max(seconds for seconds, _ in ends)
    report.figures |= {
        "SIGTERMs": len(ends),
        "jobs": len(ids),
        "given back": given_back,
        "attempts spent": len(spent),
        "slowest end": f"grace + {slowest - grace:.2f} s",
    }
    report.take(check_history(testbed.entries(), ids, found))
    report.expect(not spent, f"attempts or crashes were spent: {len(spent)}, e.g. of {spent[:1]}")
    report.expect(given_back, "nothing was interrupted: nothing was tested")
    report.expect(all(code == 0 for _, code in ends), f"exit codes {[code for _, code in ends]}")
    report.expect(slowest <= grace + late, f"{slowest:.2f} s until the end, not {grace + late:g} s")
    return report


def _enqueue(app: Holdfast, grace: float, rng: random.Random) -> list[str]:
    """Enqueue jobs of which most end within the grace period, some do not, and one cannot be
    stopped."""
    jobs = [app.enqueue("short", {"ms": rng.randrange(300)}) for _ in range(20)]
    jobs += [app.enqueue("threaded", {"ms": rng.randrange(300)}) for _ in range(5)]
    jobs.append(app.enqueue("patient", {"seconds": grace + 0.5}))
    jobs.append(app.enqueue("stubborn", {"seconds": grace + 1.5}))
    return [job.id for job in jobs]


def _replace_supervisor(workers: WorkerGroup) -> tuple[float, int]:
    """Stop the supervisor while the next one starts, as in a deployment. Returns the seconds until it
    ended, and its exit code."""
    [one] = workers.live_supervisors()
    children = workers.children()
    begin = time.monotonic()
    one.send_signal(signal.SIGTERM)
    workers.start()
    workers.wait_until_gone(children)
    code = one.wait(60)
    return time.monotonic() - begin, code
