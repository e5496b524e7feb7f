"""SQLite connections: how they are opened, and what their errors mean.

Only the standard library's `sqlite3` opens the database file: a second SQLite in the process, or a
plain `open()`, would drop the locks of every connection of this process (decision 0003).
"""

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.engine.script import Reply, Run
from holdfast.engine.statements import Statements
from holdfast.errors import (
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    HoldfastError,
    InvalidArguments,
    SchemaError,
)

LOWEST_VERSION = (3, 35, 0)  # RETURNING
JOURNAL_LIMIT = 64 * 1024 * 1024


def connect(path: Path, *, busy_timeout: float, synchronous: str) -> sqlite3.Connection:
    """A connection of ours: autocommit, no automatic checkpoints (see `checkpoint.py`)."""
    if sqlite3.sqlite_version_info < LOWEST_VERSION:
        raise DatabaseUnavailable(
            f"SQLite {sqlite3.sqlite_version} is too old: Holdfast needs 3.35 or newer; use a newer "
            "Python build"
        )
    try:
        connection = sqlite3.connect(
            path, timeout=busy_timeout, isolation_level=None, check_same_thread=False
        )
    except sqlite3.Error as problem:
        raise DatabaseUnavailable(
            f"SQLite cannot open {str(path)!r} ({problem}): check that its folder exists and can "
            "be written to"
        ) from problem
    try:
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("PRAGMA wal_autocheckpoint = 0").fetchone()
        connection.execute(f"PRAGMA journal_size_limit = {JOURNAL_LIMIT}").fetchone()
        connection.execute("PRAGMA temp_store = MEMORY")
    except sqlite3.Error as problem:
        connection.close()
        raise translate(problem, path) from problem
    return connection


def perform(cursor: sqlite3.Cursor, statements: Statements, run: Run) -> Reply:
    """Run one statement of a script: once, or once for each member of its batch."""
    try:
        return _perform(cursor, statements, run)
    except (OverflowError, UnicodeError) as problem:  # not an error of SQLite, but of its driver
        raise InvalidArguments(f"SQLite cannot store a value: {problem}") from problem


def _perform(cursor: sqlite3.Cursor, statements: Statements, run: Run) -> Reply:
    replies: list[Reply] = []
    for command in statements.commands(run.name, run.options):
        if run.batch is None:
            cursor.execute(command.sql, run.params)
            rows = cursor.fetchall() if command.returns_rows else []
        elif command.returns_rows:
            rows = _each(cursor, command.sql, run.batch)
        else:
            cursor.executemany(command.sql, run.batch)
            rows = []
        replies.append(Reply(rows, len(rows) if command.returns_rows else cursor.rowcount))
    return replies[0]  # the first command is the verb; what follows it are consequences


def _each(cursor: sqlite3.Cursor, sql: str, batch: Sequence[Any]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for member in batch:
        rows += cursor.execute(sql, member).fetchall()
    return rows


def translate(problem: sqlite3.Error, path: Path) -> HoldfastError:
    """Our error for SQLite's, with the remedy."""
    code = getattr(problem, "sqlite_errorcode", None) or 0
    if code == sqlite3.SQLITE_BUSY_SNAPSHOT:
        return DatabaseBusy(
            "the transaction read the database before it wrote, and another connection has written "
            "since: begin it with BEGIN IMMEDIATE, or enqueue before the first read"
        )
    if code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return DatabaseBusy(
            f"another connection holds the write lock of {os.fspath(path)!r} and did not let go in "
            "time; if it is your own open transaction, pass it: task.using(tx=connection)"
        )
    text = str(problem)
    if "no such table: holdfast" in text or "no such column" in text:
        return SchemaError(
            f"{text}: the tables of Holdfast are not in {os.fspath(path)!r}, or are those of another "
            "release; run 'holdfast migrate'"
        )
    if code & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return DatabaseUnavailable(f"SQLite cannot use {os.fspath(path)!r}: {text}")
    if isinstance(problem, sqlite3.InterfaceError | sqlite3.ProgrammingError):
        return InvalidArguments(f"SQLite cannot store a value: {text}")
    return DatabaseError(f"SQLite: {text}")
