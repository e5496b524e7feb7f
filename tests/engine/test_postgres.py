"""What only PostgreSQL has: a server that goes away, poolers, schemas, settings, NOTIFY."""

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from holdfast.engine.engine import Engine
from holdfast.engine.postgres import wakeups
from holdfast.engine.postgres.engine import PostgresEngine
from holdfast.errors import DatabaseBusy, DatabaseUnavailable
from tests.conftest import Database
from tests.support import engine_commands
from tests.support.jobs import claim, execute, insert, new
from tests.support.server import PostgresServer
from tests.support.threads import in_threads

pytestmark = pytest.mark.parametrize("database", ["postgres"], indirect=True)


def sessions(database: Database) -> list[tuple[Any, ...]]:
    with psycopg.connect(database.url) as connection:
        return connection.execute(
            "SELECT pid, query FROM pg_stat_activity WHERE application_name = 'holdfast'"
            " AND datname = current_database()"
        ).fetchall()


def terminate(database: Database) -> None:
    """End every session of ours on the server, as a failover does."""
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'holdfast' AND datname = current_database()"
        )


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_commands_reconnect_after_their_connections_were_terminated(database: Database) -> None:
    engine = database.engine()
    in_threads(4, lambda _: insert(engine))
    for _ in range(3):
        terminate(database)
        job = insert(engine)
        terminate(database)
        assert engine.get([job.id])[0].id == job.id
    terminate(database)
    assert len(claim(engine, 10)) == 7


def test_calls_fail_fast_while_the_server_restarts_and_reconnect_afterwards(
    database: Database, server: PostgresServer
) -> None:
    if not server.can_restart:
        pytest.skip("the server is not ours to stop (HOLDFAST_TEST_POSTGRES_URL)")
    engine = database.engine()
    before = insert(engine)
    server.halt()
    try:
        began = time.monotonic()
        with pytest.raises(DatabaseUnavailable):
            insert(engine)
        assert time.monotonic() - began < 15
    finally:
        server.resume()
    until(lambda: _inserts(engine), "the engine does not come back")
    assert engine.get([before.id])[0].id == before.id


def _inserts(engine: Engine) -> bool:
    try:
        return insert(engine).created
    except DatabaseUnavailable:
        return False


def test_a_disconnected_listener_reconnects(database: Database) -> None:
    engine, other = database.engine(), database.engine()
    wakeups = engine.wakeups()
    insert(other)
    assert wakeups.wait(10)
    terminate(database)
    assert wakeups.wait(10) == {"*"}  # a look everywhere, for what was told meanwhile
    while wakeups.wait(0.2):
        pass
    insert(other)
    assert wakeups.wait(10)


def test_no_session_state_is_used_behind_a_pooler(database: Database) -> None:
    """Nothing is prepared, set or listened to: any session may serve the next transaction."""
    engine = database.engine(pooler=True)
    for _ in range(12):
        insert(engine)
        claim(engine)
        engine.counts()
    wakeups = engine.wakeups()
    assert isinstance(engine, PostgresEngine)
    with engine._open()._take(time.monotonic() + 5) as connection:
        assert connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
        changed = connection.execute(
            "SELECT name FROM pg_settings WHERE source IN ('session', 'client')"
            " AND name NOT IN ('application_name', 'client_encoding', 'DateStyle', 'TimeZone')"
        ).fetchall()
        assert changed == []
        assert connection.execute("SELECT pg_listening_channels()").fetchall() == []
    assert wakeups.wait(0.05) == frozenset()


def test_without_a_pooler_statements_are_prepared_and_bounded(database: Database) -> None:
    engine = database.engine()
    for _ in range(5):
        insert(engine)
    assert isinstance(engine, PostgresEngine)
    with engine._open()._take(time.monotonic() + 5) as connection:
        row = connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
        assert row is not None
        assert row[0] > 0
        for name, value in [("lock_timeout", "2s"), ("statement_timeout", "21s")]:
            assert connection.execute(f"SHOW {name}").fetchone() == (value,)


def test_schemas_are_independent(database: Database) -> None:
    other_schema = database.schema + "_b"
    one, two = database.engine(), database.engine(schema=other_schema)
    try:
        insert(one)
        assert one.counts()["pending"] == 1
        assert two.counts()["pending"] == 0
        wakeups = one.wakeups()
        while wakeups.wait(0.1):
            pass
        insert(two)
        assert wakeups.wait(0.2) == frozenset()
    finally:
        with psycopg.connect(database.url, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA {other_schema} CASCADE")


def test_the_tables_have_their_own_vacuum_settings(database: Database) -> None:
    engine = database.engine()
    insert(engine)
    options = dict(
        execute(
            engine,
            "SELECT relname, array_to_string(reloptions, ',') FROM pg_class"
            " WHERE relnamespace = CAST(:schema AS regnamespace) AND relkind = 'r'",
            schema=database.schema,
        )
    )
    assert "autovacuum_vacuum_scale_factor=0.02" in options["jobs"]
    assert "fillfactor=50" in options["workers"]


def test_a_notification_has_the_queues_name_and_is_debounced(database: Database) -> None:
    engine = database.engine()
    insert(engine)
    with psycopg.connect(database.url, autocommit=True) as listener:
        listener.execute(f'LISTEN "{database.schema}_wake"')
        begin = time.monotonic()
        for _ in range(1000):
            insert(engine, queue="media")
        took = time.monotonic() - begin
        heard = [notice.payload for notice in listener.notifies(timeout=0.5)]
    assert set(heard) == {"media"}
    # So many a second with the inserts themselves, saved ones too, and the rest now and then.
    allowed = wakeups._SAVED + took * wakeups.OFTEN + took / wakeups.INTERVAL + 2
    assert 1 <= len(heard) <= allowed


def test_a_row_locked_by_another_client_is_an_error_in_bounded_time(database: Database) -> None:
    engine = database.engine()
    job = insert(engine)
    with psycopg.connect(database.url) as holder:
        holder.execute(f"SELECT 1 FROM {database.schema}.jobs WHERE id = %s FOR UPDATE", [job.id])
        began = time.monotonic()
        with pytest.raises(DatabaseBusy, match="another transaction holds a lock"):
            engine_commands.cancel(engine, [job.id], keep=1.0)
        assert time.monotonic() - began < 6
        holder.rollback()
    assert engine_commands.cancel(engine, [job.id], keep=1.0) == [job.id]


def test_a_waiting_keyed_enqueue_does_not_delay_other_enqueues(database: Database) -> None:
    """Somebody's open transaction holds a key: only enqueues of that key wait for it."""
    engine = database.engine()
    insert(engine)
    app = database.app()
    with psycopg.connect(database.url) as holder:
        app.enqueue("send", key="k", tx=holder)
        failed: list[BaseException] = []

        def wait() -> None:
            try:
                insert(engine, key="k")
            except DatabaseBusy as error:
                failed.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        made = [insert(engine) for _ in range(20)]
        assert waiting.is_alive()
        waiting.join(10)
        holder.rollback()
    assert len(failed) == 1
    assert len(made) == 20


def test_a_claim_finds_jobs_released_behind_its_cursor(database: Database) -> None:
    """The low-water bound is a shortcut: when it finds less than asked, everything is looked at."""
    from holdfast.jobs import outcome

    engine = database.engine()
    engine.insert([new() for _ in range(6)])
    first = claim(engine, 3)
    engine.finish([outcome.released(job) for job in first])
    assert sorted(job.id for job in claim(engine, 10)) >= sorted(job.id for job in first)
