"""How soon a job runs again after `kill -9`: of the only worker and its supervisor, when a new one is
started immediately; and of only the worker process, whose supervisor lives."""

from holdfast import Holdfast
from tests.crash.testbed import CrashTestbed, Report, until
from tests.crash.worker_group import WorkerGroup, worker_group
from tests.support.history import check_history

LONG_RUN = {"rounds": 10, "heartbeat": 5.0, "all_dead": 20.0, "child_dead": 2.0}
ENGINES = ("sqlite", "postgres")


def run(
    testbed: CrashTestbed, *, rounds: int, heartbeat: float, all_dead: float, child_dead: float
) -> Report:
    """`all_dead`, `child_dead`: the most seconds that each recovery may take."""
    report = Report()
    ids: list[str] = []
    after_all: list[float] = []
    after_child: list[float] = []
    with testbed.app() as app, worker_group(testbed, heartbeat=heartbeat) as workers:
        workers.start()
        for _ in range(rounds):
            ids.append(_begun(testbed, app))
            workers.kill_supervisor(workers.live_supervisors()[0])
            workers.start()
            after_all.append(_again(testbed, app, ids[-1]))
            ids.append(_begun(testbed, app))
            workers.kill_child(_runner(testbed, ids[-1], workers))
            after_child.append(_again(testbed, app, ids[-1]))
        found = {job.id: job.status.value for job in app.jobs.search()}
    report.figures |= {
        "after all died": _span(after_all),
        "after the child died": _span(after_child),
    }
    report.take(check_history(testbed.entries(), ids, found))
    report.expect(max(after_all) <= all_dead, f"all dead: {max(after_all):.1f} s > {all_dead:g} s")
    report.expect(
        max(after_child) <= child_dead, f"child dead: {max(after_child):.2f} s > {child_dead:g} s"
    )
    return report


def _begun(testbed: CrashTestbed, app: Holdfast) -> str:
    """Enqueue a job and wait until it runs."""
    testbed.close_gates()
    job = app.enqueue("gated").id
    until(lambda: testbed.entries("start", job), 60, "the first start of the job")
    return job


def _runner(testbed: CrashTestbed, job: str, workers: WorkerGroup) -> int:
    [start] = testbed.entries("start", job)
    assert start.pid in workers.children()
    return start.pid


def _again(testbed: CrashTestbed, app: Holdfast, job: str) -> float:
    """Return the seconds until the job runs again, and let it finish."""
    seconds = until(
        lambda: len(testbed.entries("start", job)) == 2, 60, "the second start of the job"
    )
    testbed.open_gate(2)
    until(lambda: app.jobs.get(job).status == "completed", 60, "the end of the job")
    return seconds


def _span(times: list[float]) -> str:
    return f"{min(times):.2f}-{max(times):.2f} s"
