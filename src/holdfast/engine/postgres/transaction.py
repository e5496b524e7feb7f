"""Scripts inside a caller's PostgreSQL transaction, on any of the drivers.

Each script runs in a savepoint: if it fails, its writes are undone and the caller's transaction goes
on. The wait for a key that another transaction has not committed is bounded, times come as ISO text,
and the caller's own settings are put back.
"""

import sys
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from holdfast.engine.postgres.connection import LOCK_TIMEOUT, commands, translate
from holdfast.engine.script import Command, Reply, Run, Script, Statements, T, adrive, drive
from holdfast.engine.transaction import (
    broken,
    foreign,
    in_savepoint,
    kind_of,
    needs_await,
    outside,
    unusable,
)
from holdfast.errors import HoldfastError

# What our statements depend on, as long as they run. The rest of a session is the caller's: times have
# an offset, tables a schema, and built-in functions come first in any search_path that does not say
# otherwise.
_NEEDED = {"lock_timeout": f"{LOCK_TIMEOUT * 1000:.0f}", "datestyle": "ISO"}
_BOUND = (
    "SELECT "
    + ", ".join(f"current_setting('{name}')" for name in _NEEDED)
    + "".join(f", set_config('{name}', '{value}', true)" for name, value in _NEEDED.items())
)
_UNBOUND = "SELECT " + ", ".join(f"set_config('{name}', :{name}::text, true)" for name in _NEEDED)
_FAILED = "25P02"
_FAILED_ALREADY = "its transaction has failed already"
_HOW = "begin one (psycopg: leave autocommit off; asyncpg: 'async with conn.transaction()')"


def _with_settings(script: Script[T]) -> Script[T]:
    before = (yield Run(_BOUND, {})).rows[0]
    result = yield from script  # after an error, the savepoint brings the settings back
    yield Run(_UNBOUND, dict(zip(_NEEDED, before, strict=False)))
    return result


class SyncTransaction:
    """A transaction on psycopg's or psycopg2's connection."""

    def __init__(self, connection: Any, statements: Statements, where: str) -> None:
        self._connection = connection
        self._statements = statements
        self._where = where

    def run(self, script: Script[T]) -> T:
        try:
            with self._cursor() as cursor:
                guarded = in_savepoint(_with_settings(script))
                return drive(guarded, lambda run: self._perform(cursor, run))
        except Exception as problem:
            raise self._translated(problem) from problem

    async def arun(self, script: Script[T]) -> T:
        return self.run(script)

    def _translated(self, problem: Exception) -> HoldfastError:
        if getattr(problem, "sqlstate", None) == _FAILED:  # asyncpg's connection does not tell
            return broken(_FAILED_ALREADY)
        return translate(problem, self._where)

    def _cursor(self) -> Any:
        """Return a cursor that gives tuples, whatever cursor and row factories the caller has set:
        those of psycopg2 for dicts and named tuples lose or refuse columns that have the same name."""
        if isinstance(self._connection, psycopg.Connection):
            return psycopg.Cursor(self._connection, row_factory=tuple_row)
        plain = sys.modules["psycopg2.extensions"].cursor  # it is there: the connection is its own
        return self._connection.cursor(cursor_factory=plain)

    def _perform(self, cursor: Any, run: Run) -> Reply:
        replies: list[Reply] = []
        sql, params = commands(self._statements, run)
        for command in sql:
            cursor.execute(command.pyformat, params)
            rows = cursor.fetchall() if command.returns_rows else []
            replies.append(Reply(rows, cursor.rowcount))
        return replies[0]


class AsyncTransaction(SyncTransaction):
    """A transaction on psycopg's asynchronous connection or asyncpg's; they differ in `execute`."""

    def __init__(self, *args: Any, execute: Callable[..., Any]) -> None:
        super().__init__(*args)
        self._execute = execute

    def run(self, script: Script[T]) -> T:
        raise needs_await(self._connection)

    async def arun(self, script: Script[T]) -> T:
        try:
            return await adrive(in_savepoint(_with_settings(script)), self._aperform)
        except Exception as problem:
            raise self._translated(problem) from problem

    async def _aperform(self, run: Run) -> Reply:
        sql, params = commands(self._statements, run)
        replies = [await self._execute(self._connection, command, params) for command in sql]
        first: Reply = replies[0]
        return first


async def _execute_psycopg(connection: Any, command: Command, params: Any) -> Reply:
    async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
        await cursor.execute(command.pyformat, params)
        rows = await cursor.fetchall() if command.returns_rows else []
        return Reply(rows, cursor.rowcount)


async def _execute_asyncpg(connection: Any, command: Command, params: Any) -> Reply:
    arguments = [params[name] for name in command.names]
    if not arguments and not command.returns_rows:
        await connection.execute(command.dollar)  # savepoints cannot be prepared
        return Reply([], 0)
    rows = [tuple(record) for record in await connection.fetch(command.dollar, *arguments)]
    return Reply(rows, len(rows))


def adopt(tx: Any, statements: Statements, where: str) -> SyncTransaction:
    match kind_of(tx):
        case "psycopg.Connection":
            _check_psycopg(tx)
        case "psycopg2.connection":
            if tx.closed:
                raise broken("the connection is closed")
            if tx.autocommit:
                raise outside(_HOW)
        case "psycopg.AsyncConnection" | "asyncpg.Connection" | "asyncpg.PoolConnectionProxy":
            raise needs_await(tx)
        case _:
            raise foreign(tx, where)
    return SyncTransaction(tx, statements, where)


async def aadopt(tx: Any, statements: Statements, where: str) -> SyncTransaction | AsyncTransaction:
    match kind_of(tx):
        case "psycopg.AsyncConnection":
            _check_psycopg(tx)
            return AsyncTransaction(tx, statements, where, execute=_execute_psycopg)
        case "asyncpg.Connection" | "asyncpg.PoolConnectionProxy":
            _check_asyncpg(tx)
            return AsyncTransaction(tx, statements, where, execute=_execute_asyncpg)
        case _:
            return adopt(tx, statements, where)


def _check_psycopg(tx: Any) -> None:
    if tx.closed:
        raise broken("the connection is closed")
    status = tx.info.transaction_status.name
    if status == "INERROR":
        raise broken(_FAILED_ALREADY)
    if status == "IDLE" and tx.autocommit:
        raise outside(_HOW)


def _check_asyncpg(tx: Any) -> None:
    try:
        closed, begun = tx.is_closed(), tx.is_in_transaction()
    except Exception as problem:  # a connection that was given back to its pool answers nothing
        raise unusable(problem) from problem
    if closed:
        raise broken("the connection is closed")
    if not begun:
        raise outside(_HOW)
