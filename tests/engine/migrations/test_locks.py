"""What waits for what while PostgreSQL's tables are migrated."""

import contextlib
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from holdfast import DatabaseBusy, Holdfast, SchemaError
from holdfast.engine import migrations
from holdfast.engine.postgres import migrator
from holdfast.engine.postgres.engine import PostgresEngine
from tests.conftest import Database
from tests.crash.testbed import until
from tests.engine.migrations.test_upgrades import UPGRADE
from tests.support.pgbouncer import Pgbouncer
from tests.support.server import PostgresServer
from tests.support.upgrades import forget_upgrades, make_first_tables, shape

MIGRATE = """
import sys
from holdfast.engine.open import open_engine
open_engine(sys.argv[1], schema=sys.argv[2]).migrate()
"""


@pytest.fixture
def bare_database(postgres_url: str) -> Iterator[Database]:
    """On PostgreSQL alone."""
    schema = f"test_{uuid4().hex[:12]}"
    database = Database("postgres", postgres_url, schema, [])
    yield database
    for opened in database.opened:
        opened.close()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())


@pytest.fixture
def old_database(bare_database: Database) -> Database:
    make_first_tables("postgres", bare_database.url, bare_database.schema)
    return bare_database


@contextlib.contextmanager
def snapshot(url: str) -> Iterator[psycopg.Connection]:
    """An open transaction with a snapshot, for which CREATE INDEX CONCURRENTLY waits."""
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT 1")
        yield connection


def index_of(database: Database) -> tuple[int, bool]:
    """The oid of the index that 0002 builds, and whether it is valid."""
    with psycopg.connect(database.url) as connection:
        row = connection.execute(
            "SELECT indexrelid, indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)",
            [f"{database.schema}.jobs_idempotency"],
        ).fetchone()
    assert row is not None
    return row[0], row[1]


def builders(database: Database) -> list[int]:
    with psycopg.connect(database.url) as connection:
        return [
            pid
            for (pid,) in connection.execute(
                "SELECT pid FROM pg_stat_progress_create_index WHERE relid = to_regclass(%s)"
                " AND phase LIKE 'waiting%%' AND index_relid <> 0",
                [f"{database.schema}.jobs"],
            )
        ]


@contextlib.contextmanager
def migrating_in_background(database: Database) -> Iterator[Any]:
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(database.engine(auto_migrate=False).migrate)


class Enqueuer(threading.Thread):
    """Enqueues all the time, and tells the longest time that it took."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._app = database.app()
        self._app.enqueue("t")
        self._closing = threading.Event()
        self.problems: list[Exception] = []
        self.longest = 0.0
        self.count = 0

    def run(self) -> None:
        while not self._closing.wait(0.005):
            began = time.monotonic()
            try:
                self._app.enqueue("t")
            except Exception as problem:
                self.problems.append(problem)
            self.longest = max(self.longest, time.monotonic() - began)
            self.count += 1

    def __enter__(self) -> "Enqueuer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self.join()


def test_a_migration_behind_a_long_transaction_blocks_no_other_client(
    bare_database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A caller's transaction of 6 s holds a lock on the jobs. On its own a waiting ALTER TABLE would
    make every enqueue wait behind it, for longer than the 2 s after which they are refused."""
    monkeypatch.setattr(migrator, "_LOG_EVERY", 1.0)
    app = bare_database.app()
    app.enqueue("t")  # opens it, which makes the tables
    with Enqueuer(bare_database) as enqueuer, psycopg.connect(bare_database.url) as connection:
        forget_upgrades("postgres", bare_database.url, bare_database.schema)
        app.enqueue("t", tx=connection)
        holder = connection.info.backend_pid
        with (
            caplog.at_level(logging.WARNING, "holdfast.migrate"),
            migrating_in_background(bare_database) as migration,
        ):
            until(
                lambda: enqueuer.problems or "waiting for a lock" in caplog.text,
                60,
                "the migration waits",
            )
            assert enqueuer.problems == []
            before = enqueuer.count
            time.sleep(6)  # the length of the transaction, not a wait for something
            enqueued = enqueuer.count - before
            assert not migration.done()
            connection.commit()
            assert migration.result(60) == UPGRADE
    assert enqueuer.problems == []
    assert enqueued > 20
    assert enqueuer.longest < 2.0
    assert f"behind server process {holder} " in caplog.text
    print(f"longest enqueue: {enqueuer.longest:.3f} s")


def test_after_its_timeout_the_error_names_the_blocking_client(
    old_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = old_database.engine(auto_migrate=False)
    monkeypatch.setattr(migrator, "PATIENCE", 0.5)
    with psycopg.connect(old_database.url) as connection:
        connection.execute(f"LOCK TABLE {old_database.schema}.jobs IN ROW EXCLUSIVE MODE")
        pid = connection.info.backend_pid
        with pytest.raises(
            DatabaseBusy, match=rf"behind server process {pid} .*'holdfast migrate'"
        ):
            engine.migrate()
    monkeypatch.undo()
    assert engine.migrate() == UPGRADE


def test_an_invalid_index_is_dropped_and_built_again(old_database: Database) -> None:
    engine = old_database.engine(auto_migrate=False)
    assert isinstance(engine, PostgresEngine)
    commands = migrations.commands(engine._migrations.known()[1].sql)
    with (
        snapshot(old_database.url),
        psycopg.connect(old_database.url, autocommit=True) as connection,
    ):
        connection.execute(commands[0])
        connection.execute("SET statement_timeout = '300ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(next(one for one in commands if "CONCURRENTLY" in one))
    cut_off = index_of(old_database)
    assert not cut_off[1]
    assert engine.migrate() == UPGRADE
    built = index_of(old_database)
    assert built[1]
    assert built[0] != cut_off[0]


@pytest.mark.parametrize("server_survives", [True, False])
def test_an_index_build_whose_client_was_killed_is_repeated(
    old_database: Database, server_survives: bool
) -> None:
    """The server builds on for a client that is gone: that index is awaited, not dropped. If the
    server's process is ended, too, the index is built anew."""
    with snapshot(old_database.url) as blocking:
        with subprocess.Popen(
            [sys.executable, "-c", MIGRATE, old_database.url, old_database.schema]
        ) as process:
            until(lambda: builders(old_database), 60, "the index is being built")
            process.kill()
        [orphan] = builders(old_database)
        begun = index_of(old_database)
        assert not begun[1]
        with (
            migrating_in_background(old_database) as migration,
            psycopg.connect(old_database.url, autocommit=True) as connection,
        ):
            if not server_survives:
                connection.execute("SELECT pg_terminate_backend(%s)", [orphan])
                until(lambda: builders(old_database) not in ([], [orphan]), 60, "a new build")
            blocking.rollback()
            assert migration.result(60) == UPGRADE
    built = index_of(old_database)
    assert built[1]
    assert (built[0] == begun[0]) is server_survives


def test_new_tables_do_not_wait_for_transactions(bare_database: Database) -> None:
    with snapshot(bare_database.url), migrating_in_background(bare_database) as migration:
        assert migration.result(60) == ["0001_initial", *UPGRADE]


def test_a_serializable_default_does_not_make_a_migration_wait_for_itself(
    server: PostgresServer,
) -> None:
    name = "serializable_by_default"
    url = server.create_database(name)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            f"ALTER DATABASE {name} SET default_transaction_isolation TO serializable"
        )
    database = Database("postgres", url, "holdfast", [])
    make_first_tables("postgres", url, "holdfast")
    with contextlib.closing(database.engine(auto_migrate=False)) as engine:
        assert engine.migrate() == UPGRADE
    server.drop_database(name)


@pytest.mark.parametrize("pooled", [False, True])
def test_an_engine_that_migrates_at_its_first_use_does_not_wait_for_its_callers_transaction(
    old_database: Database, monkeypatch: pytest.MonkeyPatch, pooled: bool
) -> None:
    """The transaction cannot end before the enqueue returns, and the index is not built before the
    transaction ends. No server can find that deadlock."""
    monkeypatch.setattr(migrator, "PATIENCE_AT_OPEN", 1.0)
    options: dict[str, Any] = {"schema": old_database.schema, "auto_migrate": True}
    with contextlib.ExitStack() as stack:
        url = old_database.url
        if pooled:  # there the server cannot be told to wait no longer
            url = stack.enter_context(Pgbouncer(url, size=10)).url
            options |= {"pooler": True, "database_timeout": 3}
        app = stack.enter_context(Holdfast(url, **options))
        with snapshot(old_database.url) as own:
            pid = own.info.backend_pid
            with pytest.raises(DatabaseBusy, match=rf"server process {pid} .* 'holdfast migrate'"):
                app.enqueue("t")
        until(lambda: not builders(old_database), 20, "the server gives up, or has built it")
        assert app.enqueue("t").created
    assert index_of(old_database)[1]


def test_migrations_run_through_a_transaction_pooler(old_database: Database) -> None:
    with Pgbouncer(old_database.url, size=10) as pooler:
        pooled = Database("postgres", pooler.url, old_database.schema, old_database.opened)
        engines = [pooled.engine(auto_migrate=False, pooler=True) for _ in range(3)]
        with ThreadPoolExecutor(3) as pool:
            done = list(pool.map(lambda engine: engine.migrate(), engines))
        for engine in engines:
            engine.close()
    assert sorted(done) == [[], [], UPGRADE]
    assert "probes" in str(shape("postgres", old_database.url, old_database.schema))


def test_a_timeout_behind_a_pooler_is_reported_with_the_remedy(
    server: PostgresServer,
) -> None:
    """Behind a pooler the timeouts of the session are not ours to set."""
    name = "with_a_timeout"
    url = server.create_database(name)
    make_first_tables("postgres", url, "holdfast")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} SET statement_timeout TO '500ms'")
    with Pgbouncer(url, size=10) as pooler:
        database = Database("postgres", pooler.url, "holdfast", [])
        with (
            snapshot(url),
            contextlib.closing(database.engine(auto_migrate=False, pooler=True)) as engine,
            pytest.raises(SchemaError, match="with a URL that leads directly"),
        ):
            engine.migrate()
    direct = Database("postgres", url, "holdfast", [])
    with contextlib.closing(direct.engine(auto_migrate=False)) as engine:
        assert engine.migrate() == UPGRADE
    server.drop_database(name)
