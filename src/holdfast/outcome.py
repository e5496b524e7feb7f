"""How a run ends, as values, and what follows from it: `judge` and `decide`, which only think.

Every legal finish has a name; an engine writes what it is given.

The row itself may know better: a job asked to stop, that would have been tried again, is cancelled,
and one whose payload was replaced while it ran goes back to be run again (statements.sql, `finish`).
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, assert_never

from holdfast import recurrence
from holdfast.codec import encode_error
from holdfast.duration import Duration, seconds
from holdfast.job import EventKind, Job, NewJob, Status
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
    CRASHED = "crashed"
    RECURRED = "recurred"


class Recur(NamedTuple):
    """What follows the run of a recurring job."""

    run_at: datetime  #: its next run
    due_at: datetime  #: the moment of the schedule that it stands for
    ran: bool = True  #: False: it was left out, being late
    stopped: bool = False  #: it was cancelled: neither a success nor a failure


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
    recur: Recur | None = None
    limit_key: str | None = None  #: that has room for another then
    workflow_id: str | None = None  #: whose other jobs may have waited for this one

    @property
    def is_run_of_recurring(self) -> bool:
        return self.recur is not None and self.recur.ran


_KINDS = {
    Outcome.COMPLETED: EventKind.COMPLETED,
    Outcome.RETRY_LATER: EventKind.RETRYING,
    Outcome.CRASHED: EventKind.RETRYING,
    Outcome.FAILED: EventKind.FAILED,
    Outcome.STOPPED: EventKind.CANCELLED,
    Outcome.SNOOZED: EventKind.SNOOZED,
    Outcome.RELEASED: EventKind.RELEASED,
}


def kind_of(finish: Finish) -> EventKind:
    """What a finish is to those who listen."""
    if finish.recur is None:
        return _KINDS[finish.outcome]
    if finish.error is not None:  # a run that is followed by another
        return EventKind.RETRYING
    stopped = finish.recur.stopped or not finish.recur.ran
    return EventKind.CANCELLED if stopped else EventKind.COMPLETED


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
        limit_key=job.limit_key,
        workflow_id=job.workflow_id,
        **fields,
    )


def completed(
    job: Job, result: str | None = None, *, keep: float, enqueue: tuple[NewJob, ...] = ()
) -> Finish:
    """It returned."""
    return Finish(
        id=job.id,
        claim_no=job.claim_no,
        outcome=Outcome.COMPLETED,
        attempt=job.attempts,
        worker_id=job.worker_id,
        started_at=job.started_at,
        result=result,
        keep=keep,
        enqueue=enqueue,
        limit_key=job.limit_key,
        workflow_id=job.workflow_id,
    )


def retry_later(job: Job, error: str, trace: str | None = None, *, delay: float) -> Finish:
    """It failed, and is tried again."""
    return _finish(job, Outcome.RETRY_LATER, error=error, trace=trace, delay=delay)


def failed(job: Job, error: str, trace: str | None = None, *, keep: float) -> Finish:
    """It failed for good."""
    return _finish(job, Outcome.FAILED, error=error, trace=trace, keep=keep)


def snoozed(job: Job, *, delay: float) -> Finish:
    """It asked to come back later; the attempt is given back."""
    return _finish(job, Outcome.SNOOZED, delay=delay)


def stopped(job: Job, error: str | None = None, *, keep: float) -> Finish:
    """It was asked to stop, and did; or it was not worth to begin any more."""
    return _finish(job, Outcome.STOPPED, error=error, keep=keep)


def released(job: Job) -> Finish:
    """The worker gives it back unharmed (a shutdown); the attempt is given back."""
    return _finish(job, Outcome.RELEASED)


def crashed(job: Job, error: str, *, delay: float) -> Finish:
    """Its own process died under it; the attempt is given back, the crash is counted."""
    return _finish(job, Outcome.CRASHED, error=error, delay=delay)


# What a handler may raise to say what shall follow.


class Discard(Exception):
    """Fail for good: trying again would not help."""


class Retry(Exception):
    """Fail, and be tried again after the given time (if an attempt is left)."""

    def __init__(self, message: str = "", *, after: Duration) -> None:
        super().__init__(message)
        self.after = seconds(after, what="Retry(after=)")


class Snooze(Exception):
    """Come back later, without spending an attempt."""

    def __init__(self, delay: Duration) -> None:
        super().__init__(f"for {delay}")
        self.delay = seconds(delay, what="Snooze(delay)")


# How a run ended.


class Returned(NamedTuple):
    result: str | None  #: JSON text
    enqueue: tuple[NewJob, ...] = ()
    next_run: datetime | float | None = None  #: of a recurring job, by its own word


class Raised(NamedTuple):
    error: str
    trace: str | None
    permanent: bool = False
    after: float | None = None  #: None: by the backoff


class Snoozed(NamedTuple):
    delay: float


class Stopped(NamedTuple):
    """It was asked to stop, and did."""


class GivenBack(NamedTuple):
    """The worker stopped it for reasons of its own."""


class Late(NamedTuple):
    """It was not begun: its time is over."""

    error: str | None  #: None: of a recurring job, which just waits for its next moment


class Died(NamedTuple):
    """Its own process died under it."""

    how: str


Ended = Returned | Raised | Snoozed | Stopped | GivenBack | Late | Died


@value
class Policy:
    """What a task wants to follow."""

    backoff: Callable[[int], float]
    own_backoff: bool = False  #: its author chose it
    keep: Mapping[Status, float]  #: seconds that a finished job is kept
    discard_on: tuple[type[BaseException], ...] = ()
    retry_on: tuple[type[BaseException], ...] | None = None  #: None: everything


CRASHES = 3  #: as often may a job's process die under it, alone, until it is given up


def judge(error: BaseException, policy: Policy) -> Raised | Snoozed:
    """What an exception means. Done where it was raised, as it cannot leave its process."""
    if isinstance(error, Snooze):
        return Snoozed(error.delay)
    text = encode_error(error)
    if isinstance(error, Retry):
        return Raised(text.error, text.trace, after=error.after)
    unwanted = policy.retry_on is not None and not isinstance(error, policy.retry_on)
    permanent = isinstance(error, (Discard, *policy.discard_on)) or unwanted
    return Raised(text.error, text.trace, permanent=permanent)


def decide(job: Job, ended: Ended, policy: Policy, now: datetime | None = None) -> Finish:
    """What follows from how a run ended. `now`, by the database's clock, matters to recurring jobs."""
    keep = policy.keep
    if job.schedule is not None and not isinstance(ended, Snoozed | GivenBack):
        return _recurred(job, ended, policy, now or job.started_at or job.run_at)
    if type(ended) is Returned:  # by far the most frequent, and a `match` takes its time
        return completed(job, ended.result, keep=keep[Status.COMPLETED], enqueue=ended.enqueue)
    match ended:
        case Returned():
            raise AssertionError("handled above")
        case Raised(error, trace, permanent, _) if permanent or job.attempts >= job.max_attempts:
            return failed(job, error, trace, keep=keep[Status.FAILED])
        case Raised(error, trace, _, after):
            delay = policy.backoff(job.attempts) if after is None else after
            return retry_later(job, error, trace, delay=delay)
        case Snoozed(delay):
            return snoozed(job, delay=delay)
        case Stopped():
            return stopped(job, keep=keep[Status.CANCELLED])
        case GivenBack():
            return released(job)
        case Late(error):
            return stopped(job, error, keep=keep[Status.CANCELLED])
        case Died(how) if job.crashes + 1 >= CRASHES:
            return failed(job, quarantined(job.crashes + 1, how), keep=keep[Status.FAILED])
        case Died(how):
            return crashed(job, how, delay=policy.backoff(job.crashes + 1))
        case _:
            assert_never(ended)


SILENT = (
    "NoNextRun: this job has no schedule of its own, and its run did not say when the next one is: "
    "call ctx.next_run(after=...) or ctx.next_run(at=...)"
)


def _recurred(job: Job, ended: Ended, policy: Policy, now: datetime) -> Finish:
    """Whatever happened, the row waits for its next run."""
    try:
        schedule = recurrence.from_json(job.schedule or "{}")
        return _next_run(job, ended, policy, now, schedule)
    except Exception as problem:  # an unknown zone on this machine: recorded, and tried again
        error = f"its schedule cannot be followed: {problem}"
        at = now + timedelta(seconds=policy.backoff(job.consecutive_failures + 1))
        return _finish(job, Outcome.RECURRED, error=error, recur=Recur(at, job.due_at or at))


def _next_run(
    job: Job, ended: Ended, policy: Policy, now: datetime, schedule: recurrence.Schedule
) -> Finish:
    due = job.due_at or job.run_at

    def after_failure() -> recurrence.Next:
        return recurrence.after_failure(
            schedule,
            due=due,
            now=now,
            failures=job.consecutive_failures + 1,
            fallback=policy.backoff,
            exact=policy.own_backoff,
        )

    regular = recurrence.after_success(schedule, due=due, now=now)
    if isinstance(ended, Returned):
        asked = ended.next_run
        if isinstance(asked, int | float):
            asked = now + timedelta(seconds=asked)
        following = regular if asked is None else recurrence.Next(asked, asked)
        if following is not None:
            recur = Recur(*following)
            return _finish(
                job, Outcome.RECURRED, result=ended.result, enqueue=ended.enqueue, recur=recur
            )
        ended = Raised(SILENT, None)
    if isinstance(ended, Stopped | Late):
        recur = Recur(
            *(regular or after_failure()), isinstance(ended, Stopped), isinstance(ended, Stopped)
        )
        return _finish(job, Outcome.RECURRED, recur=recur)
    if isinstance(ended, Died):
        ended = Raised(f"its process died: {ended.how}", None)
    if not isinstance(ended, Raised):
        raise AssertionError(f"not the end of a run: {ended!r}")
    later = None if ended.after is None else now + timedelta(seconds=ended.after)
    recur = Recur(*(after_failure() if later is None else (later, due)))
    return _finish(job, Outcome.RECURRED, error=ended.error, trace=ended.trace, recur=recur)


def quarantined(crashes: int, how: str) -> str:
    return (
        f"Quarantined: its process died {crashes} times under it, with no other job in it ({how})"
    )
