"""Two last parents that end in overlapping transactions: one of them frees their child. On PostgreSQL,
where that can happen; on SQLite writers take turns."""

import threading

import pytest

from holdfast.core.ids import new_id
from holdfast.engine.engine import Engine
from holdfast.jobs import outcome
from holdfast.jobs.job import Edge, Job, Status
from holdfast.workflows import scripts as workflow_scripts
from tests.conftest import Database
from tests.limits.test_interleaving import Other, interrupted
from tests.support import engine_commands
from tests.support.jobs import new

pytestmark = pytest.mark.parametrize("database", ["postgres"], indirect=True)

RACES = 500


class Fork:
    """Workflows of two parents and their child; the parents run."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.engines = [database.engine(), database.engine()]
        for engine in self.engines:
            engine.beat("w", "{}")

    def make(self) -> tuple[list[Job], str]:
        engine, workflow = self.engines[0], new_id()
        parents = [new("step", workflow_id=workflow, node=name) for name in "ab"]
        after = tuple(Edge(parent.id) for parent in parents)
        child = new("step", workflow_id=workflow, node="c", after=after)
        jobs = [*parents, child]
        engine.run(lambda: workflow_scripts.start(engine.dialect, workflow, "w", jobs), write=True)
        claimed = engine.claimer.fetch("default", 2, worker="w", types=["step"]).jobs
        assert {job.id for job in claimed} == {job.id for job in parents}
        return claimed, child.id

    def end(self, engine: Engine, job: Job) -> None:
        engine.finish([outcome.completed(job, keep=60.0)])

    def is_free(self, child: str) -> bool:
        """May it run? It is taken out of the way."""
        engine = self.engines[0]
        [job] = engine.get([child])
        engine_commands.cancel(engine, [child], keep=60.0)
        return job.status is Status.PENDING


@pytest.fixture
def fork(database: Database) -> Fork:
    return Fork(database)


def test_finishes_race_at_every_statement(fork: Fork) -> None:
    freed: dict[int, bool] = {}
    for at in range(50):
        (one, two), child = fork.make()
        first, second = fork.engines
        other = Other(fork.database, lambda: fork.end(second, two))  # noqa: B023 - used at once
        with interrupted(first, {at: other.happen}):
            fork.end(first, one)
        if not other.end():
            fork.end(second, two)
            break
        freed[at] = fork.is_free(child)
    assert len(freed) >= 5
    assert freed == dict.fromkeys(freed, True)


def test_parents_finish_concurrently_many_times(fork: Fork) -> None:
    freed = 0
    for _ in range(RACES):
        jobs, child = fork.make()
        barrier = threading.Barrier(2)

        def finish(engine: Engine, job: Job, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            fork.end(engine, job)

        pairs = zip(fork.engines, jobs, strict=True)
        threads = [threading.Thread(target=finish, args=pair) for pair in pairs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        freed += fork.is_free(child)
    assert freed == RACES
