"""Makes jobs and other records from rows. A column has the name of the field that it becomes, and
`_DECODED` says how its value is decoded, whichever statement read it.
"""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from holdfast.core.clock import to_microseconds
from holdfast.engine.dialect import MICRO, Dialect
from holdfast.engine.script import Row, T
from holdfast.jobs.job import Body, Job, NewJob, Status

COLUMNS = (
    "id, type, queue, status, priority, rank, key, entity_type, entity_id, attempts, max_attempts,"
    " crashes, claim_no, worker_id, timeout, created_at, updated_at, run_at, started_at,"
    " completed_at, keep_until, error, progress, message, cancel_requested, verdict, expires_at,"
    " limit_key, schedule, enabled, disabled_because, due_at, last_run_at, last_error,"
    " consecutive_failures, workflow_id, node, prune_error, idempotency_key, deaths,"
    " unreadable_since"
)
# The columns that a claim reads of a job; the values of the other fields follow from the claim itself.
CLAIMED = (
    "id, type, queue, priority, rank, key, entity_type, entity_id, attempts, max_attempts, crashes,"
    " claim_no, timeout, created_at, run_at, error, cancel_requested, verdict, expires_at, schedule,"
    " due_at, last_run_at, last_error, consecutive_failures, limit_key,"
    " workflow_id, node, unreadable_since"
)
_WIDTH = COLUMNS.count(",") + 1
_STATUS = {status.value: status for status in Status}  # four times as quick as Status(...)
_TIMES = (
    *("started_at", "completed_at", "keep_until", "expires_at", "due_at", "last_run_at"),
    *("unreadable_since", "finished_at", "beat_at", "left_at", "died_at", "paused_at", "resume_at"),
    *("at", "asked_at"),
)
_DECODED = {
    "status": "_STATUS[{0}]",
    "entity_id": "None if {0} is None else json.loads({0})",
    "cancel_requested": "bool({0})",
    "enabled": "bool({0})",
    **dict.fromkeys(("created_at", "updated_at", "run_at"), "moment({0})"),
    **dict.fromkeys(_TIMES, "None if {0} is None else moment({0})"),
}


def decoder(
    made: type[T], columns: str, parameters: str = "moment, row", **fields: str
) -> Callable[..., T]:
    """Return a function of `parameters` that makes a record from a row with these columns; `fields`
    gives the expressions of other fields. The function is compiled, as the methods of dataclasses are:
    a loop over the columns takes three times as long, and a worker reads thousands of rows a second."""
    decoded = _DECODED | fields
    read = {
        name: decoded.get(name, "{0}").format(f"row[{place}]")
        for place, name in enumerate(columns.split(", "))
    }
    arguments = ", ".join(f"{name}={value}" for name, value in {**fields, **read}.items())
    known = {**globals(), "made": made}
    return eval(f"lambda {parameters}: made({arguments})", known)  # type: ignore[no-any-return]  # noqa: S307


_decode = decoder(Job, COLUMNS, "moment, row, body", body="body")
_decode_claimed = decoder(
    Job,
    CLAIMED,
    "moment, row, worker, started, bump, limit",
    status="Status.RUNNING",
    attempts="{0} + bump",
    claim_no="{0} + bump",
    worker_id="worker",
    updated_at="started",
    started_at="started",
    limit_key="limit[0]",
    limited="limit[1]",
    body="Body(row[-1])",
)


def columns_to_job(dialect: Dialect, row: Row) -> Job:
    """Return the job of a row with the COLUMNS, and its body if two more columns follow."""
    return _decode(dialect.moment, row, Body(*row[_WIDTH:]) if len(row) > _WIDTH else None)


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
    return _decode_claimed(dialect.moment, row, worker, started, bump, limit)


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
    """Return the rank of a job: lower ranks run first. With aging, a step of priority counts as much as
    `aging` seconds of waiting."""
    if job.aging is None:
        return -job.priority
    return to_microseconds(due) - job.priority * round(job.aging * MICRO)
