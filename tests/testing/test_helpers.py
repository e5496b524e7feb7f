"""`enqueued`, `temporary` and the fixtures of the pytest plugin."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from holdfast import Holdfast, InvalidInput
from holdfast.testing import FakeClock, Inline, drain, enqueued, temporary
from tests.conftest import Database
from tests.support.jobs import new

MOMENT = datetime(2031, 1, 1, tzinfo=UTC)


def test_waiting_jobs_are_found_by_their_arguments(database: Database, clock: FakeClock) -> None:
    app = database.app(clock=clock)

    @app.task
    def send(to: str, id: UUID, at: datetime = MOMENT) -> None: ...

    @app.task
    def other(to: str) -> None: ...

    first = send.enqueue("ann", UUID(int=1))
    second = send.using(delay="1h").enqueue("ann", UUID(int=2), MOMENT)
    third = send.enqueue("ben", UUID(int=3))
    other.enqueue("ann")

    def ids(**arguments: object) -> list[str]:
        return [job.id for job in enqueued(app, send, **arguments)]

    assert ids() == [first.id, second.id, third.id]
    assert ids(to="ann") == [first.id, second.id]
    assert ids(to="ann", id=UUID(int=2)) == [second.id]
    assert ids(id=str(UUID(int=3))) == [third.id]
    assert ids(at=MOMENT) == [second.id]
    assert ids(to="cid") == []
    assert enqueued(app, "send", to="ben")[0].payload["to"] == "ben"
    drain(app)
    assert ids() == [second.id]


def test_an_argument_that_the_task_does_not_have_is_refused(tmp_path: Path) -> None:
    with Holdfast(f"sqlite:///{tmp_path}/jobs.db") as app:

        @app.task
        def send(to: str) -> None: ...

        @app.task
        def collects(**options: int) -> None: ...

        with pytest.raises(InvalidInput, match="'send' has no argument whom"):
            enqueued(app, send, whom="ann")
        collects.enqueue(n=1)
        assert len(enqueued(app, collects, n=1)) == 1


def test_jobs_of_unregistered_tasks_are_found(tmp_path: Path) -> None:
    with Holdfast(f"sqlite:///{tmp_path}/jobs.db") as app:
        app.engine.insert([new("elsewhere", payload='{"n":1}')])
        assert len(enqueued(app, "elsewhere", n=1)) == 1
        assert enqueued(app, "elsewhere", n=2) == []


def test_temporary_gives_an_application_an_empty_database(
    database: Database, clock: FakeClock
) -> None:
    app = database.app()

    @app.task
    def works() -> str:
        return "done"

    works.enqueue()
    url, engine = app.url, app.engine
    with temporary(app, clock=clock):
        assert app.jobs.count() == 0
        job = works.using(delay=60).enqueue()
        assert job.created_at == clock.now()
        clock.advance(60)
        assert [one.result for one in drain(app)] == ["done"]
        folder = Path(app.url.removeprefix("sqlite:///")).parent
        assert folder.exists()
        assert app.stats().queues == []
    assert not folder.exists()
    assert (app.url, app.engine) == (url, engine)
    assert app.jobs.count() == 1
    assert app.jobs.count(status="pending") == 1


def test_all_parts_of_an_application_use_its_temporary_database(tmp_path: Path) -> None:
    """Schedules, limits and workflows use it, too: the own database is not made."""
    app = Holdfast(f"sqlite:///{tmp_path}/its-own.db")

    @app.task
    def work() -> None: ...

    with temporary(app):
        work.using(key="a", every="1h").schedule()
        with app.workflow("two") as flow:
            flow.add(work)
        app.queues.limit("default", 2)
        assert [job.key for job in app.schedules.list()] == ["a"]
        assert app.workflows.get(flow.id).total == 1
        assert [limit.name for limit in app.limits.list()] == ["queue:default"]
    assert not list(tmp_path.iterdir())


def test_temporary_takes_the_url_of_a_database(
    database: Database, clock: FakeClock, tmp_path: Path
) -> None:
    with Holdfast(f"sqlite:///{tmp_path}/never.db") as app:

        @app.task
        def works() -> str:
            return "done"

        with temporary(app, database.url, schema=database.schema, clock=clock):
            job = works.enqueue()
            assert [one.result for one in drain(app)] == ["done"]
        assert database.app().jobs.get(job.id).status == "completed"
    assert not (tmp_path / "never.db").exists()


def test_the_own_database_is_restored_when_the_block_raises(tmp_path: Path) -> None:
    with Holdfast(f"sqlite:///{tmp_path}/jobs.db") as app:
        engine = app.engine
        with pytest.raises(ValueError, match="in the test"), temporary(app), Inline(app):
            raise ValueError("in the test")
        assert app.engine is engine
        assert "insert" not in vars(app)


TESTS = """
from holdfast.testing import drain

def test_fixtures(holdfast_app, holdfast_clock):
    @holdfast_app.task
    def works() -> int:
        return 1

    works.using(delay="1h").enqueue()
    assert drain(holdfast_app) == []
    holdfast_clock.advance(3600)
    assert [job.result for job in drain(holdfast_app)] == [1]

def test_each_test_has_its_own(holdfast_app):
    assert holdfast_app.jobs.count() == 0
"""


def test_pytest_loads_the_fixtures_without_an_import(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"]
    result = subprocess.run(
        [*command, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "2 passed" in result.stdout
