"""The checks of `holdfast doctor` on a PostgreSQL server: its version, its settings and its tables."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC
from itertools import groupby
from operator import itemgetter
from typing import Any

from holdfast.engine.postgres.connection import Connection
from holdfast.engine.postgres.connections import MOST
from holdfast.engine.postgres.migrator import Migrations
from holdfast.engine.records import Finding, Measures, Sizes
from holdfast.errors import HoldfastError

LOWEST_VERSION = 130000
SKEW = 2.0  # seconds
CROWDED = 0.8
_NEEDED = {
    "client_encoding": "UTF8",
    "default_transaction_isolation": "read committed",
}
OLD_TRANSACTION = 300  # seconds


class PostgresDoctor:
    def __init__(
        self,
        schema: str,
        known: Migrations,
        first_connection: Callable[[], AbstractContextManager[Connection]],
        use: Callable[[Callable[[Connection], Measures]], Measures],
    ) -> None:
        """`first_connection`: one to a server that may not answer, bounded. `use`: the engine's."""
        self._schema = schema
        self._migrations = known
        self._first_connection = first_connection
        self._use = use

    def diagnose(self) -> list[Finding]:
        first = self._first_connection()  # raises if the engine is closed
        try:
            with first as connection:
                return [
                    *_server(connection),
                    *_session(connection),
                    *_durability(connection),
                    *self._tables(connection),
                    *_upkeep(connection, f"{self._schema}.jobs"),
                    _connections(connection),
                    _clock(connection),
                ]
        except HoldfastError as problem:
            return [Finding("fail", "server", str(problem))]

    def _tables(self, connection: Connection) -> Iterator[Finding]:
        try:
            missing = self._migrations.missing(connection)
        except HoldfastError as error:
            yield Finding("fail", "schema", str(error))
            return
        names = ", ".join(migration.name for migration in missing)
        problem = f"{self._schema!r}, missing: {names}; run 'holdfast migrate'"
        well = f"{self._schema!r}: the tables are those of this release"
        yield Finding.judge(not missing, "schema", well, problem, "fail")
        if not missing:
            yield from _rights(connection, self._schema)

    def measure(self) -> Measures:
        return self._use(self._measured)

    def _measured(self, connection: Connection) -> Measures:
        tables = connection.execute(
            "SELECT relname, pg_total_relation_size(oid) FROM pg_class"
            " WHERE relnamespace = to_regnamespace(%s) AND relkind = 'r'",
            [self._schema],
        ).fetchall()
        rows = connection.execute(
            f"SELECT number, title, applied_at FROM {self._schema}.migrations ORDER BY number"  # noqa: S608
        ).fetchall()
        whole = _ask(connection, "SELECT pg_database_size(current_database())")
        return Measures(
            f"PostgreSQL {_ask(connection, 'SHOW server_version')}",
            Sizes(whole, None, None, dict(tables)),
            [(f"{row[0]:04d}_{row[1]}", row[2].astimezone(UTC)) for row in rows],
        )


def _ask(connection: Connection, sql: str, *params: Any) -> Any:
    """The one row of a query; of one column, its value."""
    row = connection.execute(sql, params).fetchall()[0]
    return row[0] if len(row) == 1 else row


def _server(connection: Connection) -> Iterator[Finding]:
    text = f"PostgreSQL {_ask(connection, 'SHOW server_version')}"
    is_tested = connection.info.server_version >= LOWEST_VERSION
    problem = f"{text}: older than 13, with which Holdfast is not tested"
    yield Finding.judge(is_tested, "server", text, problem)
    if _ask(connection, "SELECT pg_is_in_recovery()"):
        problem = "a standby, which cannot be written to: use the primary's address"
        yield Finding("fail", "role", problem)
    encoding = _ask(connection, "SHOW server_encoding")
    if encoding != "UTF8":
        problem = "texts that it cannot hold are refused; make the database with UTF8"
        yield Finding("warn", "encoding", f"{encoding}: {problem}")


def _session(connection: Connection) -> Iterator[Finding]:
    """Report settings that our sessions need and cannot be given behind a pooler. (DateStyle can:
    poolers carry it along for each client.)"""
    for name, needed in _NEEDED.items():
        told = _ask(connection, f"SHOW {name}")
        if not told.startswith(needed):
            problem = f"Holdfast needs {needed!r}, and cannot set it behind a pooler"
            remedy = f"run ALTER ROLE ... SET {name} = '{needed}'"
            yield Finding("fail", name, f"{told}: {problem}; {remedy}")


def _durability(connection: Connection) -> Iterator[Finding]:
    for setting in ("fsync", "full_page_writes"):
        is_on = _ask(connection, f"SHOW {setting}") == "on"
        problem = f"off: a crash of the machine can destroy the database; set {setting} = on"
        yield Finding.judge(is_on, setting, "on", problem, "fail")
    commit = _ask(connection, "SHOW synchronous_commit")
    problem = (
        "off: a crash of the server may take the last acknowledged jobs; set it to on for this role "
        "or database"
    )
    yield Finding.judge(commit != "off", "synchronous_commit", commit, problem)


def _rights(connection: Connection, schema: str) -> Iterator[Finding]:
    """Check the privileges on every table and sequence: a call that needs a missing one fails later."""
    lacking = connection.execute(
        "SELECT relname, wanted FROM pg_class, unnest(CASE relkind WHEN 'r'"
        " THEN ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE'] ELSE ARRAY['USAGE', 'SELECT'] END) wanted"
        " WHERE relnamespace = to_regnamespace(%s) AND relkind IN ('r', 'S')"
        " AND NOT CASE relkind WHEN 'r' THEN has_table_privilege(oid, wanted)"
        " ELSE has_sequence_privilege(oid, wanted) END ORDER BY 1, 2",
        [schema],
    ).fetchall()
    for name, group in groupby(lacking, key=itemgetter(0)):
        lacks = f"{', '.join(right for _, right in group)} on {schema}.{name}"
        problem = f"this role lacks {lacks}: GRANT them, or use the owner's role"
        yield Finding("fail", "rights", problem)


def _upkeep(connection: Connection, table: str) -> Iterator[Finding]:
    off = _ask(connection, "SHOW autovacuum") != "on"
    table_off = _ask(
        connection,
        "SELECT count(*) FROM pg_class WHERE oid = to_regclass(%s)"
        " AND reloptions @> ARRAY['autovacuum_enabled=false']",
        table,
    )
    where = "off" if off else "off for the jobs table"
    problem = f"{where}: finished jobs leave dead rows that slow every claim; set it to on"
    yield Finding.judge(not (off or table_off), "autovacuum", "on", problem)
    age = _ask(
        connection,
        "SELECT COALESCE(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float8"
        " FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    if age > OLD_TRANSACTION:
        problem = "dead rows cannot be removed meanwhile; find it in pg_stat_activity and end it"
        yield Finding(
            "warn", "transactions", f"one has been open for {age / 60:.0f} minutes: {problem}"
        )


def _connections(connection: Connection) -> Finding:
    used, most = _ask(
        connection,
        "SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),"
        " current_setting('max_connections')::int"
        " - current_setting('superuser_reserved_connections')::int",
    )
    text = f"{used} of {most} in use"
    problem = (
        f"{text}: a process of Holdfast opens up to {MOST}; raise max_connections, or use a pooler "
        "with Holdfast(pooler=True)"
    )
    enough = used <= CROWDED * most and most - used >= MOST
    return Finding.judge(enough, "connections", text, problem)


def _clock(connection: Connection) -> Finding:
    before = time.time()
    there: float = _ask(connection, "SELECT extract(epoch FROM clock_timestamp())::float8")
    after = time.time()
    skew = there - (before + after) / 2
    # What lies within the round trip cannot be told apart from its duration.
    certain = max(0.0, abs(skew) - (after - before) / 2)
    problem = (
        f"the server is {abs(skew):.1f} s {'ahead' if skew > 0 else 'behind'}: due times go by the "
        "server's clock; synchronise both by NTP"
    )
    well = f"{certain * 1000:.0f} ms from the server's"
    return Finding.judge(certain <= SKEW, "clock", well, problem)
