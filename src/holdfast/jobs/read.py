"""Scripts that read jobs, queues and workers: bounded walks of an index, never a scan of the table."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import product
from typing import Any, NamedTuple

from holdfast.core.ids import floor_id
from holdfast.engine.dialect import Dialect
from holdfast.engine.records import Filter, Page, QueueInfo, Suspects, Wanted, WorkerInfo
from holdfast.engine.script import Run, Script
from holdfast.jobs.job import Attempt, Job, Status
from holdfast.jobs.rows import columns_to_job, decoder

LAST_ID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
FIRST_ID = "00000000-0000-0000-0000-000000000000"
_SCAN = 20  # rows that are searched for each row of a page, if no index serves the filter
_READ = 5  # rows that are searched for each row of a page, if payloads are read

# Fields of a filter, parameters of the search, and words of its optional lines.
_COMPARED = ("queue", "type", "prefix", "key", "worker_id", "lowest", "highest")
_RESIDUE = (*_COMPARED, "text", "error", "payload")

_attempt = decoder(
    Attempt,
    "job_id, claim_no, attempt, worker_id, started_at, finished_at, status, error, trace",
)
_worker = decoder(WorkerInfo, "id, info, beat_no, started_at, beat_at, left_at, died_at")
_queue = decoder(QueueInfo, "name, paused_at, resume_at, depth")


def get(dialect: Dialect, ids: Sequence[str]) -> Script[list[Job]]:
    """Return the jobs with these ids that exist, with their bodies."""
    reply = yield Run("get", {"ids": json.dumps(list(ids))})
    found = {row[0]: columns_to_job(dialect, row) for row in reply.rows}
    return [found[id] for id in dict.fromkeys(ids) if id in found]


def attempts(dialect: Dialect, id: str) -> Script[list[Attempt]]:
    """Return the failed runs of a job, the newest first."""
    reply = yield Run("attempts", {"id": id})
    return [_attempt(dialect.moment, row) for row in reply.rows]


class LastRun(NamedTuple):
    """The newest failed run of a job."""

    trace: str | None  #: the end of the traceback, which names the place
    finished_at: datetime


def last_runs(dialect: Dialect, ids: Sequence[str]) -> Script[dict[str, LastRun]]:
    """Return the newest failed run of each of these jobs."""
    reply = yield Run("last_runs", {"ids": json.dumps(list(ids))})
    return {id: LastRun(trace, dialect.moment(at)) for id, trace, at in reply.rows}


class _Walk(NamedTuple):
    """The result of walking one index: the jobs found, and the id down to which it looked."""

    jobs: list[Job]
    edge: str | None  #: None: down to the end


def search(
    dialect: Dialect, filter: Filter, after: str | None = None, limit: int = 100
) -> Script[Page]:
    """Return a page of jobs that match, the newest first, without bodies. Each status is a walk of its
    own, and the walks are merged: `status IN (...)` would sort every row."""
    params = _search_params(filter, after) | {"limit": limit}
    walks: list[_Walk] = []
    statuses: list[Status | None] = [*sorted(filter.status)] or [None]
    for status in statuses:
        walks += [(yield from _walk(dialect, filter, status, params, limit))]
    # A walk has not searched below its edge: jobs below the highest edge belong to the next page.
    edge = max((walk.edge for walk in walks if walk.edge is not None), default=None)
    jobs = [job for walk in walks for job in walk.jobs if edge is None or job.id >= edge]
    jobs.sort(key=lambda job: job.id, reverse=True)
    if len(jobs) > limit:
        return Page(jobs[:limit], jobs[limit - 1].id)
    return Page(jobs, edge)


def _walk(
    dialect: Dialect, filter: Filter, status: Status | None, params: dict[str, Any], limit: int
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
    first, last = filter.id or (FIRST_ID, LAST_ID)
    since = FIRST_ID if filter.since is None else floor_id(filter.since)
    until = LAST_ID if filter.until is None else floor_id(filter.until)
    return {
        **{name: getattr(filter, name) for name in _COMPARED},
        "prefix_end": None if filter.prefix is None else filter.prefix + "\U0010ffff",
        "entity_type": entity_type,
        "entity_id": entity_id,
        "since": max(since, first),
        "before": min(after or LAST_ID, until, last),
        "text": json.dumps(filter.text),
        "error": json.dumps(filter.error),
        "payload": json.dumps([_wanted(one) for one in filter.payload]),
    }


def _wanted(wanted: Wanted) -> dict[str, Any]:
    """Return the path for PostgreSQL, and the paths for SQLite, where a number is a key or an index."""
    steps = [
        [f'."{step}"', f"[{int(step)}]"] if step.isdecimal() else [f'."{step}"']
        for step in wanted.path
    ]
    places = ["".join(["$", *choice]) for choice in product(*steps)]
    return {"path": wanted.path, "places": places, "texts": wanted.texts}


def _search_options(filter: Filter, status: Status | None) -> tuple[frozenset[str], frozenset[str]]:
    """Return the optional lines that choose the index to walk, and those that filter its rows."""
    residue = {name for name in _RESIDUE if getattr(filter, name) not in (None, ())}
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
    """Return the number of jobs in each of these statuses, counted up to a cap."""
    reply = yield Run("counts", {"statuses": json.dumps(list(statuses)), "cap": cap})
    return {Status(status): number for status, number in reply.rows}


def workers(dialect: Dialect) -> Script[list[WorkerInfo]]:
    """Return all workers that have a row."""
    reply = yield Run("workers", {})
    return [_worker(dialect.moment, row) for row in reply.rows]


def queues(dialect: Dialect, cap: int = 10_000) -> Script[list[QueueInfo]]:
    """Return the queues that hold pending jobs or were ever paused; depths are counted up to a cap."""
    reply = yield Run("queues", {"cap": cap, "now": dialect.now()})
    return [_queue(dialect.moment, row) for row in reply.rows]


def suspects(dialect: Dialect) -> Script[list[Suspects]]:
    """Return how many jobs with deaths on record wait, by queue, type and level of isolation
    (docs/decisions/0021)."""
    return [Suspects(*row) for row in (yield Run("suspects", {"now": dialect.now()})).rows]
