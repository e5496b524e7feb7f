"""Scripts inside a caller's SQLite transaction: a `sqlite3` connection, or aiosqlite's.

A savepoint around ours: when a script fails, nothing of it stays and the caller's work goes on.
"""

import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from holdfast.engine.script import Reply, Run, Script, T, adrive, drive
from holdfast.engine.sqlite.connection import by_ids, perform, translate
from holdfast.engine.statements import Statements
from holdfast.engine.transaction import broken, foreign, is_async, kind_of, outside

_BEGIN_HINT = "begin it with BEGIN IMMEDIATE"


class SqliteTransaction:
    """On a `sqlite3.Connection`, in the thread that owns it."""

    is_async = False

    def __init__(self, connection: sqlite3.Connection, statements: Statements, path: Path) -> None:
        self._connection = connection
        self._statements = statements
        self._path = path
        self._check()

    def _check(self) -> None:
        try:
            with closing(_cursor(self._connection)) as cursor:
                files = cursor.execute("PRAGMA database_list").fetchall()
            in_transaction = self._connection.in_transaction
        except sqlite3.ProgrammingError as problem:
            raise broken(f"the connection cannot be used ({problem})") from problem
        if not same_file(files, self._path):
            raise foreign(self._connection, f"the SQLite file {os.fspath(self._path)!r}")
        if not in_transaction and not begins_itself(self._connection):
            raise outside(_BEGIN_HINT)

    def run(self, script: Script[T]) -> T:
        cursor = _cursor(self._connection)
        try:
            # What the module itself would do before the first write, but without the risk of a
            # deferred transaction that cannot be upgraded.
            if not self._connection.in_transaction:
                cursor.execute("BEGIN IMMEDIATE")
            cursor.execute("SAVEPOINT holdfast")
            try:
                result = drive(script, lambda run: perform(cursor, self._statements, run))
            except BaseException:
                _undo(cursor)
                raise
            cursor.execute("RELEASE holdfast")
            return result
        except sqlite3.Error as problem:
            raise translate(problem, self._path) from problem
        finally:
            cursor.close()

    async def arun(self, script: Script[T]) -> T:
        return self.run(script)


class AiosqliteTransaction:
    """On an `aiosqlite.Connection`."""

    is_async = True

    def __init__(self, connection: Any, statements: Statements, path: Path) -> None:
        self._connection = connection
        self._statements = statements
        self._path = path

    @classmethod
    async def open(
        cls, connection: Any, statements: Statements, path: Path
    ) -> "AiosqliteTransaction":
        try:
            async with connection.cursor() as cursor:
                cursor.row_factory = None
                files = await (await cursor.execute("PRAGMA database_list")).fetchall()
                # In the thread that owns it: from Python 3.12 on that is checked.
                begins = await connection._execute(begins_itself, cursor.connection)
            in_transaction = connection.in_transaction
        except (sqlite3.Error, ValueError) as problem:
            raise broken(f"the connection cannot be used ({problem})") from problem
        if not same_file(files, path):
            raise foreign(connection, f"the SQLite file {os.fspath(path)!r}")
        if not in_transaction and not begins:
            raise outside(_BEGIN_HINT)
        return cls(connection, statements, path)

    def run(self, script: Script[T]) -> T:
        raise is_async(self._connection)

    async def arun(self, script: Script[T]) -> T:
        connection = self._connection
        try:
            if not connection.in_transaction:
                await connection.execute("BEGIN IMMEDIATE")
            await connection.execute("SAVEPOINT holdfast")
            try:
                result = await adrive(script, self._perform)
            except BaseException:
                if connection.in_transaction:
                    await connection.execute("ROLLBACK TO holdfast")
                    await connection.execute("RELEASE holdfast")
                raise
            await connection.execute("RELEASE holdfast")
            return result
        except sqlite3.Error as problem:
            raise translate(problem, self._path) from problem

    async def _perform(self, run: Run) -> Reply:
        replies: list[Reply] = []
        for command in self._statements.commands(run.name, run.options):
            rows: list[Any] = []
            count = 0
            async with self._connection.cursor() as cursor:
                cursor.row_factory = None
                for member in [run.params] if run.batch is None else run.batch:
                    whole = "ids" in command.names and run.batch is not None
                    await cursor.execute(command.sql, by_ids(run, [member]) if whole else member)
                    rows += await cursor.fetchall()
                    count += max(cursor.rowcount, 0)
                    if run.tell and cursor.rowcount > 0:
                        rows.append((member[run.tell],))
            replies.append(Reply(rows, len(rows) if command.returns_rows else count))
        return replies[0]


def begins_itself(connection: sqlite3.Connection) -> bool:
    """Does the module open a transaction before the first write, which the caller then commits?"""
    autocommit = getattr(connection, "autocommit", -1)  # from Python 3.12 on; -1: the old way
    return connection.isolation_level is not None if autocommit == -1 else not autocommit


def same_file(files: Iterable[tuple[int, str, str]], path: Path) -> bool:
    """Is the main one of these, as `PRAGMA database_list` has them, this file?"""
    try:
        return any(
            file and os.path.samefile(file, path) for _, name, file in files if name == "main"
        )
    except OSError:
        return False


def _cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    """A cursor that gives tuples, whatever row factory the caller's connection has."""
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor


def _undo(cursor: sqlite3.Cursor) -> None:
    # A full disk or an I/O error may have ended the caller's whole transaction already.
    if cursor.connection.in_transaction:
        cursor.execute("ROLLBACK TO holdfast")
        cursor.execute("RELEASE holdfast")


def adopt(tx: Any, statements: Statements, path: Path) -> SqliteTransaction:
    if kind_of(tx) != "sqlite3.Connection":
        raise foreign(tx, f"the SQLite file {os.fspath(path)!r}")
    return SqliteTransaction(tx, statements, path)


async def aadopt(
    tx: Any, statements: Statements, path: Path
) -> SqliteTransaction | AiosqliteTransaction:
    if kind_of(tx) == "aiosqlite.Connection":
        return await AiosqliteTransaction.open(tx, statements, path)
    return adopt(tx, statements, path)
