"""Helpers that make jobs, in any status."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

from holdfast.core.ids import new_id
from holdfast.engine.engine import Engine
from holdfast.engine.records import Retention
from holdfast.jobs import outcome
from holdfast.jobs.job import FINISHED, Job, NewJob, Status
from tests.support import engine_commands

WORKER = "host-1-a"


def new(type: str = "send", **fields: Any) -> NewJob:
    return NewJob(id=new_id(), type=type, payload=fields.pop("payload", '{"n":1}'), **fields)


def insert(engine: Engine, type: str = "send", **fields: Any) -> Job:
    return engine.insert([new(type, **fields)])[0]


def claim(engine: Engine, limit: int = 1, *, worker: str = WORKER, **options: Any) -> list[Job]:
    """Claim as a registered worker."""
    engine.beat(worker, "{}")
    queue, types = options.pop("queue", "default"), options.pop("types", ["send"])
    return engine_commands.claim_as(engine, queue, limit, worker=worker, types=types, **options)


def claim_suspect(
    engine: Engine,
    *,
    worker: str = WORKER,
    queues: Sequence[str] = ("default",),
    types: Sequence[str] = ("send",),
    limit: int = 1,
    level: int | None = None,
) -> list[Job]:
    """Claim suspect jobs as a registered worker."""
    engine.beat(worker, "{}")
    return engine.claimer.claim_suspects(queues, limit, level=level, worker=worker, types=types)


def running(engine: Engine, **fields: Any) -> Job:
    """Return a running job, as its worker claimed it."""
    made = insert(engine, **fields)
    held = claim(engine, 100, types=[made.type], queue=made.queue)
    with suppress(StopIteration):
        return next(job for job in held if job.id == made.id)
    raise AssertionError(f"{made.id} was not claimed")


def in_status(engine: Engine, status: Status, **fields: Any) -> Job:
    """Return a job in this status, reached by regular commands; `blocked` is forced."""
    match status:
        case Status.PENDING:
            return insert(engine, **fields)
        case Status.SCHEDULED:
            return insert(engine, delay=3600.0, **fields)
        case Status.RUNNING:
            return running(engine, **fields)
        case Status.CANCELLED:
            job = insert(engine, **fields)
            engine_commands.cancel(engine, [job.id], keep=60.0)
        case Status.RETRYING:
            job = running(engine, **fields)
            engine.finish([outcome.retry_later(job, "E: no", delay=3600.0)])
        case Status.COMPLETED:
            job = running(engine, **fields)
            engine.finish([outcome.completed(job, "1", keep=60.0)])
        case Status.FAILED:
            job = running(engine, **fields)
            engine.finish([outcome.failed(job, "E: no", keep=60.0)])
        case Status.BLOCKED:
            job = insert(engine, **fields)
            force(engine, job.id, "blocked")
    return engine.get([job.id])[0]


def prune(engine: Engine, keep: float = -1e9, limit: int = 10, **wanted: Any) -> int:
    """Prune, and return how many jobs were deleted. By default everything finished is old enough."""
    ages = dict.fromkeys(FINISHED, keep)
    return engine.maintenance.prune(Retention(keep=ages, **wanted), limit=limit).gone


def force(engine: Engine, id: str, status: str) -> None:
    """Write a status that no command leads to."""
    execute(engine, "UPDATE {jobs} SET status = :status WHERE id = :id", id=id, status=status)


TABLES = (
    "jobs",
    "workers",
    "queues",
    "keys",
    "attempts",
    "migrations",
    "payloads",
    "results",
    "rollups",
    "hooks",
    "workflows",
    "edges",
    "events",
    "followers",
    "logs",
    "tokens",
    "audit",
    "secrets",
)
Execute = Callable[..., list[tuple[Any, ...]]]


def execute(engine: Engine, sql: str, **params: Any) -> list[tuple[Any, ...]]:
    """Run plain SQL on a connection of its own; `{jobs}`, `{workers}`... are the tables' names."""
    with executing(engine) as run:
        return run(sql, **params)


@contextmanager
def executing(engine: Engine) -> Iterator[Execute]:
    """Yield what runs many statements like that, on one connection."""
    if hasattr(engine, "path"):
        import sqlite3

        names = {table: f"holdfast_{table}" for table in TABLES}
        with closing(sqlite3.connect(engine.path, isolation_level=None)) as embedded:
            yield lambda sql, **params: embedded.execute(sql.format(**names), params).fetchall()
        return
    import psycopg

    names = {table: f"{engine.schema}.{table}" for table in TABLES}  # type: ignore[attr-defined]
    with psycopg.connect(engine._url, autocommit=True) as connection:  # type: ignore[attr-defined]

        def run(sql: str, **params: Any) -> list[tuple[Any, ...]]:
            text = re.sub(r"(?<!:):([a-z_]+)", r"%(\1)s", sql.format(**names))
            cursor = connection.execute(text.encode(), params)
            return list(cursor.fetchall()) if cursor.description else []

        yield run
