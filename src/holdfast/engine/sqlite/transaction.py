"""Scripts inside a caller's SQLite transaction: a `sqlite3` connection, or aiosqlite's."""

import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from holdfast.engine.script import Reply, Run, Script, Statements, T, adrive, drive
from holdfast.engine.sqlite.connection import perform, translate
from holdfast.engine.transaction import broken, foreign, in_savepoint, kind_of, needs_await, outside


class SqliteTransaction:
    """A transaction on a `sqlite3.Connection`, used in the thread that owns the connection."""

    def __init__(self, connection: sqlite3.Connection, statements: Statements, path: Path) -> None:
        self._connection = connection
        self._statements = statements
        self._path = path

    def run(self, script: Script[T]) -> T:
        try:
            with closing(_cursor(self._connection)) as cursor:
                return drive(self._guarded(script), lambda run: self._perform(cursor, run))
        except sqlite3.Error as problem:
            raise translate(problem, self._path) from problem

    async def arun(self, script: Script[T]) -> T:
        return self.run(script)

    def _guarded(self, script: Script[T]) -> Script[T]:
        # As the module itself would do before the first write, but without the risk of a deferred
        # transaction that cannot be upgraded.
        if not self._connection.in_transaction:
            yield Run("BEGIN IMMEDIATE", {})
        return (yield from in_savepoint(script, lambda: self._connection.in_transaction))

    def _perform(self, cursor: sqlite3.Cursor, run: Run) -> Reply:
        return perform(cursor, self._statements, run)


class AiosqliteTransaction(SqliteTransaction):
    """A transaction on an `aiosqlite.Connection`, whose own thread runs each statement."""

    def __init__(self, tx: Any, statements: Statements, path: Path) -> None:
        super().__init__(tx._conn, statements, path)
        self._tx = tx

    def run(self, script: Script[T]) -> T:
        raise needs_await(self._tx)

    async def arun(self, script: Script[T]) -> T:
        in_thread = self._tx._execute
        try:
            cursor = await in_thread(_cursor, self._connection)
            try:
                return await adrive(
                    self._guarded(script), lambda run: in_thread(self._perform, cursor, run)
                )
            finally:
                await in_thread(cursor.close)
        except sqlite3.Error as problem:
            raise translate(problem, self._path) from problem


def adopt(tx: Any, statements: Statements, path: Path) -> SqliteTransaction:
    if kind_of(tx) != "sqlite3.Connection":
        raise foreign(tx, f"the SQLite file {os.fspath(path)!r}")
    try:
        _check(tx, tx, path)
    except sqlite3.ProgrammingError as problem:
        raise broken(f"the connection cannot be used ({problem})") from problem
    return SqliteTransaction(tx, statements, path)


async def aadopt(tx: Any, statements: Statements, path: Path) -> SqliteTransaction:
    if kind_of(tx) != "aiosqlite.Connection":
        return adopt(tx, statements, path)
    try:
        await tx._execute(_check, tx._conn, tx, path)
    except (sqlite3.Error, ValueError) as problem:  # ValueError: it is closed
        raise broken(f"the connection cannot be used ({problem})") from problem
    return AiosqliteTransaction(tx, statements, path)


def _check(connection: sqlite3.Connection, tx: object, path: Path) -> None:
    """Refuse a connection to another file, or outside any transaction; in the thread that owns it."""
    with closing(_cursor(connection)) as cursor:
        files = cursor.execute("PRAGMA database_list").fetchall()
    if not _same_file(files, path):
        raise foreign(tx, f"the SQLite file {os.fspath(path)!r}")
    if not connection.in_transaction and not _begins_itself(connection):
        raise outside("begin it with BEGIN IMMEDIATE")


def _begins_itself(connection: sqlite3.Connection) -> bool:
    """Return whether the module opens a transaction before the first write, which the caller
    commits."""
    autocommit = getattr(connection, "autocommit", -1)  # from Python 3.12 on; -1: the old way
    return connection.isolation_level is not None if autocommit == -1 else not autocommit


def _same_file(files: Iterable[tuple[int, str, str]], path: Path) -> bool:
    """Return whether the main database of a connection, by its `PRAGMA database_list`, is this file."""
    try:
        return any(
            file and os.path.samefile(file, path) for _, name, file in files if name == "main"
        )
    except OSError:
        return False


def _cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    """Return a cursor that gives tuples, whatever row factory the caller's connection has."""
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor
