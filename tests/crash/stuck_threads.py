"""A thread that never returns: its job's message says so, its process is replaced, the timeout is
recorded, and other jobs of that process are not harmed."""

import time

from holdfast import Holdfast
from tests.crash.testbed import CrashTestbed, Report, jobs_of, until
from tests.crash.worker_group import is_gone, worker_group

LONG_RUN = {"rounds": 3, "beside": 13.0}
ENGINES = ("sqlite", "postgres")


def run(testbed: CrashTestbed, *, rounds: int, beside: float) -> Report:
    """`beside`: seconds that the other jobs take, longer than the grace of the stuck process."""
    report = Report()
    with testbed.app() as app, worker_group(testbed) as workers:
        workers.start().until_ready()
        replaced = [_round(testbed, app, report, beside) for _ in range(rounds)]
        log = workers.log()
    report.expect("whose process died" not in log, "jobs were suspected")
    times = ", ".join(f"{seconds:.1f} s" for seconds in replaced)
    report.figures |= {"rounds": rounds, "replaced after its deadline": times}
    return report


def _round(testbed: CrashTestbed, app: Holdfast, report: Report, beside: float) -> float:
    """Return how long after the deadline the process was gone."""
    others = [app.enqueue("patient", {"seconds": beside}).id]
    others.append(app.enqueue("threaded", {"ms": int(1000 * beside)}).id)
    job = app.enqueue("stuck", max_attempts=1).id
    until(lambda: testbed.entries("start", job), 30, "the start of the job")
    [start] = testbed.entries("start", job)
    until(lambda: "stuck" in (app.jobs.get(job).message or ""), 10, "its row says stuck")
    report.expect(app.jobs.get(job).status == "running", "it is not running while it hangs")
    until(lambda: is_gone(start.pid), 60, "the end of its process")
    seconds = time.monotonic() - start.at - 1.0
    until(lambda: app.jobs.get(job).status == "failed", 30, "the timeout is recorded")
    ended = app.jobs.get(job)
    report.expect((ended.error or "").startswith("TimeoutError"), f"error {ended.error}")
    report.expect((ended.attempts, ended.crashes) == (1, 0), f"spent {ended}")
    for other in jobs_of(app, others):
        state = (other.status, other.claim_no, other.attempts, other.crashes)
        report.expect(state == ("completed", 1, 1, 0), f"harmed: {state}")
    starts = len(testbed.entries("start", job))
    report.expect(starts == 1, f"it was started {starts} times")
    return seconds
