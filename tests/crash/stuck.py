"""A thread that never returns: its job says so, its process is replaced, the timeout is recorded, and
what else ran in that process is not harmed."""

import time

from holdfast import Holdfast
from tests.crash.fleet import fleet, is_gone
from tests.crash.scene import Proof, Scene, jobs_of, until

LONG = {"rounds": 3, "beside": 13.0}
ENGINES = ("sqlite", "postgres")


def prove(scene: Scene, *, rounds: int, beside: float) -> Proof:
    """`beside`: seconds that the other jobs take, longer than the process is left alone."""
    proof = Proof()
    with scene.app() as app, fleet(scene) as workers:
        workers.start().until_ready()
        replaced = [_round(scene, app, proof, beside) for _ in range(rounds)]
        log = workers.log()
    proof.expect("whose process died" not in log, "jobs were suspected")
    times = ", ".join(f"{seconds:.1f} s" for seconds in replaced)
    proof.figures |= {"rounds": rounds, "replaced after its deadline": times}
    return proof


def _round(scene: Scene, app: Holdfast, proof: Proof, beside: float) -> float:
    """How long after the deadline its process was gone."""
    others = [app.enqueue("patient", {"seconds": beside}).id]
    others.append(app.enqueue("threaded", {"ms": int(1000 * beside)}).id)
    job = app.enqueue("stuck", max_attempts=1).id
    until(lambda: scene.facts("start", job), 30, "the start of the job")
    [start] = scene.facts("start", job)
    until(lambda: "stuck" in (app.jobs.get(job).message or ""), 10, "its row says stuck")
    proof.expect(app.jobs.get(job).status == "running", "it is not running while it hangs")
    until(lambda: is_gone(start.pid), 60, "the end of its process")
    seconds = time.monotonic() - start.at - 1.0
    until(lambda: app.jobs.get(job).status == "failed", 30, "the timeout is recorded")
    ended = app.jobs.get(job)
    proof.expect((ended.error or "").startswith("TimeoutError"), f"error {ended.error}")
    proof.expect((ended.attempts, ended.crashes) == (1, 0), f"spent {ended}")
    for other in jobs_of(app, others):
        state = (other.status, other.claim_no, other.attempts, other.crashes)
        proof.expect(state == ("completed", 1, 1, 0), f"harmed: {state}")
    starts = len(scene.facts("start", job))
    proof.expect(starts == 1, f"it was started {starts} times")
    return seconds
