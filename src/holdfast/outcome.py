"""How a run ends, as values. Every legal finish has a name; an engine writes what it is given.

The row itself may know better: a job asked to stop, that would have been tried again, is cancelled,
and one whose payload was replaced while it ran goes back to be run again (statements.sql, `finish`).
"""

from datetime import datetime
from enum import StrEnum
from typing import Any

from holdfast.job import Job, NewJob
from holdfast.value import value

WEEK = (
    7 * 86400.0
)  #: how long completed and cancelled jobs are kept, unless somebody says otherwise


class Outcome(StrEnum):
    """Names of rows in `job.TRANSITIONS`."""

    COMPLETED = "completed"
    RETRY_LATER = "retry_later"
    SNOOZED = "snoozed"
    FAILED = "failed"
    STOPPED = "stopped"
    RELEASED = "released"


@value
class Finish:
    """The end of one run, addressed to one claim."""

    id: str
    claim_no: int
    outcome: Outcome
    attempt: int
    worker_id: str | None
    started_at: datetime | None
    result: str | None = None  #: JSON text
    error: str | None = None
    trace: str | None = None
    delay: float = 0.0  #: seconds until it runs again
    keep: float = WEEK  #: seconds that the row is kept, should this finish it
    enqueue: tuple[NewJob, ...] = ()  #: inserted together with this finish, or not at all


class Applied(StrEnum):
    """What became of a finish."""

    APPLIED = "applied"
    LOST = "lost"  #: the claim is somebody else's by now, or the row is gone: nothing changed
    BUSY = "busy"  #: somebody's transaction holds the row: nothing changed yet, send it again


def _finish(job: Job, outcome: Outcome, **fields: Any) -> Finish:
    return Finish(
        id=job.id,
        claim_no=job.claim_no,
        outcome=outcome,
        attempt=job.attempts,
        worker_id=job.worker_id,
        started_at=job.started_at,
        **fields,
    )


def completed(
    job: Job, result: str | None = None, *, keep: float, enqueue: tuple[NewJob, ...] = ()
) -> Finish:
    """It returned."""
    return _finish(job, Outcome.COMPLETED, result=result, keep=keep, enqueue=enqueue)


def retry_later(job: Job, error: str, trace: str | None = None, *, delay: float) -> Finish:
    """It failed, and is tried again."""
    return _finish(job, Outcome.RETRY_LATER, error=error, trace=trace, delay=delay)


def failed(job: Job, error: str, trace: str | None = None, *, keep: float) -> Finish:
    """It failed for good."""
    return _finish(job, Outcome.FAILED, error=error, trace=trace, keep=keep)


def snoozed(job: Job, *, delay: float) -> Finish:
    """It asked to come back later; the attempt is given back."""
    return _finish(job, Outcome.SNOOZED, delay=delay)


def stopped(job: Job, *, keep: float) -> Finish:
    """It was asked to stop, and did."""
    return _finish(job, Outcome.STOPPED, keep=keep)


def released(job: Job) -> Finish:
    """The worker gives it back unharmed (a shutdown); the attempt is given back."""
    return _finish(job, Outcome.RELEASED)
