"""Recognises the transactions that callers pass as `tx=`, without importing libraries that they do not
use.

SQLAlchemy's and Django's wrappers are opened down to the driver's own connection, after making sure
that their transaction has begun, so that an engine needs to know drivers only.
"""

from collections.abc import Callable
from typing import Any, Protocol

from holdfast.engine.script import Run, Script, T
from holdfast.errors import TransactionError


class Transaction(Protocol):
    """A caller's open transaction, in which scripts can run."""

    def run(self, script: Script[T]) -> T:
        """Run a script inside the transaction; its hints reach workers when the transaction commits."""

    async def arun(self, script: Script[T]) -> T: ...


_ACCEPTED = (
    "an open sqlite3, aiosqlite, psycopg or asyncpg connection, a SQLAlchemy Connection or Session "
    "(also the async ones), or Django's connection"
)


def in_savepoint(script: Script[T], in_transaction: Callable[[], bool] = lambda: True) -> Script[T]:
    """Return a script that runs another one in a savepoint: if that fails, its writes are undone, and
    the caller's transaction goes on. `in_transaction`: whether the caller's transaction is still open;
    some errors end all of it, and nothing is left to undo then."""
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
    """Return 'package.Class' of the nearest known ancestor, e.g. 'psycopg.Connection'."""
    for ancestor in type(tx).__mro__:
        name = f"{ancestor.__module__.partition('.')[0]}.{ancestor.__name__}"
        if name in _KINDS:
            return name
    return ""


def unwrap(tx: Any) -> Any:
    """Return the driver's connection under a synchronous wrapper, after its transaction has begun."""
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
    """Do the same for asynchronous wrappers; synchronous wrappers are accepted too."""
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
    """Return the error for a `tx` that is no transaction of this database."""
    kind = f"{type(tx).__module__}.{type(tx).__qualname__}"
    return TransactionError(
        f"tx= was given a {kind}, and the jobs live in {database}: give {_ACCEPTED}, opened on that "
        "database"
    )


def needs_await(tx: object) -> TransactionError:
    """Return the error for an asynchronous connection in a synchronous method."""
    return TransactionError(
        f"tx= was given an asynchronous connection ({type(tx).__qualname__}): use the verb's async "
        "twin, e.g. 'await task.using(tx=conn).aenqueue(...)'"
    )


def outside(how: str) -> TransactionError:
    """Return the error for a connection that has no open transaction."""
    return TransactionError(
        f"tx=: the connection is outside any transaction, so the job would not commit together with "
        f"your rows: {how}, or leave tx= out"
    )


def unusable(problem: Exception) -> TransactionError:
    """Return the error for a `tx` with which its own library refuses to work."""
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
