"""The PostgreSQL engine, made to explain each statement just before it runs it."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg import ClientCursor
from psycopg.rows import tuple_row

from holdfast.core.clock import SystemClock
from holdfast.engine.postgres import connection as postgres
from holdfast.engine.postgres.connection import connection_settings
from holdfast.engine.postgres.engine import PostgresEngine
from holdfast.engine.script import Script, T
from tests.plans.cases import Case
from tests.plans.dataset import Dataset
from tests.plans.explained import Explained, RecordingStatements

GROWING = ("jobs", "attempts", "logs", "edges", "events", "audit")
EXPLAIN = "EXPLAIN (FORMAT JSON) "
ANALYZE = "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) "
_PRIMARY = {
    "pkey": "id",
    "attempts_pkey": "attempts",
    "logs_pkey": "logs",
    "edges_pkey": "edges",
    "events_pkey": "events",
    "audit_pkey": "audit",
}
_PLACE = re.compile(r"%\((\w+)\)s")

Params = Mapping[str, Any]
Connection = psycopg.Connection[Any]
Explain = Callable[[Connection, str, Params], dict[str, Any]]


class PostgresProbe(PostgresEngine):
    """The library's engine, on a connection whose work is undone. What it sends is explained by
    running it to its end, with what it writes, and back; then it runs once more, for the script.
    One engine for one case: it remembers where its claims ended."""

    def __init__(self, connection: "ProbeConnection", schema: str, explain: Explain) -> None:
        url = connection.info.dsn
        super().__init__(url, schema=schema, pooler=False, clock=SystemClock(), auto_migrate=False)
        self._statements = self.statements = RecordingStatements("postgres", self._words)
        self._explain = explain
        self.explained: list[Explained] = []
        self.connection = connection

    def _on_connection(self, work: Callable[[Any], T], *_: object, **__: object) -> T:
        return work(self.connection)

    def now(self) -> datetime:
        return datetime.now(UTC)  # asking the database for it is no statement that has a plan

    def run_vital(self, script: Callable[[], Script[T]]) -> T:
        return self.run(script, write=True)  # which is on a connection apart, otherwise

    def explain(self, sql: str, params: Params) -> None:
        with self.connection.transaction(force_rollback=True):
            before = self._touched()
            plan = self._explain(self.connection, sql, params)
            touched = self._touched() - before
        explained = read_plan(*self.statements.asked, sql, plan)
        explained.add(touched)
        self.explained.append(explained)

    def _touched(self) -> Counter[str]:
        """What this transaction has read so far, by the server's count: foreign keys too."""
        cursor = psycopg.Cursor(self.connection).execute(
            "SELECT relname, seq_scan, seq_tup_read + coalesce(idx_tup_fetch, 0)"
            "  FROM pg_stat_xact_user_tables WHERE schemaname = %s AND relname = ANY(%s)",
            [self.schema, list(GROWING)],
        )
        seen = Counter[str]()
        for table, scans, rows in cursor.fetchall():
            seen.update({table: scans, "rows": rows})
        return seen

    def run_case(self, case: Case, dataset: Dataset, *before: str) -> list[Explained]:
        self.connection.probe = self
        with self.connection.transaction(force_rollback=True):
            for command in before:
                self.connection.plainly(command)
            case.act(self, dataset)
        assert case.runs_on("postgres") <= {explained.name for explained in self.explained}
        return self.explained


class ProbeConnection(postgres.Connection):
    """A connection on which every command of the library is explained first."""

    probe: PostgresProbe

    @classmethod
    def open(cls, url: str, *, library: bool) -> "ProbeConnection":
        """With the library's session settings, or the server's own, as a pooler would give it."""
        settings = connection_settings(pooler=not library, timeout=30.0) | {
            "prepare_threshold": None
        }
        connection = cls.connect(url, row_factory=tuple_row, **settings)
        connection.cursor_factory = _Cursor
        return connection

    def plainly(self, sql: str) -> None:
        psycopg.Cursor(self).execute(sql)


class _Cursor(psycopg.Cursor[Any]):
    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        assert isinstance(self.connection, ProbeConnection)
        self.connection.probe.explain(query, params)
        return super().execute(query, params, **options)


def custom(connection: Connection, sql: str, params: Params) -> dict[str, Any]:
    """The plan for these parameters."""
    cursor = psycopg.Cursor(connection)
    return _answer(cursor.execute(ANALYZE + sql, params))


def generic(connection: Connection, sql: str, params: Params) -> dict[str, Any]:
    """The plan that a prepared statement settles on: one for any parameters."""
    cursor = ClientCursor(connection)
    cursor.execute("SET LOCAL plan_cache_mode = force_generic_plan")
    prepare(cursor, "probe", sql)
    try:
        return execute(cursor, ANALYZE, "probe", sql, params)
    finally:
        cursor.execute("DEALLOCATE probe")


def prepare(cursor: ClientCursor[Any], name: str, sql: str) -> None:
    numbers = {word: f"${number}" for number, word in enumerate(_words(sql), 1)}
    text = _PLACE.sub(lambda match: numbers[match[1]], sql).replace("%%", "%")
    cursor.execute(f"PREPARE {name} AS {text}")


def execute(
    cursor: ClientCursor[Any], how: str, name: str, sql: str, params: Params
) -> dict[str, Any]:
    values = [params[word] for word in _words(sql)]
    places = f"({', '.join(['%s'] * len(values))})" if values else ""
    text = f"{how}EXECUTE {name}{places}"
    return _answer(cursor.execute(text, values))


def _words(sql: str) -> list[str]:
    return list(dict.fromkeys(_PLACE.findall(sql)))


def _answer(cursor: Any) -> dict[str, Any]:
    top: dict[str, Any] = cursor.fetchone()[0][0]
    return top


class Kept:
    """Statements prepared once, whose plans are kept: whatever the tables were then."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._costs: dict[str, float] = {}

    def prepare(self, connection: Connection, sql: str, params: Params) -> Explained:
        cursor = ClientCursor(connection)
        name = self._names[sql] = f"kept_{len(self._names)}"
        prepare(cursor, name, sql)
        plan = execute(cursor, EXPLAIN, name, sql, params)
        self._costs[sql] = plan["Plan"]["Total Cost"]
        return read_plan("", frozenset(), sql, plan)

    def explain(self, connection: Connection, sql: str, params: Params) -> dict[str, Any]:
        plan = execute(ClientCursor(connection), ANALYZE, self._names[sql], sql, params)
        assert plan["Plan"]["Total Cost"] == self._costs[sql], "it was planned again"
        return plan


def read_plan(name: str, options: frozenset[str], sql: str, top: dict[str, Any]) -> Explained:
    """What the nodes of a plan walked, and how much they looked at."""
    found = Explained(name, options, sql, "\n".join(_outline(top["Plan"])))
    for node in _nodes(top["Plan"]):
        kind, table, index = (
            node.get(key, "") for key in ("Node Type", "Relation Name", "Index Name")
        )
        if index.startswith(GROWING):
            short = index.removeprefix("jobs_")
            found.indexes.add(_PRIMARY.get(short, short))
        if kind == "Seq Scan" and table in GROWING:
            found.scans.append(table)
        if kind.endswith("Scan") and (table in GROWING or index.startswith(GROWING)):
            counts = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
            found.rows += sum(node.get(count, 0) for count in counts) * node.get("Actual Loops", 0)
    found.cost = top["Plan"]["Total Cost"]
    found.work = sum(top["Plan"].get(f"Shared {kind} Blocks", 0) for kind in ("Hit", "Read"))
    return found


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from _nodes(child)


def _outline(node: dict[str, Any], depth: int = 0) -> Iterator[str]:
    told = ("Index Cond", "Filter", "Sort Key", "Actual Rows", "Actual Loops")
    dialect_sql = [node["Node Type"], node.get("Index Name") or node.get("Relation Name") or ""]
    dialect_sql += [
        f"{key}={node[key]}" for key in (*told, "Rows Removed by Filter") if key in node
    ]
    yield "  " * depth + " ".join(dialect_sql)
    for child in node.get("Plans", []):
        yield from _outline(child, depth + 1)
