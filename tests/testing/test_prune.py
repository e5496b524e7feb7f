"""`prune` deletes finished jobs in the thread of the test, by a clock that the test moves."""

from pathlib import Path

import pytest

from holdfast import Holdfast, Job
from holdfast.testing import FakeClock, drain, prune, temporary
from tests.conftest import Database

DAY = 24 * 3600.0


@pytest.fixture
def app(database: Database, clock: FakeClock, tmp_path: Path) -> Holdfast:
    return database.app(clock=clock, workdir=tmp_path / "work")


def test_jobs_are_deleted_when_their_retention_is_over(app: Holdfast, clock: FakeClock) -> None:
    @app.task(max_attempts=1)
    def halves(n: int) -> float:
        return 1 / n

    done, broken = halves.enqueue(1), halves.enqueue(0)
    drain(app, raise_errors=False)
    clock.advance(7 * DAY - 1)
    assert prune(app) == 0
    clock.advance(2)
    assert prune(app) == 1
    assert [job.id for job in app.jobs.search()] == [broken.id]
    assert done.id != broken.id
    clock.advance(23 * DAY)
    assert (prune(app), app.jobs.count()) == (1, 0)


def test_hooks_are_called_and_a_hook_that_raises_keeps_its_job(
    app: Holdfast, clock: FakeClock
) -> None:
    called: list[int] = []

    async def on_prune(job: Job) -> None:
        called.append(job.payload["n"])
        if job.payload["n"] == 2 and called.count(2) == 1:
            raise OSError("the disk is away")

    @app.task(on_prune=on_prune, retention={"completed": 0})
    def works(n: int) -> None: ...

    works.enqueue_many([{"n": n} for n in range(25)])  # more than a pruner leases in one step
    drain(app)
    assert prune(app) == 24
    [kept] = app.jobs.search()
    assert kept.prune_error == "OSError: the disk is away"
    assert prune(app) == 0  # a minute later, it says
    clock.advance(61)
    assert prune(app) == 1
    assert sorted(called) == sorted([*range(25), 2])


def test_a_worker_and_its_application_use_only_the_temporary_database(
    tmp_path: Path, clock: FakeClock
) -> None:
    """Limits, schedules and workflows use it, too: the application's own database is not opened."""
    app = Holdfast("postgresql://nobody.invalid/none", workdir=tmp_path / "work")

    @app.task(concurrency=1, every="1h")
    def works() -> None: ...

    with temporary(app, clock=clock):
        with app.worker() as worker:  # its start declares limits and schedules
            assert worker.join(30)
        assert [limit.name for limit in app.limits.list()] == ["works"]
        assert [job.type for job in app.schedules.list()] == ["works"]
        with app.workflow() as flow:
            flow.add(works)
        assert [flow.total for flow in app.workflows.list()] == [1]
        app.limits.set("works", 3)
    app.close()
