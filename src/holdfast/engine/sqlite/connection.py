"""SQLite connections: opens them, runs statements on them, and translates their errors.

Only the standard library's `sqlite3` opens the database file: a second SQLite in the process, or a
plain `open()`, would drop the locks of every connection of this process (docs/decisions/0003).
"""

import json
import os
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any

from holdfast import errors
from holdfast.engine.script import Command, Reply, Run, Statements
from holdfast.engine.sqlite.lock_holders import describe, write_lock_holders

CHUNKS = (64, 32, 16, 8, 4, 2)  # rows that one step inserts
_VALUES = re.compile(r"^VALUES (\(.*\))$(?=\s*^ON CONFLICT [^\n]*$)", re.MULTILINE | re.DOTALL)
LOWEST_VERSION = (3, 35, 0)  # RETURNING
JOURNAL_LIMIT = 64 * 1024 * 1024


def connect(
    path: Path, *, busy_timeout: float, synchronous: str, convert: bool = True
) -> sqlite3.Connection:
    """Return a connection of ours: autocommit, no automatic checkpoints (see `Checkpoints` in
    writer.py). `convert`: put a file into WAL mode that is not, which needs its write lock."""
    if sqlite3.sqlite_version_info < LOWEST_VERSION:
        raise errors.DatabaseUnavailable(
            f"SQLite {sqlite3.sqlite_version} is too old: Holdfast needs 3.35 or newer; use a newer "
            "Python build"
        )
    try:
        connection = sqlite3.connect(
            path, timeout=busy_timeout, isolation_level=None, check_same_thread=False
        )
    except sqlite3.Error as problem:
        raise errors.DatabaseUnavailable(
            f"SQLite cannot open {str(path)!r} ({problem}): check that its folder exists and can "
            "be written to"
        ) from problem
    try:
        if convert and not in_wal_mode(connection):
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("PRAGMA wal_autocheckpoint = 0").fetchone()
        connection.execute(f"PRAGMA journal_size_limit = {JOURNAL_LIMIT}").fetchone()
        connection.execute("PRAGMA temp_store = MEMORY")
    except sqlite3.Error as problem:
        connection.close()
        raise translate(problem, path) from problem
    return connection


def in_wal_mode(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal")


def perform(cursor: sqlite3.Cursor, statements: Statements, run: Run) -> Reply:
    """Run one statement of a script: once, or once for each member of its batch."""
    try:
        return _perform(cursor, statements, run)
    except (OverflowError, UnicodeError) as problem:  # not an error of SQLite, but of its driver
        raise errors.InvalidArguments(f"SQLite cannot store a value: {problem}") from problem


def _perform(cursor: sqlite3.Cursor, statements: Statements, run: Run) -> Reply:
    # The first command gives the reply; the commands after it are consequences.
    verb, *consequences = statements.commands(run.name, run.options)
    if run.batch is None:
        reply = _once(cursor, verb, run.params)
        for command in consequences:
            cursor.execute(command.sql, run.params)
        return reply
    if verb.returns_rows or run.tell:
        reply = _each(cursor, verb, run)
    else:
        reply = Reply([], _many(cursor, verb, run.batch))
    for command in consequences:
        _many(cursor, command, run.batch)
    return reply


def _once(cursor: sqlite3.Cursor, command: Command, params: Mapping[str, Any]) -> Reply:
    cursor.execute(command.sql, params)
    rows = cursor.fetchall() if command.returns_rows else []
    return Reply(rows, len(rows) if command.returns_rows else cursor.rowcount)


def _each(cursor: sqlite3.Cursor, command: Command, run: Run) -> Reply:
    """Run a command for each member of a batch; reply with the members that changed a row, or with the
    rows that they returned."""
    rows: list[Any] = []
    batch = run.batch or ()
    if "ids" in command.names:
        return _together(cursor, command, run, batch)
    values = _tuples(command)
    if run.tell and len(batch) > 1 and _all_change(cursor, command, batch):
        return Reply([(member[run.tell],) for member in batch], len(batch))
    for member in batch:
        cursor.execute(command.numbered, values(member))
        if command.returns_rows:
            rows += cursor.fetchall()
        elif cursor.rowcount > 0:
            rows.append((member[run.tell],))
    return Reply(rows, len(rows))


def _together(
    cursor: sqlite3.Cursor, command: Command, run: Run, batch: Sequence[Mapping[str, Any]]
) -> Reply:
    """Run a command once for all members that differ in nothing but their ids; then one by one if not
    all of them changed a row."""
    shared = [name for name in command.names if name != "ids" and name not in run.params]
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for member in batch:
        groups.setdefault(tuple([member[name] for name in shared]), []).append(member)
    done: Sequence[Mapping[str, Any]] = batch
    cursor.execute("SAVEPOINT whole")
    for members in groups.values():
        if cursor.execute(command.sql, _by_ids(run, members)).rowcount != len(members):
            cursor.execute("ROLLBACK TO whole")
            done = [m for m in batch if cursor.execute(command.sql, _by_ids(run, [m])).rowcount]
            break
    cursor.execute("RELEASE whole")
    return Reply([(member[run.tell],) for member in done], len(done))


def _by_ids(run: Run, members: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the parameters of a statement that takes the ids of its members as JSON, and the other
    values from the first member."""
    return {**run.params, **members[0], "ids": json.dumps([member["id"] for member in members])}


def _all_change(cursor: sqlite3.Cursor, command: Command, batch: Sequence[Any]) -> bool:
    """Try the whole batch in one call, which is quicker; undo it unless every member changed a row."""
    cursor.execute("SAVEPOINT whole")
    cursor.executemany(command.numbered, [_tuples(command)(member) for member in batch])
    all_changed = cursor.rowcount == len(batch)
    if not all_changed:
        cursor.execute("ROLLBACK TO whole")
    cursor.execute("RELEASE whole")
    return all_changed


def _many(cursor: sqlite3.Cursor, command: Command, batch: Sequence[Mapping[str, Any]]) -> int:
    """Run the whole batch in as few steps as possible: each step releases Python's lock once."""
    values = _tuples(command)
    if len(batch) == 1:
        return cursor.execute(command.numbered, values(batch[0])).rowcount
    if not _VALUES.search(command.numbered):
        return cursor.executemany(command.numbered, [values(member) for member in batch]).rowcount
    changed = start = 0
    while start < len(batch):
        size = next((size for size in CHUNKS if size <= len(batch) - start), 1)
        flat = [value for member in batch[start : start + size] for value in values(member)]
        changed += cursor.execute(_chunked(command, size), flat).rowcount
        start += size
    return changed


@lru_cache
def _tuples(command: Command) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Return a function that gives a member's parameters in the order of their numbers."""
    if len(command.names) == 1:
        name = command.names[0]
        return lambda member: (member[name],)
    return itemgetter(*command.names)


@lru_cache
def _chunked(command: Command, size: int) -> str:
    """Return the INSERT ... VALUES of one row as an insert of `size` rows, with parameters numbered on
    from row to row."""
    width = len(command.names)
    [row] = _VALUES.findall(command.numbered)
    rows = [
        re.sub(r"\?(\d+)", lambda found, by=number * width: f"?{int(found[1]) + by}", row)  # type: ignore[misc]
        for number in range(size)
    ]
    return command.numbered.replace(row, ",\n".join(rows))


# Errors after which the same call may be made again: the database answered, and cannot write now.
_STORAGE = {
    sqlite3.SQLITE_FULL: "make room on its disk",
    sqlite3.SQLITE_IOERR: "look at its disk, and at the kernel's log",
    sqlite3.SQLITE_NOMEM: "give this process more memory",
    sqlite3.SQLITE_READONLY: "let this user write to the file, its -wal and -shm, and their folder, "
    "or use the user whom they belong to",
}


def was_undone(problem: sqlite3.Error) -> bool:
    """Return whether SQLite may have rolled back the whole transaction, not only the statement that
    failed."""
    code = getattr(problem, "sqlite_errorcode", None) or 0
    return code & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM)


def translate(problem: sqlite3.Error, path: Path) -> errors.HoldfastError:
    """Return our error for an error of SQLite, with the remedy. Only an error about the values that
    were given is InvalidArguments or KeyConflict; any other means that the database is unavailable."""
    code = getattr(problem, "sqlite_errorcode", None) or 0
    text = str(problem)
    if code == sqlite3.SQLITE_BUSY_SNAPSHOT:
        return errors.DatabaseBusy(
            "the transaction read the database before it wrote, and another connection has written "
            "since: begin it with BEGIN IMMEDIATE, or enqueue before the first read"
        )
    if code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return errors.DatabaseBusy(
            f"another connection holds the write lock of {os.fspath(path)!r} and did not let go in "
            f"time{describe(write_lock_holders(path))}; if it is your own open transaction, pass it: "
            "task.using(tx=connection)"
        )
    if "no such table: holdfast" in text or "no such column" in text:
        return errors.SchemaError(
            f"{text}: the tables of Holdfast are not in {os.fspath(path)!r}, or are those of another "
            "release; run 'holdfast migrate'"
        )
    if remedy := _STORAGE.get(code & 0xFF):
        return errors.StorageError(f"SQLite cannot write to {os.fspath(path)!r} ({text}): {remedy}")
    if code in (sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY):
        return errors.KeyConflict(f"SQLite: {text}")
    if code & 0xFF == sqlite3.SQLITE_CONSTRAINT:
        return errors.Refused(f"SQLite: a constraint or a trigger refused it: {text}")
    values = (sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH)
    if code & 0xFF in values or text.startswith("Error binding parameter"):
        return errors.InvalidArguments(f"SQLite cannot store a value: {text}")
    kind = errors.StorageError if code else errors.DatabaseUnavailable
    return kind(f"SQLite cannot use {os.fspath(path)!r}: {text}")
