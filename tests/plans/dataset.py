"""The rows of a queue that has been in use for a while, written with bulk SQL, equal on both engines.

The order of age misleads the planner: waiting jobs are older than all finished ones, so that a walk of
the primary key (newest first, or oldest first) meets hundred thousands of wrong rows before the first
right one, while the statistics promise one in every dozen.
"""

import re
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

import psycopg

from holdfast.engine.open import open_engine

RUNNING = 200
QUEUES = ("default", "mail")
TYPES = ("t0", "t1", "t2", "t3", "t4")
LIVE, SILENT, DEAD = ("w0", "w1", "w2", "w3"), ("w4",), ("w5", "w6", "w7")
FORGOTTEN = 100  # dead workers without jobs
STEP = 2000  # milliseconds between the creation of two jobs: 1,200,000 of them are a month
OFTEN_FAILED = 7  # the number, among the running, of a job that failed often
MANY_ATTEMPTS = 55
MANY_LINES = 2000  # of the same job
FLOW = 20  # jobs of one workflow
MINUTES = 1500  # of roll-ups: a day, and some more
KEYS = 20_000  # of one limit; jobs wait for some of them

_COLUMNS = (
    "id, type, queue, status, priority, rank, key, entity_type, entity_id, attempts, max_attempts,"
    " claim_no, finish_no, worker_id, created_at, updated_at, run_at, started_at, completed_at,"
    " keep_until, error, suspect, limit_name, limit_key, schedule, workflow_id, node, seen,"
    " idempotency_key"
)
_ENDED = "'k' || (i % 1000)"  # the keys of finished jobs return again and again


@dataclass(frozen=True)
class Section:
    """Jobs of one status, one after the other in age. SQL over `i`, the number of a job."""

    status: str
    start: int
    count: int
    type: str = "'t' || (i % 5)"
    queue: str = "CASE WHEN i / 5 % 2 = 0 THEN 'default' ELSE 'mail' END"
    rank: str = "0"
    key: str = "CASE WHEN i % 4 = 0 THEN 'k' || i END"
    run_at: str = "0"  # microseconds from now
    worker: str = "NULL"
    claims: int = 0
    keep: str | None = None  # microseconds from now
    suspect: str = "FALSE"
    limit_name: str = "NULL"
    limit_key: str = "NULL"
    schedule: str = "NULL"
    flows: bool = False  # twenty after each other are a workflow, of which all that ended is seen


@dataclass(frozen=True)
class Dataset:
    """A plan of the rows: `size` finished jobs, and a tenth of that pending, blocked and so on."""

    size: int
    made_at: float = field(default_factory=time.time)

    @cached_property
    def sections(self) -> list[Section]:
        tenth, sections = self.size // 10, list[Section]()

        def add(status: str, count: int, **fields: object) -> None:
            start = sections[-1].start + sections[-1].count if sections else 0
            sections.append(Section(status, start, count, **fields))  # type: ignore[arg-type]

        kept = {"limit_name": "'whole'", "limit_key": "'lim=' || (i % 50)"}
        add("running", RUNNING, worker="'w' || (i % 8)", claims=1, **kept)
        add("pending", tenth // 2)
        # Of a type that the claiming worker does not know, and ahead of all others.
        add("pending", tenth // 2, type="'unknown'", queue="'default'", rank="-5", run_at="-i")
        # Suspects, to be run alone, also ahead of all others.
        add("pending", self.size // 50, rank="-9", run_at="-i", suspect="TRUE")
        add("scheduled", tenth // 2, run_at="(i % 1000 - 500) * 1000000")
        add("retrying", tenth // 2, run_at="(i % 1000 - 500) * 1000000", claims=1)
        add(
            "scheduled",
            tenth // 2,
            run_at="i * 1000000",
            schedule="'{{\"every\":60.0}}'",
            key="'r' || i",
        )
        add("blocked", tenth // 2, limit_key="'lim=' || ((i - START) / 8 % 20000)")
        add("cancelled", self.size // 50, key=_ENDED, keep="86400000000")
        add("failed", self.size * 3 // 100, key=_ENDED, claims=2, keep="(i % 2) * 100000000000 - 1")
        add("completed", self.size * 93 // 100, key=_ENDED, claims=1, keep="-1")
        # Workflows whose jobs wait for each other, and workflows that have ended.
        add("blocked", self.size // 50, key="NULL", flows=True)
        add("failed", self.size // 100, key="NULL", claims=1, keep="86400000000", flows=True)
        add("completed", self.size // 100, key="NULL", claims=1, keep="86400000000", flows=True)
        return sections

    def flows(self, status: str, count: int) -> list[str]:
        """Return ids of workflows, each of which is the id of its first job."""
        [section] = [one for one in self.sections if one.flows and one.status == status]
        first = -(-section.start // FLOW) * FLOW
        return [self.id(first + number * FLOW) for number in range(count)]

    @property
    def total(self) -> int:
        return self.sections[-1].start + self.sections[-1].count

    def first(self, status: str) -> int:
        return next(section.start for section in self.sections if section.status == status)

    def id(self, number: int) -> str:
        made = self.base + number * STEP
        return f"{made >> 16:08x}-{made & 0xFFFF:04x}-7000-8000-{number:012x}"

    def ids(self, status: str, count: int, *, every: int = 1) -> list[str]:
        start = self.first(status)
        return [self.id(start + number * every) for number in range(count)]

    @property
    def base(self) -> int:
        """The creation time of the oldest job, in milliseconds."""
        return int(self.made_at * 1000) - (self.total + 1) * STEP

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.made_at, UTC)

    def hours_ago(self, hours: float) -> datetime:
        return self.now - timedelta(hours=hours)


@dataclass(frozen=True)
class OnlyCompleted(Dataset):
    """Only completed jobs."""

    @cached_property
    def sections(self) -> list[Section]:
        return [Section("completed", 0, self.size, key="NULL", claims=1, keep="86400000000")]


@dataclass(frozen=True)
class _Dialect:
    """SQL expressions of one engine."""

    jobs: str
    id: str
    moment: Callable[[str], str]
    series: Callable[[int, int], str]


def _insert(section: Section, base: int, dialect_sql: _Dialect, *, payload: bool) -> str:
    made = dialect_sql.moment(f"({base} + i * {STEP}) * 1000")
    now = dialect_sql.moment(str(base * 1000)) if section.claims else "NULL"
    ended = now if section.keep else "NULL"
    due = dialect_sql.moment(f"{{now}} + ({section.run_at})")
    keep = "NULL" if section.keep is None else dialect_sql.moment(f"{{now}} + ({section.keep})")
    tenant = "'1'" if section.status != "completed" else "'2'"
    values = [
        *(dialect_sql.id, section.type, section.queue, f"'{section.status}'"),
        *(f"-({section.rank})", section.rank, section.key),
        "CASE i % 3 WHEN 0 THEN 'order' WHEN 1 THEN 'tenant' END",
        f"CASE i % 3 WHEN 0 THEN '' || (i % 1000) WHEN 1 THEN {tenant} END",
        *(str(section.claims), "3", str(section.claims)),
        str(section.claims if section.keep else 0),
        *(section.worker, made, made, due, now, ended, keep),
        "'E: no'" if section.status == "failed" else "NULL",
        *(section.suspect, section.limit_name),
        *(section.limit_key.replace("START", str(section.start)), section.schedule),
        re.sub(r"\bi\b", f"(i - i % {FLOW})", dialect_sql.id) if section.flows else "NULL",
        *(("'n'", f"'{section.status}'") if section.flows else ("NULL", "NULL")),
        "CASE WHEN i % 20 = 0 THEN 'i' || i END",
    ]
    last = section.start + section.count - 1
    more, body = (", payload", ", '{{\"n\": 1}}'") if payload else ("", "")
    return (
        f"INSERT INTO {dialect_sql.jobs} ({_COLUMNS}{more}) "
        f"SELECT {', '.join(values)}{body} FROM {dialect_sql.series(section.start, last)}"
    )


def fill_sqlite(path: Path, dataset: Dataset) -> None:
    """Let the library make its tables, then fill them; no statistics are gathered."""
    dialect_sql = _Dialect(
        jobs="holdfast_jobs",
        id=f"printf('%08x-%04x-7000-8000-%012x', ({dataset.base} + i * {STEP}) >> 16,"
        f" ({dataset.base} + i * {STEP}) & 65535, i)",
        moment=lambda microseconds: microseconds,
        series=lambda first, last: (
            f"(WITH RECURSIVE s (i) AS (SELECT {first} UNION ALL"
            f" SELECT i + 1 FROM s WHERE i < {last}) SELECT i FROM s)"
        ),
    )
    now = int(dataset.made_at * 1_000_000)
    with closing(open_engine(f"sqlite:///{path}", auto_migrate=True)) as engine:
        engine.migrate()
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        for setting in ("synchronous = OFF", "journal_mode = OFF", "cache_size = -400000"):
            connection.execute(f"PRAGMA {setting}").fetchall()
        connection.execute("BEGIN")
        for section in dataset.sections:
            if section.count:
                sql = _insert(section, dataset.base, dialect_sql, payload=False)
                connection.execute(sql.format(now=now))
        [(payloads,)] = connection.execute(
            "SELECT t.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c"
            " WHERE t.type = 'table' AND c.name = 'payload'"
        )
        connection.execute(
            f"INSERT INTO {payloads} (job_id, payload) SELECT id, '{{}}' FROM holdfast_jobs"
        )
        _fill_rest(connection.execute, dataset, "holdfast_", str(now))
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
    finally:
        connection.close()


def fill_postgres(connection: psycopg.Connection, schema: str, dataset: Dataset) -> None:
    """Fill the tables that the library's migrations have made; no statistics are gathered."""
    made = f"{dataset.base} + i::bigint * {STEP}"
    dialect_sql = _Dialect(
        jobs=f"{schema}.jobs",
        id=f"(lpad(to_hex({made}), 12, '0') || '70008000' || lpad(to_hex(i), 12, '0'))::uuid",
        moment=lambda microseconds: (
            f"to_timestamp(0) + ({microseconds}) * interval '1 microsecond'"
        ),
        series=lambda first, last: f"generate_series({first}::bigint, {last}) AS s (i)",
    )
    now = int(dataset.made_at * 1_000_000)
    connection.execute("SET synchronous_commit = off")
    for section in dataset.sections:
        if section.count:
            sql = _insert(section, dataset.base, dialect_sql, payload=True)
            connection.execute(sql.format(now=now))
    moment = f"(to_timestamp(0) + {now} * interval '1 microsecond')"
    _fill_rest(connection.execute, dataset, f"{schema}.", moment)


def _fill_rest(execute: Callable[[str], object], dataset: Dataset, prefix: str, now: str) -> None:
    execute(
        f"INSERT INTO {prefix}limits (name, concurrency, keyed, tasks, updated_at) VALUES"
        f" ('whole', 300, FALSE, '[]', {now}), ('lim', 1, TRUE, '[]', {now})"
    )
    keys = [("whole", "whole"), *((f"lim={number}", "lim") for number in range(KEYS))]
    execute(
        f"INSERT INTO {prefix}keys (key, name) VALUES "
        + ", ".join(f"('{key}', '{name}')" for key, name in keys)
    )
    flows = f"FROM {prefix}jobs WHERE workflow_id IS NOT NULL"
    execute(
        f"INSERT INTO {prefix}workflows (id, name, status, created_at, finished_at)"
        f" SELECT workflow_id, 'w', 'running', {now}, NULL {flows} AND status = 'blocked'"
        " GROUP BY workflow_id"
        f" UNION ALL SELECT workflow_id, 'w', MIN(status), {now}, {now} {flows}"
        " AND status <> 'blocked' GROUP BY workflow_id"
    )
    execute(
        f"INSERT INTO {prefix}edges (child_id, parent_id, place, policy, outcome)"
        " SELECT id, workflow_id, 0, 'cancel', CASE WHEN status <> 'blocked' THEN status END"
        f" {flows} AND id <> workflow_id"
    )
    workers = [
        *[(name, "NULL") for name in (*LIVE, *SILENT)],
        *[(name, now) for name in (*DEAD, *(f"gone-{number}" for number in range(FORGOTTEN)))],
    ]
    execute(
        f"INSERT INTO {prefix}workers (id, info, beat_no, started_at, beat_at, died_at) VALUES "
        + ", ".join(f"('{name}', '{{}}', 1, {now}, {now}, {died})" for name, died in workers)
    )
    attempts = (
        f"INSERT INTO {prefix}attempts (job_id, claim_no, attempt, finished_at, status, error)"
    )
    for claim_no in (1, 2):
        execute(
            f"{attempts} SELECT id, {claim_no}, {claim_no}, {now}, 'retrying', 'E: no'"
            f" FROM {prefix}jobs WHERE status = 'failed'"
        )
    tired = ", ".join(
        f"('{dataset.id(OFTEN_FAILED)}', {-number}, 1, {now}, 'retrying', 'E: no')"
        for number in range(MANY_ATTEMPTS)
    )
    execute(f"{attempts} VALUES {tired}")
    logs = f"INSERT INTO {prefix}logs (job_id, claim_no, attempt, line_no, at, level, text)"
    for line_no in (1, 2):
        execute(
            f"{logs} SELECT id, 1, 1, {line_no}, {now}, 'info', 'x'"
            f" FROM {prefix}jobs WHERE status = 'failed'"
        )
    many = ", ".join(
        f"('{dataset.id(OFTEN_FAILED)}', {number // 50 + 100}, 1, {number % 50}, {now}, 'info', 'x')"
        for number in range(MANY_LINES)
    )
    execute(f"{logs} VALUES {many}")
    _fill_rollups(execute, dataset, prefix)
    execute(
        f"INSERT INTO {prefix}audit (id, at, actor, role, action, detail)"
        f" SELECT id, {now}, 'ann', 'admin', 'jobs.retry', '{{}}' FROM {prefix}jobs"
        f" ORDER BY id LIMIT {dataset.size // 50}"
    )
    execute(
        f"INSERT INTO {prefix}events (at, job_id, kind, data) SELECT {now}, id, 'enqueued', '{{}}'"
        f" FROM {prefix}jobs LIMIT {dataset.size // 50}"
    )


def _fill_rollups(execute: Callable[[str], object], dataset: Dataset, prefix: str) -> None:
    """A row of each task and worker for every minute, up to the one before the present one."""
    moment = "{} * 1000000" if prefix == "holdfast_" else "to_timestamp({})"
    figures = """5, 1, 0, 1, 1.5, 2.5, '{"3":7}', '{"9":7}'"""
    latest = int(dataset.made_at) // 60
    for start in range(0, MINUTES, 100):
        rows = [
            f"({moment.format((latest - ago) * 60)}, '{type}', 'default', '{worker}', {figures})"
            for ago in range(start + 1, start + 101)
            for type in TYPES
            for worker in LIVE
        ]
        execute(f"INSERT INTO {prefix}rollups VALUES {', '.join(rows)}")
