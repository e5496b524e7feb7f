"""Recognising what callers pass as `tx=`, without importing what they did not.

SQLAlchemy's and Django's wrappers are opened down to the driver's own connection, after making sure
that their transaction has begun, so that an engine needs to know drivers only.
"""

from collections.abc import Callable
from typing import Any, Protocol

from holdfast.engine.script import Run, Script, T
from holdfast.errors import TransactionError


class Transaction(Protocol):
    """A caller's open transaction, ready to carry scripts."""

    def run(self, script: Script[T]) -> T:
        """Run a script inside it; its hints reach their workers when it commits."""

    async def arun(self, script: Script[T]) -> T: ...


_ACCEPTED = (
    "an open sqlite3, aiosqlite, psycopg or asyncpg connection, a SQLAlchemy Connection or Session "
    "(also the async ones), or Django's connection"
)


def in_savepoint(script: Script[T], in_transaction: Callable[[], bool] = lambda: True) -> Script[T]:
    """A script around a script: when it fails, nothing of it stays and the caller's work goes on.
    `in_transaction`: some errors end the caller's whole transaction, and nothing is left to undo."""
    yield Run("SAVEPOINT holdfast", {})
    try:
        result = yield from script
    except BaseException:
        if in_transaction():
            yield Run("ROLLBACK TO SAVEPOINT holdfast", {})
            yield Run("RELEASE SAVEPOINT holdfast", {})
        raise
    yield Run("RELEASE SAVEPOINT holdfast", {})
    return result


def kind_of(tx: object) -> str:
    """'package.Class' of the nearest known ancestor, e.g. 'psycopg.Connection'."""
    for ancestor in type(tx).__mro__:
        name = f"{ancestor.__module__.partition('.')[0]}.{ancestor.__name__}"
        if name in _KINDS:
            return name
    return ""


def unwrap(tx: Any) -> Any:
    """The driver's connection under a synchronous wrapper, its transaction begun."""
    match kind_of(tx):
        case "sqlalchemy.scoped_session":
            return unwrap(tx())
        case "sqlalchemy.Session":
            return unwrap(_begun(tx.connection))
        case "sqlalchemy.Connection":
            if tx.closed:
                raise TransactionError("tx=: the SQLAlchemy connection is closed")
            # Through SQLAlchemy, so that it knows of the transaction that commit() shall end.
            _begun(lambda: tx.exec_driver_sql("SELECT 1"))
            return tx.connection.driver_connection
        case "django.ConnectionProxy":
            return unwrap(_django_wrapper(tx))
        case "django.BaseDatabaseWrapper":
            return _unwrap_django(tx)
        case "sqlalchemy.AsyncSession" | "sqlalchemy.AsyncConnection":
            raise needs_await(tx)
        case "sqlalchemy.async_scoped_session":
            raise needs_await(tx)
        case _:
            return tx


async def aunwrap(tx: Any) -> Any:
    """The same for asynchronous wrappers; synchronous ones are accepted too."""
    match kind_of(tx):
        case "sqlalchemy.async_scoped_session":
            return await aunwrap(tx())
        case "sqlalchemy.AsyncSession":
            return await aunwrap(await _abegun(tx.connection))
        case "sqlalchemy.AsyncConnection":
            await _abegun(lambda: tx.exec_driver_sql("SELECT 1"))
            return (await _abegun(tx.get_raw_connection)).driver_connection
        case _:
            return unwrap(tx)


def _begun(begin: Any) -> Any:
    try:
        return begin()
    except Exception as problem:
        raise unusable(problem) from problem


async def _abegun(begin: Any) -> Any:
    try:
        return await begin()
    except Exception as problem:
        raise unusable(problem) from problem


def _django_wrapper(proxy: Any) -> Any:
    return proxy._connections[proxy._alias]


def _unwrap_django(wrapper: Any) -> Any:
    if _begun(wrapper.get_autocommit):  # refuses by itself where an event loop runs
        raise TransactionError(
            "tx=: Django's connection is in autocommit mode: enqueue inside transaction.atomic()"
        )
    _begun(wrapper.validate_no_broken_transaction)
    return wrapper.connection


def foreign(tx: object, database: str) -> TransactionError:
    """The error for something that cannot carry a job of this database."""
    kind = f"{type(tx).__module__}.{type(tx).__qualname__}"
    return TransactionError(
        f"tx= was given a {kind}, and the jobs live in {database}: give {_ACCEPTED}, opened on that "
        "database"
    )


def needs_await(tx: object) -> TransactionError:
    """The error for an asynchronous connection in a synchronous verb."""
    return TransactionError(
        f"tx= was given an asynchronous connection ({type(tx).__qualname__}): use the verb's async "
        "twin, e.g. 'await task.using(tx=conn).aenqueue(...)'"
    )


def outside(how: str) -> TransactionError:
    """The error for a connection with no transaction to join."""
    return TransactionError(
        f"tx=: the connection is outside any transaction, so the job would not commit together with "
        f"your rows: {how}, or leave tx= out"
    )


def unusable(problem: Exception) -> TransactionError:
    """The error for what its own library refuses to work with."""
    return TransactionError(
        f"tx=: the transaction cannot be used ({type(problem).__name__}: {problem})"
    )


def broken(why: str) -> TransactionError:
    return TransactionError(f"tx=: {why}; roll it back and begin again")


_KINDS = {
    "sqlalchemy.scoped_session",
    "sqlalchemy.async_scoped_session",
    "sqlalchemy.Session",
    "sqlalchemy.Connection",
    "sqlalchemy.AsyncSession",
    "sqlalchemy.AsyncConnection",
    "django.ConnectionProxy",
    "django.BaseDatabaseWrapper",
    "sqlite3.Connection",
    "aiosqlite.Connection",
    "psycopg.Connection",
    "psycopg.AsyncConnection",
    "psycopg2.connection",
    "asyncpg.Connection",
    "asyncpg.PoolConnectionProxy",
}
