"""PostgreSQL connections: what a session is told, how statements run, what errors mean."""

import json
from functools import cached_property
from typing import Any

import psycopg
from psycopg.rows import TupleRow, tuple_row

from holdfast.engine.script import Reply, Run
from holdfast.engine.statements import Command, Statements
from holdfast.errors import (
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    HoldfastError,
    InvalidArguments,
    KeyConflict,
    SchemaError,
)


class Connection(psycopg.Connection[TupleRow]):
    """A session of ours. It keeps one cursor: making one anew took 30 µs of each single enqueue."""

    @cached_property
    def desk(self) -> psycopg.Cursor[TupleRow]:
        return self.cursor(row_factory=tuple_row)


LOCK_TIMEOUT = 2.0
STATEMENT_TIMEOUT = 30.0

# A dead server must be noticed by the connection that talks to it, not after two hours of TCP.
_KEEPALIVE = {
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}

# Every statement walks an index, and where it wants an order, that of the index. A plan made while the
# tables are empty would prefer to read them whole, one made for any parameters to sort what it takes
# for little; and a prepared one keeps doing so until the next ANALYZE. So our sessions never may.
_SESSION = {
    "lock_timeout": f"{LOCK_TIMEOUT * 1000:.0f}",
    "statement_timeout": f"{STATEMENT_TIMEOUT * 1000:.0f}",
    "idle_in_transaction_session_timeout": "5000",
    "timezone": "UTC",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "plan_cache_mode": "force_generic_plan",  # planning a claim costs more than running one
    "jit": "off",
}


def connection_settings(*, pooler: bool) -> dict[str, Any]:
    """Keyword arguments of a connection. Behind a transaction pooler a session is not ours: nothing
    may be set on it or prepared in it."""
    settings: dict[str, Any] = {**_KEEPALIVE, "autocommit": True, "application_name": "holdfast"}
    if pooler:
        settings["prepare_threshold"] = None
    else:
        settings["prepare_threshold"] = 2
        settings["options"] = " ".join(f"-c {name}={value}" for name, value in _SESSION.items())
    return settings


def perform(connection: Connection, statements: Statements, run: Run) -> Reply:
    """Run one statement of a script; a batch travels as one JSON parameter."""
    sql, params = commands(statements, run)
    replies: list[Reply] = []
    cursor = connection.desk
    for command in sql:
        try:
            cursor.execute(command.pyformat, params)
        except (OverflowError, UnicodeError) as problem:
            raise InvalidArguments(f"PostgreSQL cannot store a value: {problem}") from problem
        rows = cursor.fetchall() if command.returns_rows else []
        replies.append(Reply(rows, cursor.rowcount))
    return replies[0]  # the first command is the verb; what follows it are consequences


def commands(statements: Statements, run: Run) -> tuple[tuple[Command, ...], dict[str, Any]]:
    """The SQL of a statement and its parameters."""
    if run.batch is None:
        return statements.commands(run.name, run.options), dict(run.params)
    single = len(run.batch) == 1
    options = run.options | {"one" if single else "many"}
    params = {**run.params, **run.batch[0]} if single else dict(run.params)
    if run.name != "insert" or not single:
        params["batch"] = json.dumps(run.batch)
    return statements.commands(run.name, options), params


def translate(problem: BaseException, where: str) -> HoldfastError:
    """Our error for a driver's, with the remedy. Goes by SQLSTATE, which all drivers give."""
    state = getattr(problem, "sqlstate", None) or getattr(problem, "pgcode", None) or ""
    text = str(problem).strip().partition("\n")[0]
    if state in ("42P01", "3F000", "42703"):  # no such table, schema, column
        return SchemaError(
            f"{text}: the tables of Holdfast are not in {where}, or are those of another release; "
            "run 'holdfast migrate', or pass auto_migrate=True"
        )
    if state == "40001":  # REPEATABLE READ or SERIALIZABLE, in a caller's transaction
        return DatabaseBusy(f"{where}: {text}; roll the transaction back and try it again")
    if state in ("55P03", "40P01", "57014"):  # lock timeout, deadlock, statement timeout
        return DatabaseBusy(
            f"{where}: {text}; another transaction holds a lock on the same job or key: end it "
            "sooner, or try again"
        )
    if state == "23505":
        return KeyConflict(f"{where}: {text}")
    if state == "25P02":
        return DatabaseError("the transaction has failed already: roll it back and begin again")
    if state.startswith("22"):  # data that the database cannot store
        return InvalidArguments(f"{where} cannot store a value: {text}")
    if state.startswith(("08", "57P", "53")) or (not state and _is_connection_error(problem)):
        return DatabaseUnavailable(f"{where}: {text}")
    return DatabaseError(f"{where}: {text}")


def _is_connection_error(problem: BaseException) -> bool:
    return isinstance(problem, psycopg.OperationalError | psycopg.InterfaceError | OSError)


def went_away(problem: BaseException) -> bool:
    """The connection is gone: what was asked may be asked again on a new one."""
    state = getattr(problem, "sqlstate", None) or ""
    return state.startswith(("08", "57P")) or (not state and _is_connection_error(problem))


def where_is(url: str) -> str:
    """The server and database of a URL, without the password."""
    try:
        info = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        return "PostgreSQL"
    host = info.get("host") or "the local server"
    return f"PostgreSQL ({host}, database {info.get('dbname') or '(default)'})"
