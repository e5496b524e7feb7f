"""A database that answers that it cannot store: what ended well is never recorded as failed, the end is
kept and sent again, and a worker that cannot write takes no more jobs."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.engine.sqlite.engine import SqliteEngine
from holdfast.worker.running import finisher
from tests.conftest import Database
from tests.support.waiting import finished, until

SIZE = 400_000  # characters of a result
FULL = """
CREATE FUNCTION {schema}.full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF length(NEW.result::text) > 1000 THEN
        RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '{code}';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER full_disk BEFORE UPDATE ON {schema}.jobs
    FOR EACH ROW EXECUTE FUNCTION {schema}.full_disk();
"""

Fill = Callable[..., AbstractContextManager[None]]


@pytest.fixture
def app(database: Database, tmp_path: Path) -> Holdfast:
    return database.app(backoff=0.05, poll_interval=0.2, workdir=tmp_path, max_attempts=5)


@pytest.fixture
def full(app: Holdfast, database: Database) -> Fill:
    """The database refuses large results, with the error code of a full disk or another one."""

    @contextmanager
    def on_sqlite(code: str = "") -> Iterator[None]:
        engine = app.engine
        assert isinstance(engine, SqliteEngine)
        connection = engine._open().connection
        [(pages,)] = connection.execute("PRAGMA page_count").fetchall()
        connection.execute(f"PRAGMA max_page_count = {pages + 40}").fetchall()
        yield
        connection.execute(f"PRAGMA max_page_count = {2**30}").fetchall()

    @contextmanager
    def on_postgres(code: str = "53100") -> Iterator[None]:
        app.engine.open()
        schema = database.schema
        with psycopg.connect(database.url, autocommit=True) as own:
            own.execute(FULL.format(schema=schema, code=code).encode())
            yield
            own.execute(f"DROP FUNCTION {schema}.full_disk CASCADE".encode())

    return on_sqlite if database.kind == "sqlite" else on_postgres


def test_successful_runs_are_completed_when_the_disk_has_space_again(
    app: Holdfast, full: Fill, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    def large(number: int) -> str:
        return "x" * SIZE

    @app.task
    def small(number: int) -> int:
        return number

    many = large.enqueue_many([{"number": number} for number in range(20)])
    few = small.enqueue_many([{"number": number} for number in range(20)])
    with full():
        worker = app.worker(concurrency=50)
        worker.start()
        for job in few:  # their ends are not hostage to the large ones
            assert finished(app, job).status == "completed"
        until(lambda: "wait for the database" in caplog.text)
        until(lambda: worker.cannot_write_for > 0.5)
        statuses = {app.jobs.get(job.id).status for job in many}
        assert statuses <= {"running", "completed"}
        assert "running" in statuses
    for job in many:
        ended = finished(app, job)
        assert (ended.status, ended.attempts, len(ended.result)) == ("completed", 1, SIZE)
        assert app.jobs.attempts(job.id) == []
    until(lambda: worker.cannot_write_for == 0.0)
    worker.stop()


def test_a_worker_that_cannot_write_claims_no_jobs_and_logs_why(
    app: Holdfast,
    database: Database,
    full: Fill,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(finisher, "STALLED", 0.5)

    @app.task
    def large() -> str:
        return "x" * SIZE

    @app.task
    def small() -> None: ...

    other = database.app()
    with full():
        job = large.enqueue()
        worker = app.worker()
        worker.start()
        until(lambda: "takes no more jobs until the database takes writes again" in caplog.text)
        later = other.enqueue("small")
        until(lambda: '"cannot_write_for": 0.0' not in worker.info())
        for _ in range(20):  # it polls every 0.2 s
            assert other.jobs.get(later.id).status == "pending"
            time.sleep(0.05)
    assert finished(app, job).status == "completed"
    assert finished(app, later).status == "completed"
    worker.stop()


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
@pytest.mark.parametrize("code", ["53200", "58030", "XX000", "25006", "42P05", "26000", "55006"])
def test_only_an_error_of_its_values_fails_a_job(app: Holdfast, full: Fill, code: str) -> None:
    """Out of memory, an I/O error, an internal error, a standby, a pooler, an object in use."""

    @app.task
    def large() -> str:
        return "x" * SIZE

    job = large.enqueue()
    with full(code):
        worker = app.worker()
        worker.start()
        until(lambda: worker.cannot_write_for > 0.2)
        assert app.jobs.get(job.id).status == "running"
    assert finished(app, job).status == "completed"
    worker.stop()


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
@pytest.mark.parametrize("code", ["22000", "23514", "54000", "P0001"])
def test_an_error_of_its_values_fails_the_job_with_the_reason(
    app: Holdfast, full: Fill, code: str
) -> None:
    @app.task
    def large() -> str:
        return "x" * SIZE

    @app.task
    def small() -> int:
        return 1

    jobs = [large.enqueue(), small.enqueue()]
    with full(code), app.worker():
        refused, fine = [finished(app, job) for job in jobs]
    assert refused.status == "failed"
    assert refused.error is not None
    assert "No space left" in refused.error
    assert fine.result == 1
