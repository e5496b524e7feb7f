"""A server, or a proxy, that completes the login and then stays silent: the first call ends by itself,
whichever statement is not answered, and the next one works as soon as the server answers again."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from holdfast import DatabaseBusy, DatabaseUnavailable, Holdfast
from holdfast.engine.open import open_engine
from holdfast.engine.postgres.engine import PostgresEngine
from tests.conftest import Database
from tests.support.proxy import Proxy

BOTH = pytest.mark.parametrize("bare_database", ["postgres"], indirect=True)
TIMEOUT = 2.0  # seconds for a call
MOST = 40.0  # ... until it must have ended, on a slow and busy machine
POOLED = "pg_backend_pid"
FIRST_LOOK = "to_regclass"
# What is sent to make new tables, in this order, on two connections.
MIGRATING = ["pg_try_advisory_xact_lock", "BEGIN", "CREATE TABLE", "COMMIT"]


@pytest.fixture
def proxy(bare_database: Database) -> Iterator[Proxy]:
    with Proxy.before(bare_database.url) as proxy:
        yield proxy


def asks(words: str) -> Callable[[bytes], bool]:
    return lambda request: words.encode() in request


def deadline_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "holdfast-deadlines"]


def engine_of(database: Database, proxy: Proxy, *, auto_migrate: bool = True) -> PostgresEngine:
    engine = open_engine(
        proxy.url(database.url),
        schema=database.schema,
        auto_migrate=auto_migrate,
        timeout=TIMEOUT,
    )
    assert isinstance(engine, PostgresEngine)
    database.opened.append(engine)
    return engine


@BOTH
@pytest.mark.parametrize("words", [POOLED, FIRST_LOOK, *MIGRATING])
def test_the_first_enqueue_times_out(bare_database: Database, proxy: Proxy, words: str) -> None:
    before = deadline_threads()
    with Holdfast(
        proxy.url(bare_database.url),
        schema=bare_database.schema,
        auto_migrate=True,
        database_timeout=TIMEOUT,
    ) as app:
        proxy.stall_at(asks(words))
        began = time.monotonic()
        with pytest.raises(DatabaseUnavailable, match="did not answer within"):
            app.enqueue("t")
        assert time.monotonic() - began < MOST
        assert deadline_threads() == before, "a thread runs although nothing was opened"
        proxy.flow()
        proxy.cut()  # what was sent to the server is given up there, too
        assert enqueued_at_last(app)


def enqueued_at_last(app: Holdfast) -> bool:
    """The server may still hold the lock of the connection that was given up."""
    deadline = time.monotonic() + MOST
    while True:
        try:
            return app.enqueue("t").created
        except (DatabaseBusy, DatabaseUnavailable):
            if time.monotonic() > deadline:
                raise


@BOTH
def test_the_first_call_without_migrating_times_out(bare_database: Database, proxy: Proxy) -> None:
    engine = engine_of(bare_database, proxy, auto_migrate=False)
    proxy.stall_at(asks(FIRST_LOOK))
    with pytest.raises(DatabaseUnavailable, match="did not answer within"):
        engine.open()


@BOTH
@pytest.mark.parametrize("words", [FIRST_LOOK, "CREATE TABLE"])
def test_migrate_times_out(bare_database: Database, proxy: Proxy, words: str) -> None:
    before = deadline_threads()
    engine = engine_of(bare_database, proxy)
    proxy.stall_at(asks(words))
    with pytest.raises(DatabaseUnavailable, match="did not answer within"):
        engine.migrate()
    assert deadline_threads() == before


@BOTH
@pytest.mark.parametrize("words", ["SHOW server_version", FIRST_LOOK, "SHOW autovacuum"])
def test_the_doctor_reports_a_silent_server(
    bare_database: Database, proxy: Proxy, words: str
) -> None:
    bare_database.engine().open()
    engine = engine_of(bare_database, proxy)
    proxy.stall_at(asks(words))
    [finding] = engine.doctor.diagnose()
    assert (finding.level, finding.subject) == ("fail", "server")
    assert "did not answer within" in finding.text


@BOTH
def test_a_thread_that_waits_for_another_to_connect_times_out(
    bare_database: Database, proxy: Proxy
) -> None:
    engine = engine_of(bare_database, proxy)
    with engine._opening, pytest.raises(DatabaseBusy, match="another thread of this process"):
        engine.get(["00000000-0000-0000-0000-000000000000"])
