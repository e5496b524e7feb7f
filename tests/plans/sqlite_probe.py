"""The SQLite engine, made to explain each statement just before it runs it."""

import re
import sqlite3
from pathlib import Path
from typing import Any, Self

from holdfast.core.clock import SystemClock
from holdfast.engine.sqlite.engine import WORDS, SqliteEngine
from holdfast.engine.sqlite.writer import BEGIN
from tests.plans.cases import Case
from tests.plans.dataset import Dataset
from tests.plans.explained import Explained, RecordingStatements

STRIDE = 10  # steps of SQLite's machine between two looks at the counter
STEPS_PER_ROW = (
    90  # (two for each column) to find, sort, return or change one row, with all its indexes
)

# Statements that sort, and what: never more than they may look at.
SORTS = {
    "look": "the best of each type",
    "suspects": "the queues and types of a bounded look",
    "held_by_dead": "what dead workers held",
    "rescue": "what it is given",
    "search": "a page; what runs",
    "search_edge": "what runs",
    "queues": "the names of queues",
    "workflow_counts": "the jobs of a page of workflows",
    "parents": "whom one job waits for",
    "edges": "whom some jobs wait for",
    "workflows": "a page",
    "emit": "what it is given",
    "totals": "the roll-ups of a window, by task",
    "shares": "the roll-ups of a window, by worker",
}
# Walked from their first entry: the first is due next, or to be run alone; what runs is little.
SCANNED = (
    *("holdfast_jobs_due", "holdfast_jobs_held", "holdfast_jobs_suspect", "holdfast_jobs_disabled"),
)
# The jobs, and their other names in statements.sql.
JOBS = ("holdfast_jobs", "jobs", "head", "held", "live", "beside")
EDGES = ("holdfast_edges", "edges")
# What may be read whole: tables that stay small, parameters, and what a subquery has chosen.
LITTLE = (
    *("holdfast_workers", "dead", "holdfast_queues", "kept", "json_each", "wanted", "CONSTANT"),
    *("seen", "names", "best", "holdfast_limits", "limits", "few", "holdfast_hooks", "look"),
    *("holdfast_outbox", "holdfast_followers", "sqlite_sequence", "told"),
    *("word", "place", "given"),
)
_LINE = re.compile(
    r"(SCAN|SEARCH) (?:TABLE )?(\S+)(?: USING (?:COVERING )?(?:INDEX (\S+)|(PRIMARY KEY)))?"
)


_ENDS = {BEGIN: "SAVEPOINT verb", "COMMIT": "RELEASE verb", "ROLLBACK": "ROLLBACK TO verb"}


class SqliteProbe(SqliteEngine):
    """The library's engine, on one connection whose work is undone: its transactions become
    savepoints of ours."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, clock=SystemClock(), auto_migrate=False)
        self._statements = self.statements = RecordingStatements("sqlite", WORDS)
        self.explained: list[Explained] = []
        self.connection = sqlite3.connect(path, isolation_level=None, factory=_Connection)
        self.connection.probe = self

    def _connect(self, *, convert: bool = True) -> sqlite3.Connection:
        return self.connection

    def run_case(self, case: Case, dataset: Dataset, *before: str) -> list[Explained]:
        self.connection.plainly("BEGIN IMMEDIATE")
        try:
            for command in before:
                self.connection.plainly(command)
            case.act(self, dataset)
        finally:
            self.connection.set_progress_handler(None, 0)
            self.connection.plainly("ROLLBACK")
        assert case.runs_on("sqlite") <= {explained.name for explained in self.explained}
        for explained in self.explained:
            explained.most_work = STEPS_PER_ROW * (case.rows + 10)
        return self.explained

    def explain(self, sql: str, params: Any) -> None:
        """Explain it, and count its steps from now until the next: its rows are fetched later."""
        lines = self.connection.plainly(f"EXPLAIN QUERY PLAN {sql}", params)
        explained = read_lines(*self.statements.asked, sql, [line[3] for line in lines])
        if self.explained and self.explained[-1].sql == sql:
            explained = self.explained[-1]  # the next member of a batch
        else:
            self.explained.append(explained)

        def count() -> None:
            explained.work += STRIDE

        self.connection.set_progress_handler(count, STRIDE)


class _Connection(sqlite3.Connection):
    probe: SqliteProbe

    def cursor(self, *_: Any) -> "_Cursor":  # type: ignore[override]
        return super().cursor(_Cursor)

    def plainly(self, sql: str, params: Any = ()) -> list[Any]:
        self.set_progress_handler(None, 0)
        return sqlite3.Cursor(self).execute(sql, params).fetchall()


class _Cursor(sqlite3.Cursor):
    connection: _Connection

    def execute(self, sql: str, params: Any = ()) -> Self:
        if sql.startswith(("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")):
            self.connection.probe.explain(sql, params)
        return super().execute(_ENDS.get(sql, sql), params)

    def executemany(self, sql: str, params: Any) -> Self:
        self.connection.probe.explain(sql, params[0])
        return super().executemany(sql, params)


def read_lines(name: str, options: frozenset[str], sql: str, lines: list[str]) -> Explained:
    """What a plan walks. SQLite does not tell how far: that is what the steps are counted for."""
    found = Explained(name, options, sql, "\n".join(lines))
    for line in lines:
        match = _LINE.match(line)
        if "AUTOMATIC" in line or ("TEMP B-TREE" in line and name not in SORTS):
            found.scans.append(line)
        parameters = line.endswith("CONSTANT ROWS")  # the rows of an INSERT ... VALUES
        if match is None or parameters or match[2] in LITTLE or match[2].startswith("("):
            continue
        how, table, index, primary = match.groups()
        if how == "SCAN" and index not in SCANNED:
            found.scans.append(line)
        if primary and table in JOBS:
            found.indexes.add("id")
        elif primary and table in EDGES:
            found.indexes.add("edges")
        elif index and index.startswith("holdfast_edges_"):
            found.indexes.add(index.removeprefix("holdfast_"))
        elif index and index.startswith("holdfast_jobs_"):
            found.indexes.add(index.removeprefix("holdfast_jobs_"))
    return found
