"""A process killed at each point of a transaction that carries the application's row and the end of a
job, by `ctx.complete(tx=)` and by hooks: the two never disagree, at no moment."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.crash.fleet import ROOT, environment, fleet
from tests.crash.scene import Proof, Scene, pause, statuses, unfinished, until
from tests.support.witness import check

LONG = {"rounds": 5, "heartbeat": 1.0}
ENGINES = ("sqlite", "postgres")
TASKS = ("completes", "succeeds", "fails")
POINTS = ("before the write", "before the finish", "before the commit", "after the commit")
QUEUES = {f"{task}-{n}": (task, point) for task in TASKS for n, point in enumerate(POINTS)}


class Auditor:
    """Reads rows and jobs in one statement, over and over; keeps every disagreement."""

    def __init__(self, scene: Scene) -> None:
        jobs = "holdfast_jobs" if scene.kind == "sqlite" else f"{scene.schema}.jobs"
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
        self._scene = scene
        self.looks = 0
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
            self.looks += 1
            pause(0.002)
        connection.close()


def prove(scene: Scene, *, rounds: int, heartbeat: float) -> Proof:
    proof = Proof()
    ids: dict[str, str] = {}
    options = {"app": "tests.crash.ledger:app", "heartbeat": heartbeat}
    queues = ",".join(f"{queue}=1" for queue in QUEUES)
    with scene.app() as app, fleet(scene, queues=queues, **options) as workers:
        connection = scene.connect()
        connection.execute("CREATE TABLE ledger (job text, claim_no integer, status text)")
        with Auditor(scene) as auditor:
            for _ in range(rounds):
                for queue, (task, point) in QUEUES.items():
                    job = app.enqueue(task, {"point": point}, queue=queue, max_attempts=1)
                    ids[job.id] = point
                with _victims(scene, heartbeat):
                    until(lambda: _deaths(scene) == len(ids), 60, "the death of every victim")
                workers.start()
                until(lambda: unfinished(app) == 0, 60, "every job finished")
                workers.kill_all()
        rows = dict(connection.execute("SELECT job, claim_no FROM ledger").fetchall())
        connection.execute("DROP TABLE ledger")
        connection.close()
        found = statuses(app)
        claims = {job.id: job.claim_no for job in app.jobs.search()}
    proof.figures |= {"deaths": len(ids), "looks": auditor.looks}
    proof.figures["disagreements"] = len(auditor.disagreements)
    proof.take(check(scene.facts(), ids, found, finals=("completed", "failed")))
    proof.expect(not auditor.disagreements, f"they disagreed: {auditor.disagreements}")
    proof.expect(rows == claims, f"rows of other claims: {rows.items() ^ claims.items()}")
    for fact in scene.facts("kill"):
        if fact.job in ids:
            committed = ids[fact.job] == "after the commit"
            ran_again = claims[fact.job] > fact.claim_no
            proof.expect(committed != ran_again, f"{ids[fact.job]}: ran again: {ran_again}")
    return proof


@contextmanager
def _victims(scene: Scene, heartbeat: float) -> Iterator[None]:
    """A worker for each queue, with one job to run and to die of."""
    command = [sys.executable, "-m", "tests.crash.victims", *QUEUES]
    with subprocess.Popen(command, env=environment(scene, heartbeat), cwd=ROOT) as process:
        try:
            yield
        finally:
            process.kill()


def _deaths(scene: Scene) -> int:
    return sum(fact.job != "-" for fact in scene.facts("kill"))
