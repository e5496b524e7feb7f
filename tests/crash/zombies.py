"""Workers frozen by SIGSTOP until they are declared dead, and thawed while others run their jobs: none
of their writes is accepted, and afterwards they work again."""

from contextlib import suppress

from holdfast import Holdfast, HoldfastError
from tests.crash.testbed import CrashTestbed, Report, jobs_of, pause, unfinished, until
from tests.crash.worker_group import WorkerGroup, worker_group
from tests.support.history import check_history

LONG_RUN = {"rounds": 50, "jobs": 50, "heartbeat": 1.0}
ENGINES = ("sqlite", "postgres")
SENT = "its finish changed nothing"  # what a worker logs of a finish that came too late


def run(testbed: CrashTestbed, *, rounds: int, jobs: int, heartbeat: float) -> Report:
    report = Report()
    ids: list[str] = []
    later: list[str] = []
    options = {"queues": f"default={jobs}", "heartbeat": heartbeat}
    with (
        testbed.app() as app,
        worker_group(testbed, "frozen", **options) as frozen,
        worker_group(testbed, "others", **options) as others,
    ):
        frozen.start().until_ready()
        for number in range(rounds):
            ids += _round(testbed, app, frozen, others, jobs, children_only=number % 2 == 1)
            later.append(_goes_on(app))
        stale = [job.id for job in jobs_of(app, ids) if job.result != 2 or job.claim_no != 2]
        found = {job.id: job.status.value for job in app.jobs.search()}
        sent = frozen.log().count(SENT)
    report.figures |= {"frozen": len(ids), "stale writes sent": sent, "accepted": len(stale)}
    report.take(check_history(testbed.entries(), [*ids, *later], found))
    report.expect(not stale, f"stale writes were accepted: {len(stale)}, e.g. of {stale[:3]}")
    report.expect(sent, "no frozen run tried to write: nothing was tested")
    return report


def _round(
    testbed: CrashTestbed,
    app: Holdfast,
    frozen: WorkerGroup,
    others: WorkerGroup,
    jobs: int,
    *,
    children_only: bool,
) -> list[str]:
    """Each job is started by the frozen workers, and started again and finished by the others; the
    frozen workers continue in between."""
    kinds = ["gated", "gated_thread"]
    ids = [app.enqueue(kinds[number % 2]).id for number in range(jobs)]
    until(lambda: _started(testbed, ids, 1), 60, "the first start of every job")
    _freeze(app, frozen, children_only=children_only)
    others.start()
    until(lambda: not _held_by_first(app, ids), 90, "the frozen declared dead")
    # Jobs of a dead worker run one at a time, as one of them may have killed it. These did not.
    app.jobs.retry_all(status="pending")
    until(lambda: _started(testbed, ids, 2), 60, "the second start of every job")
    testbed.open_gate(1)
    before = _dropped(frozen)
    frozen.thaw()
    until(
        lambda: _dropped(frozen) - before >= jobs or _changed(app, ids),
        60,
        "every frozen run ended in vain",
    )
    changed = _changed(app, ids)
    assert not changed, f"stale writes were accepted: {len(changed)} of {jobs}"
    testbed.open_gate(2)
    until(lambda: unfinished(app) == 0, 60, "every job finished by the others")
    others.kill_all()
    testbed.close_gates()
    return ids


def _held_by_first(app: Holdfast, ids: list[str]) -> bool:
    return any((job.status, job.claim_no) == ("running", 1) for job in jobs_of(app, ids))


def _changed(app: Holdfast, ids: list[str]) -> list[str]:
    """Return jobs whose row does not show their second run, which still runs."""
    return [job.id for job in jobs_of(app, ids) if (job.status, job.claim_no) != ("running", 2)]


def _started(testbed: CrashTestbed, ids: list[str], claim_no: int) -> bool:
    started = {entry.job for entry in testbed.entries("start") if entry.claim_no == claim_no}
    return started.issuperset(ids)


def _dropped(worker_group: WorkerGroup) -> int:
    """Count the runs that ended without effect: their finish was refused or not sent."""
    log = worker_group.log()
    return log.count(SENT) + log.count("its result is dropped")


def _freeze(app: Holdfast, worker_group: WorkerGroup, *, children_only: bool) -> None:
    """Freeze the workers while none of them holds SQLite's write lock, which would block all others."""
    while True:
        worker_group.freeze(children_only=children_only)
        with suppress(HoldfastError):
            app.queues.resume("nothing")
            return
        worker_group.thaw()
        pause(0.05)


def _goes_on(app: Holdfast) -> str:
    """Return the id of a job that a thawed worker ran under its new worker id."""
    job = app.enqueue("short", {"ms": 1})
    until(lambda: app.jobs.get(job.id).status == "completed", 60, "a job done by the thawed")
    return job.id
