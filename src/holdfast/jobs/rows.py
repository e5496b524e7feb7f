"""Makes jobs from rows: the columns that are read, their order, and the field that each becomes.

There are three mappings, since a worker reads thousands of rows a second: from all columns, from the
few that a claim needs, and from an insert, whose row need not be read.
"""

import json
from datetime import datetime, timedelta
from typing import Any, Protocol

from holdfast.core.clock import to_microseconds
from holdfast.engine.dialect import MICRO, Dialect
from holdfast.engine.script import Row
from holdfast.jobs.job import Body, Job, NewJob, Status

COLUMNS = (
    "id, type, queue, status, priority, rank, key, entity_type, entity_id, attempts, max_attempts,"
    " crashes, claim_no, worker_id, timeout, created_at, updated_at, run_at, started_at,"
    " completed_at, keep_until, error, progress, message, cancel_requested, verdict, expires_at,"
    " limit_key, schedule, enabled, disabled_because, due_at, last_run_at, last_error,"
    " consecutive_failures, workflow_id, node, prune_error, idempotency_key, deaths,"
    " unreadable_since"
)
_WIDTH = COLUMNS.count(",") + 1
# What a claim reads of a job; the rest follows from the claim itself.
CLAIMED = (
    "id, type, queue, priority, rank, key, entity_type, entity_id, attempts, max_attempts, crashes,"
    " claim_no, timeout, created_at, run_at, error, cancel_requested, verdict, expires_at, schedule,"
    " due_at, last_run_at, last_error, consecutive_failures, limit_key,"
    " workflow_id, node, unreadable_since"
)
_STATUS = {status.value: status for status in Status}  # four times as quick as Status(...)


class Reader(Protocol):
    """The part of a dialect that reading needs."""

    def moment(self, value: Any) -> datetime: ...

    def now(self) -> Any: ...


def columns_to_job(dialect: Reader, row: Row, body: Body | None = None) -> Job:
    """Return the job of a row with the COLUMNS, and its body if two more columns follow."""
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


def claimed_to_job(
    dialect: Dialect,
    row: Row,
    worker: str,
    started: datetime,
    *,
    bump: int,  # 1 if the row was read before it was made running
    limit: tuple[str | None, bool] = (None, False),  # its key, and whether any limit counts it
) -> Job:
    """Return the running job of a row with the CLAIMED columns."""
    moment = dialect.moment
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
        created_at=moment(row[13]),
        updated_at=started,
        run_at=moment(row[14]),
        started_at=started,
        error=row[15],
        cancel_requested=bool(row[16]),
        verdict=row[17],
        expires_at=None if row[18] is None else moment(row[18]),
        schedule=row[19],
        due_at=None if row[20] is None else moment(row[20]),
        last_run_at=None if row[21] is None else moment(row[21]),
        last_error=row[22],
        consecutive_failures=row[23],
        workflow_id=row[25],
        node=row[26],
        unreadable_since=None if row[27] is None else moment(row[27]),
        limit_key=limit[0],
        limited=limit[1],
        body=Body(row[-1]),
    )


def order_of_running(job: Job) -> tuple[int, datetime, str]:
    return job.rank, job.run_at, job.id


def new_to_job(dialect: Dialect, job: NewJob, status: Any, now: Any, run_at: Any) -> Job:
    """Return the job that an insert wrote, without reading its row."""
    created_at = dialect.moment(now)
    if run_at is not None:
        due = dialect.moment(run_at)
    else:
        due = job.run_at or created_at
        if job.delay and job.run_at is None:
            due = dialect.moment(now + round(job.delay * MICRO))
    return Job(
        id=job.id,
        type=job.type,
        queue=job.queue,
        status=Status(status) if status else _first(job, due, created_at),
        priority=job.priority,
        rank=rank_of(job, due),
        key=job.key,
        entity_type=job.entity_type,
        entity_id=None if job.entity_id is None else json.loads(job.entity_id),
        max_attempts=job.max_attempts,
        timeout=job.timeout,
        created_at=created_at,
        updated_at=created_at,
        run_at=due,
        expires_at=None if job.expires is None else created_at + timedelta(seconds=job.expires),
        schedule=job.schedule,
        due_at=None if job.schedule is None else due,
        workflow_id=job.workflow_id,
        node=job.node,
        idempotency_key=job.idempotency_key,
        body=Body(job.payload),
        created=True,
    )


def _first(job: NewJob, due: datetime, now: datetime) -> Status:
    if job.waits:
        return Status.BLOCKED
    return Status.SCHEDULED if due > now else Status.PENDING


def rank_of(job: NewJob, due: datetime) -> int:
    """Return the order of running. With aging, a step of priority counts as much as `aging` seconds of
    waiting."""
    if job.aging is None:
        return -job.priority
    return to_microseconds(due) - job.priority * round(job.aging * MICRO)
