"""Handlers that run for many heartbeats, one of them blocking its event loop: each is started once and
never taken over by another live worker; on SQLite also while the application holds the write lock for
longer than it takes to declare a worker dead."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tests.crash.testbed import CrashTestbed, Report, jobs_of, pause, unfinished, until
from tests.crash.worker_group import worker_group

LONG_RUN = {"heartbeat": 5.0, "patient": 60.0, "blocked": 30.0, "locked": 20.0, "busy": 5.0}
ENGINES = ("sqlite", "postgres")


def run(
    testbed: CrashTestbed,
    *,
    heartbeat: float,
    patient: float,
    blocked: float,
    locked: float,
    busy: float,
) -> Report:
    """`busy`: how long a write to SQLite waits for the lock (by default five seconds, a heartbeat)."""
    report = Report()
    if testbed.kind == "sqlite":
        testbed = replace(testbed, url=f"{testbed.url}?busy_timeout={busy}")
    options = {"heartbeat": heartbeat, "queues": "default=4"}
    with (
        testbed.app() as app,
        worker_group(testbed, "worker", processes=2, **options) as worker,
        worker_group(testbed, "watcher", **options) as watcher,
    ):
        watcher.start().until_ready()
        worker.start().until_ready()
        jobs = [app.enqueue("patient", {"seconds": patient}) for _ in range(4)]
        jobs += [app.enqueue("threaded", {"ms": int(1000 * patient)}) for _ in range(4)]
        ids = [job.id for job in jobs]
        until(lambda: len(testbed.entries("start")) == 8, 30, "the start of the patient")
        ids.append(app.enqueue("blocks", {"seconds": blocked}).id)
        until(lambda: len(testbed.entries("start")) == 9, 30, "the start of the blocking job")
        if testbed.kind == "sqlite" and locked:
            pause(heartbeat * 1.5)
            with _locked(testbed):
                pause(locked)
        until(lambda: unfinished(app) == 0, 2 * patient + 30, "every job finished")
        starts = len(testbed.entries("start"))
        again = [job for job in jobs_of(app, ids) if (job.status, job.claim_no) != ("completed", 1)]
        log = worker.log() + watcher.log()
    report.figures |= {"jobs": len(ids), "starts": starts, "taken over": len(again)}
    report.expect(starts == len(ids), f"{starts} starts of {len(ids)} jobs")
    report.expect(not again, f"{len(again)} jobs were claimed again, e.g. {again[:1]}")
    for words in ("declared dead", "could not be reached", "recovered"):
        found = [line for line in log.splitlines() if words in line and "started: 0" not in line]
        report.expect(not found, f"{words!r} in the log: {found[:1]}")
    return report


@contextmanager
def _locked(testbed: CrashTestbed) -> Iterator[None]:
    """Hold SQLite's write lock in a transaction of the application."""
    connection = testbed.connect()
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()
