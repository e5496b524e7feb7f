"""How a worker takes jobs, as scripts: look for the best, and make them running."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.engine.script import Row, Run, Script
from holdfast.engine.verbs import Dialect
from holdfast.job import Body, Job, Status

# What a claim reads of a job; the rest follows from the claim itself.
CLAIMED = (
    "id, type, queue, priority, rank, key, entity_type, entity_id, attempts, max_attempts, crashes,"
    " claim_no, timeout, created_at, run_at, error, cancel_requested, verdict"
)
_ONE, _SEVERAL = frozenset({"one"}), frozenset({"several"})

Wanted = Sequence[Mapping[str, Any]]  #: types, each with its limit, and what else the engine adds


def claim(
    dialect: Dialect, queue: str, limit: int, worker: str, wanted: Wanted
) -> Script[list[Job]]:
    if not wanted:
        return []
    params: dict[str, Any] = {
        "now": dialect.now(),
        "queue": queue,
        "limit": limit,
        "worker": worker,
    }
    if not dialect.claims_in_one:
        rows = yield from _look(params, wanted)
        return (yield from take(dialect, rows, params))
    params["types"] = json.dumps(wanted)
    reply = yield (Run("claim", params) if len(wanted) == 1 else Run("claim_types", params))
    jobs = [_job(dialect, row, worker, dialect.moment(row[18]), bump=0) for row in reply.rows]
    jobs.sort(key=order_of_running)  # RETURNING promises no order
    return jobs


def _look(params: Mapping[str, Any], wanted: Wanted) -> Script[list[Row]]:
    if len(wanted) == 1:
        run = Run("look", {**params, "type": wanted[0]["type"]}, options=_ONE)
    else:
        run = Run("look", {**params, "types": json.dumps(wanted)}, options=_SEVERAL)
    return (yield run).rows


def take(dialect: Dialect, rows: Sequence[Row], params: Mapping[str, Any]) -> Script[list[Job]]:
    """Make running what was looked at."""
    if not rows:
        return []
    ids = json.dumps([row[0] for row in rows])
    yield Run("take", {"now": params["now"], "worker": params["worker"], "ids": ids})
    started = dialect.moment(params["now"])
    return [_job(dialect, row, params["worker"], started, bump=1) for row in rows]


def claim_suspect(
    dialect: Dialect, queues: Sequence[str], worker: str, types: Sequence[str]
) -> Script[list[Job]]:
    lists = {"queues": json.dumps(list(queues)), "types": json.dumps(list(types))}
    params = {"now": dialect.now(), "worker": worker, **lists}
    reply = yield Run("claim_suspect", params)
    if not dialect.claims_in_one:
        return (yield from take(dialect, reply.rows, params))
    return [_job(dialect, row, worker, dialect.moment(row[18]), bump=0) for row in reply.rows]


def order_of_running(job: Job) -> tuple[int, datetime, str]:
    return job.rank, job.run_at, job.id


def _job(dialect: Dialect, row: Row, worker: str, started: datetime, bump: int) -> Job:
    """`bump`: 1 if the row was read before it was made running."""
    return Job(
        id=row[0],
        type=row[1],
        queue=row[2],
        status=Status.RUNNING,
        priority=row[3],
        rank=row[4],
        key=row[5],
        entity_type=row[6],
        entity_id=None if row[7] is None else json.loads(row[7]),
        attempts=row[8] + bump,
        max_attempts=row[9],
        crashes=row[10],
        claim_no=row[11] + bump,
        worker_id=worker,
        timeout=row[12],
        created_at=dialect.moment(row[13]),
        updated_at=started,
        run_at=dialect.moment(row[14]),
        started_at=started,
        completed_at=None,
        keep_until=None,
        error=row[15],
        progress=None,
        message=None,
        cancel_requested=bool(row[16]),
        verdict=row[17],
        body=Body(row[-1]),
    )
