"""Kill a process at each point of a transaction that writes the application's row and the end of a job,
by `ctx.complete(tx=)` and by hooks: the two never disagree."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.crash.testbed import CrashTestbed, Report, pause, statuses, unfinished, until
from tests.crash.worker_group import ROOT, environment, worker_group
from tests.support.history import check_history

LONG_RUN = {"rounds": 5, "heartbeat": 1.0}
ENGINES = ("sqlite", "postgres")
TASKS = ("completes", "succeeds", "fails")
POINTS = ("before the write", "before the finish", "before the commit", "after the commit")
QUEUES = {f"{task}-{n}": (task, point) for task in TASKS for n, point in enumerate(POINTS)}


class Auditor:
    """Reads rows and jobs in one statement, repeatedly, and keeps every disagreement."""

    def __init__(self, testbed: CrashTestbed) -> None:
        jobs = "holdfast_jobs" if testbed.kind == "sqlite" else f"{testbed.schema}.jobs"
        ended = "CAST(id AS text) = ledger.job AND jobs.status = ledger.status"
        self._query = f"""
            SELECT 'a row without its job', job FROM ledger
             WHERE NOT EXISTS (SELECT 1 FROM {jobs} AS jobs WHERE {ended})
             UNION ALL
            SELECT 'a job without its row', CAST(id AS text) FROM {jobs} AS jobs
             WHERE status IN ('completed', 'failed')
               AND NOT EXISTS (SELECT 1 FROM ledger WHERE {ended})
             UNION ALL
            SELECT 'two rows of one job', job FROM ledger GROUP BY job HAVING COUNT(*) > 1
        """
        self._scene = testbed
        self.samples = 0
        self.disagreements: set[tuple[str, str]] = set()
        self._closing = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Auditor":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._thread.join()

    def _run(self) -> None:
        connection = self._scene.connect()
        while not self._closing:
            self.disagreements.update(map(tuple, connection.execute(self._query).fetchall()))
            self.samples += 1
            pause(0.002)
        connection.close()


def run(testbed: CrashTestbed, *, rounds: int, heartbeat: float) -> Report:
    report = Report()
    ids: dict[str, str] = {}
    options = {"app": "tests.crash.ledger_tasks:app", "heartbeat": heartbeat}
    queues = ",".join(f"{queue}=1" for queue in QUEUES)
    with testbed.app() as app, worker_group(testbed, queues=queues, **options) as workers:
        connection = testbed.connect()
        connection.execute("CREATE TABLE ledger (job text, claim_no integer, status text)")
        with Auditor(testbed) as auditor:
            for _ in range(rounds):
                for queue, (task, point) in QUEUES.items():
                    job = app.enqueue(task, {"point": point}, queue=queue, max_attempts=1)
                    ids[job.id] = point
                with _dying_workers(testbed, heartbeat):
                    until(lambda: _deaths(testbed) == len(ids), 60, "the death of every worker")
                workers.start()
                until(lambda: unfinished(app) == 0, 60, "every job finished")
                workers.kill_all()
        rows = dict(connection.execute("SELECT job, claim_no FROM ledger").fetchall())
        connection.execute("DROP TABLE ledger")
        connection.close()
        found = statuses(app)
        claims = {job.id: job.claim_no for job in app.jobs.search()}
    report.figures |= {"deaths": len(ids), "samples": auditor.samples}
    report.figures["disagreements"] = len(auditor.disagreements)
    report.take(check_history(testbed.entries(), ids, found, finals=("completed", "failed")))
    report.expect(not auditor.disagreements, f"they disagreed: {auditor.disagreements}")
    report.expect(rows == claims, f"rows of other claims: {rows.items() ^ claims.items()}")
    for entry in testbed.entries("kill"):
        if entry.job in ids:
            committed = ids[entry.job] == "after the commit"
            ran_again = claims[entry.job] > entry.claim_no
            report.expect(committed != ran_again, f"{ids[entry.job]}: ran again: {ran_again}")
    return report


@contextmanager
def _dying_workers(testbed: CrashTestbed, heartbeat: float) -> Iterator[None]:
    """A worker for each queue, with one job, which kills it."""
    command = [sys.executable, "-m", "tests.crash.dying_workers", *QUEUES]
    with subprocess.Popen(command, env=environment(testbed, heartbeat), cwd=ROOT) as process:
        try:
            yield
        finally:
            process.kill()


def _deaths(testbed: CrashTestbed) -> int:
    return sum(entry.job != "-" for entry in testbed.entries("kill"))
