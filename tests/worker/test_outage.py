"""A database that cannot be reached is waited for; nothing is lost meanwhile."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Context, Holdfast
from tests.support.server import PostgresServer
from tests.support.waiting import PATIENCE, finished, until


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """One that can be stopped without harm to other tests."""
    with PostgresServer() as server:
        if not server.can_restart:
            pytest.skip("the server is not ours to stop")
        yield server


@pytest.fixture
def app(own_server: PostgresServer, tmp_path: Path) -> Iterator[Holdfast]:
    url = own_server.create_database()
    with Holdfast(url, auto_migrate=True, backoff=0.05, poll_interval=0.2, workdir=tmp_path) as app:
        yield app
        own_server.resume()


def test_a_worker_started_while_the_server_is_down_starts_work_when_it_is_up(
    own_server: PostgresServer, app: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    def works() -> str:
        return "done"

    job = works.enqueue()
    own_server.halt()
    with app.worker() as worker:
        until(lambda: "the worker waits for the database" in caplog.text)
        assert worker.id is None
        own_server.resume()
        assert finished(app, job).result == "done"
        assert worker.id is not None


def test_a_worker_started_before_the_tables_exist_starts_work_when_they_do(
    own_server: PostgresServer, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    url = own_server.create_database()
    with Holdfast(url, poll_interval=0.2, workdir=tmp_path) as app, app.worker():

        @app.task
        def works() -> str:
            return "done"

        until(lambda: "holdfast migrate" in caplog.text)
        with Holdfast(url, auto_migrate=True) as other:
            other.migrate()
        assert finished(app, works.enqueue()).result == "done"


@pytest.mark.parametrize("fails", [False, True])
def test_a_run_that_ends_during_an_outage_is_written_after_it(
    own_server: PostgresServer, app: Holdfast, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    started, go = threading.Event(), threading.Event()
    runs: list[int] = []

    @app.task
    def child() -> None: ...

    @app.task(max_attempts=1)
    def works(ctx: Context) -> str:
        runs.append(1)
        ctx.enqueue(child)
        ctx.progress(90, "nearly")
        started.set()
        assert go.wait(PATIENCE)
        if fails:
            raise ValueError("no")
        return "done"

    job = works.enqueue()
    with app.worker():
        assert started.wait(PATIENCE)
        own_server.halt()
        go.set()
        until(lambda: "the ends of 1 jobs wait for the database" in caplog.text)
        own_server.resume()
        done = finished(app, job)
        assert finished(app, works.using(priority=1).enqueue()).attempts == 1  # it works on
    assert (done.status, done.result) == (("failed", None) if fails else ("completed", "done"))
    assert (done.attempts, done.progress, done.message) == (1, 90, "nearly")
    assert len(runs) == 2
    assert app.jobs.count(type="child") == (0 if fails else 2)
