"""Migrations on SQLite, while workers run: the write lock is held for one statement at a time.

Several processes may apply the same migration together: each statement is checked and run in one
transaction, so whichever process is first runs it, and the others go on (docs/decisions/0022).
"""

import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.engine import migrations
from holdfast.engine.migrations import Migration
from holdfast.engine.sqlite.connection import translate
from holdfast.engine.sqlite.writer import Turns
from holdfast.errors import SchemaError

TABLE = "holdfast_migrations"
COLUMNS = (
    "number INTEGER PRIMARY KEY, title TEXT NOT NULL, breaking INTEGER NOT NULL,"
    " applied_at INTEGER NOT NULL"
)
_NOW = "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"
_HEAD = """\
-- The migrations of Holdfast, in order; each is recorded in holdfast_migrations. Apply this file with
--     sqlite3 -bail jobs.db < FILE
-- If the database has some of them already, begin at the heading of the first one that is missing.
"""
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.01, 1.0  # seconds between two statements
# SQLite has no ADD COLUMN IF NOT EXISTS.
_ADD_COLUMN = re.compile(r"ALTER TABLE (\w+)\s+ADD COLUMN (\w+)\b", re.IGNORECASE)


class Migrations(migrations.Migrations[sqlite3.Connection]):
    package = "holdfast.engine.sqlite"

    def __init__(self, path: Path, words: Mapping[str, str], now: Callable[[], object]) -> None:
        super().__init__(words)
        self._path = path
        self._now = now

    def applied(self, connection: sqlite3.Connection) -> list[Migration]:
        try:
            rows = connection.execute(
                f"SELECT number, title, breaking FROM {TABLE} ORDER BY number"  # noqa: S608
            ).fetchall()
        except sqlite3.OperationalError as problem:
            if "no such table" in str(problem):
                return []
            raise translate(problem, self._path) from problem
        return [Migration(row[0], row[1], bool(row[2])) for row in rows]

    def as_sql(self) -> str:
        return migrations.as_text(self.known(), head=_HEAD, table=TABLE, columns=COLUMNS, now=_NOW)

    def _absent(self, names: str) -> SchemaError:
        return SchemaError(
            f"the tables in {str(self._path)!r} are not those of this release (missing: {names}): run "
            "'holdfast migrate'"
        )

    def apply(self, writer: sqlite3.Connection, turns: Turns) -> list[str]:
        """Apply the missing migrations; return the names of those that this call completed."""
        try:
            if not self.applied(writer) and (made := self._create(writer, turns)):
                return made
            missing = self.missing(writer)
            return [one.name for one in missing if self._upgrade(writer, turns, one)]
        except sqlite3.Error as problem:
            raise translate(problem, self._path) from problem

    def _create(self, writer: sqlite3.Connection, turns: Turns) -> list[str]:
        """Make new tables, by all migrations in one transaction."""
        known = self.known()
        with turns, _transaction(writer):
            writer.execute(f"CREATE TABLE IF NOT EXISTS {TABLE} ({COLUMNS})")
            if self.applied(writer):  # another process has made them since we looked
                return []
            for migration in known:
                for command in migrations.commands_for_new_tables(migration.sql):
                    writer.execute(command)
                self._record(writer, migration)
        return [migration.name for migration in known]

    def _upgrade(self, writer: sqlite3.Connection, turns: Turns, migration: Migration) -> bool:
        """Run the statements of one migration, each in a transaction of its own, and record it.
        Return False if another process recorded it first."""
        for command in [*migrations.commands(migration.sql), None]:
            began = time.monotonic()
            with turns, _transaction(writer):
                # Looked up each time: the other process may be at a later migration by now, and
                # a repeated statement could undo part of that.
                if any(one.number == migration.number for one in self.applied(writer)):
                    return False
                if command is None:
                    self._record(writer, migration)
                elif not _adds_known_column(writer, command):
                    writer.execute(command)
            # Processes that waited meanwhile look for the turn every 2 ms: give them time to get it.
            time.sleep(min(max(time.monotonic() - began, _SHORTEST_PAUSE), _LONGEST_PAUSE))
        return True

    def _record(self, writer: sqlite3.Connection, migration: Migration) -> None:
        writer.execute(
            f"INSERT INTO {TABLE} VALUES (?, ?, ?, ?)",  # noqa: S608
            (migration.number, migration.title, migration.breaking, self._now()),
        )


def _adds_known_column(writer: sqlite3.Connection, command: str) -> bool:
    added = _ADD_COLUMN.match(command)
    if added is None:
        return False
    columns = writer.execute(f"PRAGMA table_info({added[1]})").fetchall()
    return any(name == added[2] for _, name, *_ in columns)


@contextmanager
def _transaction(writer: sqlite3.Connection) -> Iterator[None]:
    writer.execute("BEGIN IMMEDIATE")
    try:
        yield
        writer.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            writer.execute("ROLLBACK")
        raise
