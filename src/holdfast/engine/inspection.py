"""The verbs that read, as scripts: bounded walks of an index, never a scan of the table."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import product
from typing import Any, NamedTuple, Protocol

from holdfast.engine.script import Row, Run, Script
from holdfast.engine.values import Filter, Page, QueueInfo, Suspects, Wanted, WorkerInfo
from holdfast.ids import floor_id
from holdfast.job import Attempt, Body, Job, Status

COLUMNS = (
    "id, type, queue, status, priority, rank, key, entity_type, entity_id, attempts, max_attempts,"
    " crashes, claim_no, worker_id, timeout, created_at, updated_at, run_at, started_at,"
    " completed_at, keep_until, error, progress, message, cancel_requested, verdict, expires_at,"
    " limit_key, schedule, enabled, disabled_because, due_at, last_run_at, last_error,"
    " consecutive_failures, workflow_id, node, prune_error, idempotency_key, deaths,"
    " unreadable_since"
)
_WIDTH = COLUMNS.count(",") + 1
LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
FIRST_ID = "00000000-0000-0000-0000-000000000000"
_STATUS = {status.value: status for status in Status}  # four times as quick as Status(...)
_SCAN = 20  # rows looked at for each row of a page, where a filter has no index
_READ = 5  # the same, where payloads are read


class Reader(Protocol):
    """The part of a dialect that reading needs."""

    def moment(self, value: Any) -> datetime: ...

    def now(self) -> Any: ...


def columns_to_job(dialect: Reader, row: Row, body: Body | None = None) -> Job:
    """A job from the columns above, with its body if two more follow."""
    moment = dialect.moment
    return Job(
        id=row[0],
        type=row[1],
        queue=row[2],
        status=_STATUS[row[3]],
        priority=row[4],
        rank=row[5],
        key=row[6],
        entity_type=row[7],
        entity_id=None if row[8] is None else json.loads(row[8]),
        attempts=row[9],
        max_attempts=row[10],
        crashes=row[11],
        claim_no=row[12],
        worker_id=row[13],
        timeout=row[14],
        created_at=moment(row[15]),
        updated_at=moment(row[16]),
        run_at=moment(row[17]),
        started_at=None if row[18] is None else moment(row[18]),
        completed_at=None if row[19] is None else moment(row[19]),
        keep_until=None if row[20] is None else moment(row[20]),
        error=row[21],
        progress=row[22],
        message=row[23],
        cancel_requested=bool(row[24]),
        verdict=row[25],
        expires_at=None if row[26] is None else moment(row[26]),
        limit_key=row[27],
        schedule=row[28],
        enabled=bool(row[29]),
        disabled_because=row[30],
        due_at=None if row[31] is None else moment(row[31]),
        last_run_at=None if row[32] is None else moment(row[32]),
        last_error=row[33],
        consecutive_failures=row[34],
        workflow_id=row[35],
        node=row[36],
        prune_error=row[37],
        idempotency_key=row[38],
        deaths=row[39],
        unreadable_since=None if row[40] is None else moment(row[40]),
        body=Body(row[_WIDTH], row[_WIDTH + 1]) if len(row) > _WIDTH else body,
    )


def get(dialect: Reader, ids: Sequence[str]) -> Script[list[Job]]:
    reply = yield Run("get", {"ids": json.dumps(list(ids))})
    found = {row[0]: columns_to_job(dialect, row) for row in reply.rows}
    return [found[id] for id in dict.fromkeys(ids) if id in found]


def attempts(dialect: Reader, id: str) -> Script[list[Attempt]]:
    reply = yield Run("attempts", {"id": id})
    return [
        Attempt(
            job_id=row[0],
            claim_no=row[1],
            attempt=row[2],
            worker_id=row[3],
            started_at=None if row[4] is None else dialect.moment(row[4]),
            finished_at=dialect.moment(row[5]),
            status=Status(row[6]),
            error=row[7],
            trace=row[8],
        )
        for row in reply.rows
    ]


class LastRun(NamedTuple):
    """The newest failed run of a job."""

    trace: str | None  #: its end, where the place is told
    finished_at: datetime


def last_runs(dialect: Reader, ids: Sequence[str]) -> Script[dict[str, LastRun]]:
    reply = yield Run("last_runs", {"ids": json.dumps(list(ids))})
    return {id: LastRun(trace, dialect.moment(at)) for id, trace, at in reply.rows}


class _Walk(NamedTuple):
    """One index walked: what it gave, and the id down to which it saw everything."""

    jobs: list[Job]
    edge: str | None  #: None: it came to the end


def search(dialect: Reader, filter: Filter, after: str | None, limit: int) -> Script[Page]:
    """Several statuses are several walks, merged: `status IN (...)` would sort every row."""
    params = _search_params(filter, after) | {"limit": limit}
    walks: list[_Walk] = []
    statuses: list[Status | None] = [*sorted(filter.status)] or [None]
    for status in statuses:
        walks += [(yield from _walk(dialect, filter, status, params, limit))]
    # Below the highest edge some walk has not looked yet, so nothing below it may be shown.
    edge = max((walk.edge for walk in walks if walk.edge is not None), default=None)
    jobs = [job for walk in walks for job in walk.jobs if edge is None or job.id >= edge]
    jobs.sort(key=lambda job: job.id, reverse=True)
    if len(jobs) > limit:
        return Page(jobs[:limit], jobs[limit - 1].id)
    return Page(jobs, edge)


def _walk(
    dialect: Reader, filter: Filter, status: Status | None, params: dict[str, Any], limit: int
) -> Script[_Walk]:
    where, residue = _search_options(filter, status)
    scan = limit * (_READ if filter.payload else _SCAN) if residue else limit
    params = params | {"status": status and status.value, "scan": scan}
    reply = yield Run("search", params, options=where | residue)
    jobs = [columns_to_job(dialect, row) for row in reply.rows]
    if len(jobs) == limit:
        return _Walk(jobs, jobs[-1].id)
    if not residue:
        return _Walk(jobs, None)
    edge, seen = (yield Run("search_edge", params, options=where)).rows[0]
    return _Walk(jobs, edge if seen == scan else None)


def _search_params(filter: Filter, after: str | None) -> dict[str, Any]:
    entity_type, entity_id = filter.entity or (None, None)
    lowest, highest = filter.id or (FIRST_ID, LAST_ID)
    since = FIRST_ID if filter.since is None else floor_id(filter.since)
    until = LAST_ID if filter.until is None else floor_id(filter.until)
    return {
        "type": filter.type,
        "prefix": filter.prefix,
        "prefix_end": None if filter.prefix is None else filter.prefix + "\U0010ffff",
        "queue": filter.queue,
        "key": filter.key,
        "worker_id": filter.worker_id,
        "entity_type": entity_type,
        "entity_id": entity_id,
        "since": max(since, lowest),
        "before": min(after or LAST_ID, until, highest),
        "lowest": filter.lowest,
        "highest": filter.highest,
        "text": json.dumps(filter.text),
        "error": json.dumps(filter.error),
        "payload": json.dumps([_wanted(one) for one in filter.payload]),
    }


def _wanted(wanted: Wanted) -> dict[str, Any]:
    """The path as PostgreSQL takes it; as SQLite does, where a number is either a key or a place."""
    steps = [
        [f'."{step}"', f"[{int(step)}]"] if step.isdecimal() else [f'."{step}"']
        for step in wanted.path
    ]
    places = ["".join(["$", *choice]) for choice in product(*steps)]
    return {"path": wanted.path, "places": places, "texts": wanted.texts}


def _search_options(filter: Filter, status: Status | None) -> tuple[frozenset[str], frozenset[str]]:
    """The lines that choose the walk, and those that filter what it sees."""
    residue = {
        word
        for word, value in [
            ("queue", filter.queue),
            ("type", filter.type),
            ("prefix", filter.prefix),
            ("key", filter.key),
            ("worker", filter.worker_id),
            ("lowest", filter.lowest),
            ("highest", filter.highest),
            ("text", filter.text or None),
            ("error", filter.error or None),
            ("payload", filter.payload or None),
        ]
        if value is not None
    }
    if filter.entity is not None:
        walk = "entity"
        if status is not None:
            residue.add("status")
    elif status is None:
        walk = "newest"
    else:
        walk = "running" if status is Status.RUNNING else "listed"
    return frozenset({walk}), frozenset(residue)


def counts(statuses: Iterable[Status], cap: int) -> Script[dict[Status, int]]:
    reply = yield Run("counts", {"statuses": json.dumps(list(statuses)), "cap": cap})
    return {Status(status): number for status, number in reply.rows}


def workers(dialect: Reader) -> Script[list[WorkerInfo]]:
    reply = yield Run("workers", {})
    return [
        WorkerInfo(
            id=id,
            info=info,
            beat_no=beat_no,
            started_at=dialect.moment(started_at),
            beat_at=dialect.moment(beat_at),
            left_at=None if left_at is None else dialect.moment(left_at),
            died_at=None if died_at is None else dialect.moment(died_at),
        )
        for id, info, beat_no, started_at, beat_at, left_at, died_at in reply.rows
    ]


def queues(dialect: Reader, cap: int) -> Script[list[QueueInfo]]:
    reply = yield Run("queues", {"cap": cap, "now": dialect.now()})
    return [
        QueueInfo(
            name=name,
            depth=depth,
            paused_at=None if paused is None else dialect.moment(paused),
            resume_at=None if resume is None else dialect.moment(resume),
        )
        for name, paused, resume, depth in reply.rows
    ]


def suspects(dialect: Reader) -> Script[list[Suspects]]:
    return [Suspects(*row) for row in (yield Run("suspects", {"now": dialect.now()})).rows]
