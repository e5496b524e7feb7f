"""PostgreSQL connections: sets up their sessions, runs statements on them, and translates their
errors."""

import json
import select
from functools import cached_property
from typing import Any

import psycopg
from psycopg.rows import TupleRow, tuple_row

from holdfast import errors
from holdfast.engine.script import Command, Reply, Run, Statements


class Connection(psycopg.Connection[TupleRow]):
    """A session of ours. It keeps one cursor: making one anew took 30 µs of each single enqueue."""

    was_cut = False  #: a call on it took too long, and its socket was shut down
    used_at = 0.0  #: when it was last given back, by the monotonic clock

    @cached_property
    def main_cursor(self) -> psycopg.Cursor[TupleRow]:
        return self.cursor(row_factory=tuple_row)

    @cached_property
    def _incoming(self) -> select.poll:
        look = select.poll()
        look.register(self.fileno(), select.POLLIN)
        return look

    def has_unread_input(self) -> bool:
        """Return whether the server sent a message unasked: mostly that the session is over. The
        outcome of a statement sent now would be unknown, without need."""
        return bool(self._incoming.poll(0))


LOCK_TIMEOUT = 2.0
STATEMENT_TIMEOUT = 0.7  # of the time that a call may take: the server gives up before the client

# A dead server must be noticed by the connection that talks to it, not after two hours of TCP.
_KEEPALIVE = {
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}

# Every statement walks an index, in the order of the index if it needs one. A plan that is made while
# the tables are empty would read them whole, and a plan for any parameters would sort rows that it
# takes to be few; a prepared statement keeps such a plan until the next ANALYZE. So our sessions may do
# neither.
_SESSION = {
    "lock_timeout": f"{LOCK_TIMEOUT * 1000:.0f}",
    "idle_in_transaction_session_timeout": "5000",
    "timezone": "UTC",
    # Settings on which our statements or psycopg rely, and which a role or database may set otherwise.
    "datestyle": "ISO",
    "client_encoding": "UTF8",
    "default_transaction_isolation": r"read\ committed",
    "search_path": "pg_catalog",  # tables are named with their schema; functions are not
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "plan_cache_mode": "force_generic_plan",  # planning a claim costs more than running one
    "jit": "off",
}


def connection_settings(*, pooler: bool, timeout: float) -> dict[str, Any]:
    """Keyword arguments of a connection; `timeout`: seconds that a call may take. Behind a transaction
    pooler a session is not ours: nothing may be set on it or prepared in it."""
    settings: dict[str, Any] = {**_KEEPALIVE, "autocommit": True, "application_name": "holdfast"}
    if pooler:
        settings["prepare_threshold"] = None
    else:
        settings["prepare_threshold"] = 2
        limit = {"statement_timeout": f"{STATEMENT_TIMEOUT * timeout * 1000:.0f}"}
        words = (f"-c {name}={value}" for name, value in {**_SESSION, **limit}.items())
        settings["options"] = " ".join(words)
    return settings


def perform(connection: Connection, statements: Statements, run: Run) -> Reply:
    """Run one statement of a script; a batch travels as one JSON parameter."""
    sql, params = commands(statements, run)
    replies: list[Reply] = []
    cursor = connection.main_cursor
    for command in sql:
        try:
            cursor.execute(command.pyformat, params)
        except (OverflowError, UnicodeError) as problem:
            raise errors.InvalidArguments(
                f"PostgreSQL cannot store a value: {problem}"
            ) from problem
        rows = cursor.fetchall() if command.returns_rows else []
        replies.append(Reply(rows, cursor.rowcount))
    return replies[0]  # the first command is the verb; what follows it are consequences


def commands(statements: Statements, run: Run) -> tuple[tuple[Command, ...], dict[str, Any]]:
    """Return the SQL of a statement and its parameters."""
    if run.batch is None:
        return statements.commands(run.name, run.options), dict(run.params)
    single = len(run.batch) == 1
    options = run.options | {"one" if single else "many"}
    params = {**run.params, **run.batch[0]} if single else dict(run.params)
    if run.name != "insert" or not single:
        params["batch"] = json.dumps(run.batch)
    return statements.commands(run.name, options), params


class Cut(psycopg.OperationalError):
    """The connection broke while a command was under way, which may be committed or not."""


# SQLSTATEs of errors about the values that were given, and about nothing else: the same values would be
# refused again. Data exceptions and too large index rows; constraints, and errors of triggers.
_VALUES = ("22", "54000")
_RULES = ("23", "P0001")
# SQLSTATEs of sessions that cannot be used: a standby, or another session behind a pooler.
_READ_ONLY = "25006"
_NOT_OUR_SESSION = frozenset({"26000", "42P05"})  # no such prepared statement; it is there already


def translate(problem: BaseException, where: str) -> errors.HoldfastError:
    """Return our error for a driver's error, with the remedy, by SQLSTATE, which all drivers give. Only
    an error about the values that were given is InvalidArguments, KeyConflict or Refused; any other
    means that the database is unavailable."""
    if isinstance(problem, errors.HoldfastError):
        return problem
    state = getattr(problem, "sqlstate", None) or getattr(problem, "pgcode", None) or ""
    text = str(problem).strip().partition("\n")[0]
    if isinstance(problem, Cut):
        return errors.OutcomeUnknown(f"{where}: {text}")
    if state in ("42P01", "3F000", "42703"):  # no such table, schema, column
        return errors.SchemaError(
            f"{text}: the tables of Holdfast are not in {where}, or are those of another release; "
            "run 'holdfast migrate', or pass auto_migrate=True"
        )
    if state == "40001":  # REPEATABLE READ or SERIALIZABLE, in a caller's transaction
        return errors.DatabaseBusy(f"{where}: {text}; roll the transaction back and try it again")
    if state in ("55P03", "40P01", "57014"):  # lock timeout, deadlock, statement timeout
        return errors.DatabaseBusy(
            f"{where}: {text}; another transaction holds a lock on the same job or key: end it "
            "sooner, or try again"
        )
    if state == "23505":
        return errors.KeyConflict(f"{where}: {text}")
    if state.startswith(_RULES):
        return errors.Refused(f"{where}: a constraint or a trigger refused it: {text}")
    if state == "25P02":
        return errors.DatabaseError(
            "the transaction has failed already: roll it back and begin again"
        )
    if state.startswith(_VALUES):
        return errors.InvalidArguments(f"{where} cannot store a value: {text}")
    if state == _READ_ONLY:
        return errors.DatabaseUnavailable(
            f"{where}: {text}: this server is a standby, or read-only; connect to the primary (several "
            "hosts in the URL find it)"
        )
    if state in _NOT_OUR_SESSION:
        return errors.DatabaseUnavailable(
            f"{where}: {text}: sessions are shared, as behind pgbouncer: use Holdfast(pooler=True)"
        )
    lost = state.startswith(_GONE) or (not state and _is_connection_error(problem))
    return (errors.DatabaseUnavailable if lost or not state else errors.StorageError)(
        f"{where}: {text}"
    )


_GONE = ("08", "57P", "53300")  # connection exception, shutdown, too many connections


def _is_connection_error(problem: BaseException) -> bool:
    return isinstance(problem, psycopg.OperationalError | psycopg.InterfaceError | OSError)


def has_broken(problem: BaseException) -> bool:
    """Return whether an established session broke, so that the statement under way may be committed or
    not. A server that shuts down may report that with a SQLSTATE, and so does pgbouncer when its own
    connection is cut."""
    state = getattr(problem, "sqlstate", None) or ""
    return state.startswith(("08", "57P")) or (not state and _is_connection_error(problem))


def went_away(problem: BaseException) -> bool:
    """Return whether the session is gone or of no use: the same call may be made on a new one."""
    state = getattr(problem, "sqlstate", None)
    return state == _READ_ONLY or state in _NOT_OUR_SESSION or has_broken(problem)
