"""Migrations on PostgreSQL, while workers run: no statement makes others wait for long.

A statement that changes a table waits for a lock that conflicts with every reader and writer, and
all that come later wait behind it. So a statement waits 200 ms for its lock at the most, gives up,
and is tried again after a pause in which it holds nothing; indexes are built CONCURRENTLY. One
process migrates: it holds an advisory lock, for which the others wait (docs/decisions/0022).
"""

import logging
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from typing import Any

import psycopg
from psycopg.errors import DeadlockDetected, LockNotAvailable, QueryCanceled
from psycopg.rows import tuple_row

from holdfast.engine import migrations
from holdfast.engine.migrations import Migration
from holdfast.engine.postgres.connection import Connection
from holdfast.errors import DatabaseBusy, SchemaError

logger = logging.getLogger("holdfast.migrate")

COLUMNS = (
    "number integer PRIMARY KEY, title text NOT NULL, breaking boolean NOT NULL,"
    " applied_at timestamptz NOT NULL DEFAULT now()"
)
PATIENCE = 600.0  # seconds for which `migrate()` tries one statement
# Seconds for which an engine tries that migrates at its first use, including the wait for transactions
# before an index is built: a caller waits, and one of these transactions may be the caller's own.
PATIENCE_AT_OPEN = 60.0
LOCK_TIMEOUT = "200ms"
_FIRST_PAUSE, _LONGEST_PAUSE, _LOG_EVERY = 0.05, 2.0, 5.0
_BUILDS = 5  # attempts to build an index that is invalid afterwards
_INDEX = re.compile(
    r"CREATE\s+(?:UNIQUE\s+)?INDEX\s+CONCURRENTLY\s+IF\s+NOT\s+EXISTS\s+(\w+)\s+ON\s", re.IGNORECASE
)
_HEAD = """\
-- The migrations of Holdfast, in order; each is recorded in {schema}.migrations. Apply this file with
--     psql -v ON_ERROR_STOP=1 -f FILE
-- and without -1: CREATE INDEX CONCURRENTLY cannot run inside a transaction. If the database has some
-- of the migrations already, begin at the heading of the first one that is missing. If a
-- CREATE INDEX CONCURRENTLY was interrupted, drop the invalid index before you repeat it.
-- On tables in use 'holdfast migrate' is the gentler way: it never waits for a lock in front of others.

CREATE SCHEMA IF NOT EXISTS {schema};
"""
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
# Without a timeout of its own: behind this transaction the process that migrates does its work.
_NO_TIMEOUTS = """
SELECT set_config(name, '0', true) FROM pg_settings
WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')
"""
_LOCK_HOLDER = """
SELECT pid FROM pg_locks
WHERE locktype = 'advisory' AND granted AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND objid = (hashtext(%s)::bigint & 4294967295)::oid
"""
_TRANSACTIONS = """
SELECT act.pid, COALESCE(NULLIF(act.application_name, ''), act.backend_type), act.state,
    EXTRACT(epoch FROM clock_timestamp() - act.xact_start)
FROM pg_stat_activity AS act
WHERE act.xact_start IS NOT NULL AND act.pid <> pg_backend_pid() AND EXISTS (
    SELECT 1 FROM pg_locks AS held JOIN pg_class ON pg_class.oid = held.relation
    WHERE held.pid = act.pid AND held.granted AND pg_class.relnamespace = to_regnamespace(%s)
        AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
)
ORDER BY act.xact_start LIMIT 3
"""
# For whose end CREATE INDEX CONCURRENTLY waits, even if they have never used our tables.
_SNAPSHOTS = """
SELECT pid, COALESCE(NULLIF(application_name, ''), backend_type), state,
    EXTRACT(epoch FROM clock_timestamp() - xact_start)
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_xmin IS NOT NULL
    AND xact_start IS NOT NULL
ORDER BY xact_start LIMIT 3
"""
_BUILDERS = """
SELECT pid, phase, current_locker_pid FROM pg_stat_progress_create_index
WHERE index_relid = to_regclass(%s)
"""


Bounded = Callable[[Connection], AbstractContextManager[None]]


class _Asking:
    """Runs statements, each for no longer than a call may take, since a server may never answer."""

    def __init__(self, bounded: Bounded) -> None:
        self.bounded = bounded

    def rows(self, connection: Connection, sql: str, *params: Any) -> list[Any]:
        # With its parameters in the text: a query that sends them apart, or is prepared, keeps its
        # snapshot until the next one, and then an idle transaction is waited for by CREATE INDEX
        # CONCURRENTLY.
        with (
            self.bounded(connection),
            psycopg.ClientCursor(connection, row_factory=tuple_row) as cursor,
        ):
            return cursor.execute(sql, params or None, prepare=False).fetchall()

    def value(self, connection: Connection, sql: str, *params: Any) -> Any:
        rows = self.rows(connection, sql, *params)
        return rows[0][0] if rows else None

    def execute(self, connection: Connection, command: str) -> None:
        with self.bounded(connection):
            connection.execute(command, prepare=False)


class Migrations(migrations.Migrations[Connection]):
    package = "holdfast.engine.postgres"

    def __init__(
        self,
        connect: Callable[[], Connection],
        schema: str,
        where: str,
        words: Mapping[str, str],
        bounded: Bounded,
    ) -> None:
        """`bounded`: what is asked of a connection inside of it ends after the timeout of a call."""
        super().__init__(words)
        self._ask = _Asking(bounded)
        self._connect = connect
        self._schema = schema
        self._where = where

    def applied(self, connection: Connection) -> list[Migration]:
        if (
            self._ask.value(connection, "SELECT to_regclass(%s)", f"{self._schema}.migrations")
            is None
        ):
            return []
        rows = self._ask.rows(
            connection,
            f"SELECT number, title, breaking FROM {self._schema}.migrations",  # noqa: S608
        )
        return [Migration(*row) for row in rows]

    def as_sql(self) -> str:
        head = _HEAD.format(schema=self._schema)
        table = f"{self._schema}.migrations"
        known = self.known()
        return migrations.as_text(known, head=head, table=table, columns=COLUMNS, now="now()")

    def _absent(self, names: str) -> SchemaError:
        return SchemaError(
            f"the tables of Holdfast are not in {self._where}, schema {self._schema!r}, or are those "
            f"of an older release (missing: {names}): run 'holdfast migrate', or pass auto_migrate=True"
        )

    def apply(self, connection: Connection, *, at_open: bool = False) -> list[str]:
        """Apply the missing migrations; return the names of those that this call completed. `at_open`:
        for a caller that waits, and whose own transaction may be the one that is waited for."""
        if not self.missing(connection):
            return []
        patience = PATIENCE_AT_OPEN if at_open else PATIENCE
        with self._elected(patience) as guard:
            if guard is None:
                return []
            run = _Run(connection, guard, self._schema, self._ask, at_open=at_open)
            if not self.applied(connection):
                return run.create(self.known())
            return [run.upgrade(migration) for migration in self.missing(connection)]

    @contextmanager
    def _elected(self, patience: float) -> Iterator[Connection | None]:
        """Wait until no other process migrates this schema, then keep the others out of it. Yields
        None if everything has been applied meanwhile.

        The advisory lock belongs to a transaction that stays open, not to a session: behind a
        transaction pooler a session is not ours. The transaction is idle, at READ COMMITTED, and so
        has no snapshot for which CREATE INDEX CONCURRENTLY would wait. That is also why no process
        waits inside `pg_advisory_lock`: a waiting statement has a snapshot."""
        waiting = _Patience(patience)
        with closing(self._connect()) as guard:
            while True:
                self._ask.execute(guard, _BEGIN)
                self._ask.rows(guard, _NO_TIMEOUTS)
                # The key that releases before 0002 wait for, too.
                lock = "SELECT pg_try_advisory_xact_lock(hashtext(%s))"
                if self._ask.value(guard, lock, self._schema):
                    yield guard
                    self._ask.execute(guard, "COMMIT")
                    return
                self._ask.execute(guard, "ROLLBACK")
                if not self.missing(guard):
                    yield None
                    return
                waiting.pause(lambda: self._who_migrates(guard))

    def _who_migrates(self, connection: Connection) -> str:
        pid = self._ask.value(connection, _LOCK_HOLDER, self._schema)
        return f"another process (server process {pid}) migrates schema {self._schema!r}"


class _Run:
    """One run of one process, which alone migrates the schema."""

    def __init__(
        self,
        connection: Connection,
        guard: Connection,
        schema: str,
        ask: _Asking,
        *,
        at_open: bool,
    ) -> None:
        self._ask = ask
        self._connection = connection
        self._guard = guard
        self._schema = schema
        self._at_open = at_open
        self._patience = PATIENCE_AT_OPEN if at_open else PATIENCE

    def create(self, known: Sequence[Migration]) -> list[str]:
        """Make new tables, by all migrations in one transaction."""
        schema = self._schema
        commands = [f"CREATE TABLE IF NOT EXISTS {schema}.migrations ({COLUMNS})"]
        # Not if it exists: that would need the right to create one.
        if self._ask.value(self._connection, "SELECT to_regnamespace(%s)", schema) is None:
            commands.insert(0, f"CREATE SCHEMA IF NOT EXISTS {schema}")
        for migration in known:
            commands += migrations.commands_for_new_tables(migration.sql)
            commands.append(self._record(migration))
        self._transaction(f"creating schema {schema!r}", commands)
        return [migration.name for migration in known]

    def upgrade(self, migration: Migration) -> str:
        """Run the statements of one migration, each in a transaction of its own, and record it."""
        for command in [*migrations.commands(migration.sql), self._record(migration)]:
            self._ask.rows(
                self._guard, "SELECT 1"
            )  # raises if the advisory lock went with its connection
            if index := _INDEX.match(command):
                self._build(f"{self._schema}.{index[1]}", command)
            else:
                self._transaction(f"{migration.name}: {_shortened(command)}", [command])
        return migration.name

    def _record(self, migration: Migration) -> str:
        values = f"{migration.number}, '{migration.title}', {migration.breaking}"
        return f"INSERT INTO {self._schema}.migrations VALUES ({values}) ON CONFLICT DO NOTHING"  # noqa: S608

    def _transaction(self, what: str, commands: Sequence[str]) -> None:
        """Run the commands in one transaction, again and again until it gets its locks. After any other
        error the connection is closed, which rolls the transaction back."""
        patience = f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'"
        waiting = _Patience(self._patience)
        while True:
            try:
                for command in (_BEGIN, patience, *commands, "COMMIT"):
                    self._ask.execute(self._connection, command)
                return
            except (LockNotAvailable, DeadlockDetected):
                self._ask.execute(self._connection, "ROLLBACK")
                waiting.pause(lambda: f"{what}: waiting for a lock{self._transactions()}")

    def _transactions(self) -> str:
        """The oldest transactions that hold a lock on the schema's tables."""
        return self._behind(_TRANSACTIONS, self._schema)

    def _behind(self, sql: str, *params: Any) -> str:
        found = [
            f"server process {pid} ({name}, {state or 'working'}, open for {seconds:.0f} s)"
            for pid, name, state, seconds in self._ask.rows(self._guard, sql, *params)
        ]
        return f" behind {', '.join(found)}" if found else ""

    def _build(self, index: str, command: str) -> None:
        """Create an index CONCURRENTLY, and once more if an attempt was cut off in the middle."""
        for _ in range(_BUILDS):
            self._until_nobody_builds(index)
            valid = self._is_valid(index)
            if valid:
                return
            with suppress(DeadlockDetected):  # an attempt that leaves an invalid index behind
                if valid is False:
                    logger.warning("dropping the invalid index %s, left by a run cut off", index)
                    self._concurrently(index, f"DROP INDEX CONCURRENTLY IF EXISTS {index}")
                self._concurrently(index, command)
        if not self._is_valid(index):
            raise DatabaseBusy(
                f"the index {index} is still invalid after {_BUILDS} attempts to build it: run "
                "'holdfast migrate' again at a quieter time"
            )

    def _is_valid(self, index: str) -> bool | None:
        sql = "SELECT indisvalid AND indisready FROM pg_index WHERE indexrelid = to_regclass(%s)"
        found: bool | None = self._ask.value(self._connection, sql, index)
        return found

    def _until_nobody_builds(self, index: str) -> None:
        """Wait while the server builds the index for a client that was killed, as it goes on to do."""
        waiting = _Patience(self._patience)
        while self._ask.rows(self._guard, _BUILDERS, index):
            waiting.pause(lambda: self._progress(index))

    def _concurrently(self, index: str, command: str) -> None:
        """Run a command that waits for older transactions. `migrate()` waits however long that takes:
        no statement waits behind it. An engine that migrates at its first use gives up, since the
        thread that waits for it may have begun such a transaction itself."""
        connection = self._connection
        pid = self._ask.value(connection, "SELECT pg_backend_pid()")
        # Behind a pooler the next statement may have another server process, with its own settings.
        pooled = pid != connection.info.backend_pid
        if not pooled:
            wait = f"{self._patience * 1000:.0f}" if self._at_open else "0"
            self._ask.execute(connection, f"SET lock_timeout = {wait}")
            self._ask.execute(connection, "SET statement_timeout = 0")
        bound = self._ask.bounded(connection) if pooled and self._at_open else nullcontext()
        try:
            with self._telling(index), bound:
                connection.execute(command)
        except psycopg.OperationalError as problem:
            limited = not pooled and isinstance(problem, LockNotAvailable)
            if self._at_open and (limited or connection.was_cut):
                raise self._gave_up(index) from problem
            if not pooled or not isinstance(problem, LockNotAvailable | QueryCanceled):
                raise
            raise SchemaError(
                f"the index {index} could not be built through a connection pooler: a timeout ended "
                f"it ({str(problem).strip()}); run 'holdfast migrate' with a URL that leads directly "
                "to the server: it goes on where it was"
            ) from problem

    def _gave_up(self, index: str) -> DatabaseBusy:
        return DatabaseBusy(
            f"the index {index} was not built in time: older transactions have to end before"
            f"{self._behind(_SNAPSHOTS)}; end them, or run 'holdfast migrate', which waits for them, "
            "before your program starts"
        )

    @contextmanager
    def _telling(self, index: str) -> Iterator[None]:
        """Log every few seconds how far the index is, by the connection that is idle meanwhile."""
        done = threading.Event()

        def tell() -> None:
            with suppress(psycopg.Error):
                while not done.wait(_LOG_EVERY):
                    logger.warning("migration: %s", self._progress(index))

        thread = threading.Thread(target=tell, name="holdfast-migrate", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _progress(self, index: str) -> str:
        for pid, phase, locker in self._ask.rows(self._guard, _BUILDERS, index):
            behind = f", behind the transaction of server process {locker}" if locker else ""
            return f"index {index} is being built by server process {pid}: {phase}{behind}"
        return f"index {index} is being built or dropped"


class _Patience:
    """Pauses between attempts: growing, random, and not for ever."""

    def __init__(self, seconds: float) -> None:
        self._began = self._said = time.monotonic()
        self._seconds = seconds
        self._pause = _FIRST_PAUSE

    def pause(self, waiting_for: Callable[[], str]) -> None:
        now = time.monotonic()
        if now - self._began > self._seconds:
            raise DatabaseBusy(
                f"gave up after {self._seconds:g} s: {waiting_for()}; nothing is held or lost: run "
                "'holdfast migrate' again, and it goes on where it was"
            )
        if now - self._said > _LOG_EVERY:
            self._said = now
            logger.warning("migration: %s; trying again", waiting_for())
        time.sleep(self._pause * random.uniform(0.5, 1.5))  # noqa: S311
        self._pause = min(self._pause * 1.5, _LONGEST_PAUSE)


def _shortened(command: str) -> str:
    text = " ".join(command.split())
    return text if len(text) <= 60 else f"{text[:57]}..."
