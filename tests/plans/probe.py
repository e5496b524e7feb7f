"""Engines that explain each statement just before they run it, and undo everything at the end."""

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psycopg
from psycopg import ClientCursor
from psycopg.rows import tuple_row

from holdfast.clock import SystemClock
from holdfast.engine.postgres.connection import connection_settings
from holdfast.engine.postgres.engine import PostgresEngine
from holdfast.engine.script import Script, T, drive
from holdfast.engine.sqlite.connection import connect, perform
from holdfast.engine.sqlite.engine import PACKAGE, WORDS, SqliteEngine
from holdfast.engine.statements import Command, Statements
from tests.plans.cases import Case, indexes
from tests.plans.world import World


@dataclass
class Explained:
    """One command that ran, and what it took."""

    name: str
    options: frozenset[str]
    sql: str
    plan: str = ""
    indexes: set[str] = field(default_factory=set)
    scans: list[str] = field(default_factory=list)  #: of whole tables
    sorts: list[str] = field(default_factory=list)
    rows: int = 0  #: of jobs and attempts, looked at
    work: int = 0  #: pages touched, or steps of SQLite's machine

    def add(self, touched: Counter[str]) -> None:
        """What the server counted; where it counted less (it reads indexes alone), the plan holds."""
        self.rows = max(self.rows, touched.pop("rows", 0))
        self.scans += [what for what, count in touched.items() if count]

    def problems(self, case: Case) -> list[str]:
        found = [f"reads a whole table: {scan}" for scan in self.scans]
        found += [f"sorts: {sort}" for sort in self.sorts]
        if strange := self.indexes - indexes(self.name, self.options):
            found.append(f"walks {sorted(strange)}")
        if self.rows > case.rows:
            found.append(f"looks at {self.rows} rows, at most {case.rows}")
        return [f"{self.name} {sorted(self.options)} {text}\n{self.plan}" for text in found]


class Spied(Statements):
    """The library's statements; remembers which was asked for last."""

    asked: tuple[str, frozenset[str]] = ("", frozenset())

    def commands(self, name: str, options: frozenset[str] = frozenset()) -> tuple[Command, ...]:
        self.asked = name, options
        return super().commands(name, options)


# PostgreSQL

_Explain = Callable[[psycopg.Connection, str, Mapping[str, Any]], str]
ANALYZE = "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) "


class PostgresProbe(PostgresEngine):
    """The library's engine, on one connection whose work is rolled back."""

    def __init__(self, url: str, schema: str, *, library: bool, explain: _Explain) -> None:
        super().__init__(url, schema=schema, pooler=False, clock=SystemClock(), auto_migrate=False)
        self._statements = self.statements = Spied("holdfast.engine.postgres", self._words)
        self.explained: list[Explained] = []
        probe = self

        class Cursor(psycopg.Cursor[Any]):
            def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
                name, asked = probe.statements.asked
                # To its end, with what it writes, and back.
                with self.connection.transaction(force_rollback=True):
                    before = probe.touched()
                    plan = explain(self.connection, query, params)
                    after = probe.touched()
                explained = read_plan(name, asked, query, plan)
                explained.add(after - before)
                probe.explained.append(explained)
                return super().execute(query, params, **options)

        settings = connection_settings(pooler=not library) | {"prepare_threshold": None}
        self.connection = psycopg.connect(
            url, row_factory=tuple_row, cursor_factory=Cursor, **settings
        )

    def _on_connection(self, work: Callable[[Any], T]) -> T:
        return work(self.connection)

    def close(self) -> None:
        self.connection.close()
        super().close()

    def run_case(self, case: Case, world: World, *before: str) -> list[Explained]:
        self.explained.clear()
        self._low.clear()
        self._looked_at = 0.0
        self._pruned_to.clear()
        with self.connection.transaction(force_rollback=True):
            for command in before:
                self.plainly(command)
            case.act(self, world)
        assert {explained.name for explained in self.explained} == case.runs
        return list(self.explained)

    def touched(self) -> Counter[str]:
        """What this transaction has read so far, by the server's count: triggers too."""
        cursor = psycopg.Cursor(self.connection).execute(
            "SELECT relname, seq_scan, seq_tup_read + coalesce(idx_tup_fetch, 0)"
            "  FROM pg_stat_xact_user_tables"
            " WHERE schemaname = %s AND relname IN ('jobs', 'attempts')",
            [self.schema],
        )
        seen = Counter[str]()
        for table, scans, rows in cursor.fetchall():
            seen.update({f"scans of {table}": scans, "rows": rows})
        return seen

    def plainly(self, sql: str) -> None:
        psycopg.Cursor(self.connection).execute(sql)  # type: ignore[call-overload]


def custom(connection: psycopg.Connection, sql: str, params: Mapping[str, Any]) -> str:
    """The plan for these parameters."""
    cursor = psycopg.Cursor(connection)
    return _text(cursor.execute(ANALYZE + sql, params))  # type: ignore[call-overload]


def generic(connection: psycopg.Connection, sql: str, params: Mapping[str, Any]) -> str:
    """The plan that a prepared statement settles on: for any parameters."""
    cursor = ClientCursor(connection)
    cursor.execute("SET LOCAL plan_cache_mode = force_generic_plan")
    prepare(cursor, "probe", sql)
    try:
        return execute(cursor, "probe", sql, params)
    finally:
        cursor.execute("DEALLOCATE probe")


def prepare(cursor: psycopg.Cursor[Any], name: str, sql: str) -> None:
    numbers = {word: f"${number}" for number, word in enumerate(_names(sql), 1)}
    dollar = re.sub(r"%\((\w+)\)s", lambda match: numbers[match[1]], sql).replace("%%", "%")
    cursor.execute(f"PREPARE {name} AS {dollar}")  # type: ignore[call-overload]


def execute(
    cursor: ClientCursor[Any], name: str, sql: str, params: Mapping[str, Any], how: str = ANALYZE
) -> str:
    values = [params[word] for word in _names(sql)]
    places = f"({', '.join(['%s'] * len(values))})" if values else ""
    return _text(cursor.execute(f"{how}EXECUTE {name}{places}", values))  # type: ignore[call-overload]


def _names(sql: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"%\((\w+)\)s", sql)))


def _text(cursor: Any) -> str:
    return json.dumps(cursor.fetchone()[0][0])


def read_plan(name: str, options: frozenset[str], sql: str, text: str) -> Explained:
    """What a plan walked and how much it looked at, over all its nodes."""
    top = json.loads(text)
    found = Explained(name, options, sql, "\n".join(_outline(top["Plan"])))
    for node in _nodes(top["Plan"]):
        kind, relation = node["Node Type"], node.get("Relation Name")
        if "Index Name" in node:
            index = node["Index Name"]
            if index.startswith(("jobs_", "attempts_")):
                found.indexes.add("attempts" if index == "attempts_pkey" else index[5:])
        if kind == "Seq Scan" and relation in ("jobs", "attempts"):
            found.scans.append(relation)
        if relation in ("jobs", "attempts") and kind.endswith("Scan") or kind == "Bitmap Index Scan":
            removed = [node.get(f"Rows Removed by {why}", 0) for why in ("Filter", "Index Recheck")]
            found.rows += (node.get("Actual Rows", 0) + sum(removed)) * node.get("Actual Loops", 1)
    found.indexes = {"id" if index == "pkey" else index for index in found.indexes}
    found.work = sum(
        top["Plan"].get(f"Shared {what} Blocks", 0) for what in ("Hit", "Read")
    )
    return found


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from _nodes(child)


def _outline(node: dict[str, Any], depth: int = 0) -> Iterator[str]:
    words = [node["Node Type"], node.get("Index Name") or node.get("Relation Name") or ""]
    words += [f"{key}={node[key]}" for key in ("Index Cond", "Filter", "Sort Key") if key in node]
    words += [f"{key}={value}" for key, value in node.items() if key.startswith(("Actual R", "Actual L", "Rows R"))]
    yield "  " * depth + " ".join(map(str, words))
    for child in node.get("Plans", []):
        yield from _outline(child, depth + 1)


# SQLite

SORTS = {'claim', 'rescue'}
STRIDE = 10  # steps of SQLite's machine between two looks at the counter
_TABLES = {
    **dict.fromkeys(("holdfast_jobs", "best", "held", "live"), "jobs"),
    **dict.fromkeys(("holdfast_attempts", "holdfast_bodies"), "large"),
}
_STEP = re.compile(r"(SCAN|SEARCH) (\S+)(?: USING (?:COVERING )?(?:INDEX (\S+)|(PRIMARY KEY)))?")


class SqliteProbe(SqliteEngine):
    """The library's engine, on one connection whose work is rolled back."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, clock=SystemClock(), auto_migrate=False)
        self._statements = self.statements = Spied(PACKAGE, WORDS)
        self.explained: list[Explained] = []
        self.connection = connect(path, busy_timeout=5.0, synchronous="OFF")
        self.cursor = _Cursor(self.connection)
        self.cursor.probe = self

    def run(self, script: Callable[[], Script[T]], *, write: bool) -> T:
        return drive(script(), lambda run: perform(self.cursor, self._statements, run))

    def close(self) -> None:
        self.connection.close()
        super().close()

    def run_case(self, case: Case, world: World, *before: str) -> list[Explained]:
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            for command in before:
                self.connection.execute(command).fetchall()
            case.act(self, world)
        finally:
            self.connection.set_progress_handler(None, 0)
            self.connection.execute("ROLLBACK")
        assert {explained.name for explained in self.explained} == case.runs
        return self.explained

    def explain(self, sql: str, params: Any) -> None:
        """Explain it, and count its steps from now on, until the next: rows are fetched later."""
        self.connection.set_progress_handler(None, 0)
        lines = self.connection.execute(f"EXPLAIN QUERY PLAN {sql}", params).fetchall()
        explained = read_lines(*self.statements.asked, sql, [line[3] for line in lines])
        if self.explained and self.explained[-1].sql == sql:
            explained = self.explained[-1]  # the next member of a batch
        else:
            self.explained.append(explained)

        def count() -> None:
            explained.work += STRIDE

        self.connection.set_progress_handler(count, STRIDE)


class _Cursor(sqlite3.Cursor):
    probe: SqliteProbe

    def execute(self, sql: str, params: Any = ()) -> Self:
        self.probe.explain(sql, params)
        return super().execute(sql, params)

    def executemany(self, sql: str, params: Any) -> Self:
        self.probe.explain(sql, params[0])
        return super().executemany(sql, params)


def read_lines(name: str, options: frozenset[str], sql: str, lines: list[str]) -> Explained:
    """What a plan walks. SQLite does not tell how far: that is what counting its steps is for."""
    found = Explained(name, options, sql, "\n".join(lines))
    for line in lines:
        match = _STEP.match(line)
        if "AUTOMATIC" in line or "TEMP B-TREE" in line and name not in SORTS:
            found.scans.append(line)
        if match is None or match[2] not in _TABLES:
            continue
        if match[1] == "SCAN" and match[3] not in ("holdfast_jobs_due", "holdfast_jobs_held"):
            found.scans.append(line)
        if match[4] and _TABLES[match[2]] == "jobs":
            found.indexes.add("id")
        elif match[3] and match[3].startswith("holdfast_jobs_"):
            found.indexes.add(match[3].removeprefix("holdfast_jobs_"))
    return found
