"""Decide what follows a run: whether its job is completed, retried (and when) or failed, and when a
recurring job runs next.

`judge` says what an exception of the handler means. `decide` turns the end of a run into the `Finish`
that is written; the delay before a retry comes from `backoff.py`, the next run of a recurring job from
`schedules/next_run.py`. All functions are pure. Each way to finish a run has a name, an `Outcome`. The
statements of finish.*.sql change the outcome in two cases: a job that was asked to stop is cancelled
instead of retried, and a job whose payload was replaced while it ran becomes pending again.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, assert_never

from holdfast.core.codec import encode_error
from holdfast.core.records import value
from holdfast.jobs.backoff import await_reader
from holdfast.jobs.job import EventKind, Job, NewJob, Status
from holdfast.schedules import next_run
from holdfast.tasks.control import Discard, Retry, Snooze

WEEK = 7 * 86400.0  #: seconds that completed and cancelled jobs are kept by default


class Outcome(StrEnum):
    """Names of rows in `job.TRANSITIONS`."""

    COMPLETED = "completed"
    RETRY_LATER = "retry_later"
    SNOOZED = "snoozed"
    FAILED = "failed"
    STOPPED = "stopped"
    RELEASED = "released"
    UNREADABLE = "unreadable"
    CRASHED = "crashed"
    RECURRED = "recurred"


class Recur(NamedTuple):
    """The part of a Finish that only recurring jobs have."""

    run_at: datetime  #: its next run
    due_at: datetime | None  #: the moment of the schedule for `run_at`; None: the run chose it
    ran: bool = True  #: False: it was skipped, being late
    stopped: bool = False  #: the run was cancelled: neither a success nor a failure
    died: bool = False  #: its process died while it ran
    because: str | None = None  #: if the job is disabled now: the reason
    #: The time of the worker's clock to which it added a delay; None: `run_at` does not depend on it.
    worker_now: datetime | None = None


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
    keep: float = WEEK  #: seconds that the row is kept, if this finishes the job
    enqueue: tuple[NewJob, ...] = ()  #: inserted together with this finish, or not at all
    recur: Recur | None = None
    limit_key: str | None = None  #: the key whose capacity it gives back
    workflow_id: str | None = None  #: other jobs of it may wait for this one
    own: bool = True  #: if the process died: by its own doing, which counts as a crash of the job

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
    Outcome.UNREADABLE: EventKind.RELEASED,
}


def kind_of(finish: Finish) -> EventKind:
    """Return the kind of the event that reports a finish."""
    if finish.recur is None:
        return _KINDS[finish.outcome]
    if finish.error is not None:  # another run follows
        return EventKind.RETRYING
    stopped = finish.recur.stopped or not finish.recur.ran
    return EventKind.CANCELLED if stopped else EventKind.COMPLETED


class Applied(StrEnum):
    """The result of writing a finish."""

    APPLIED = "applied"
    LOST = "lost"  #: another worker has claimed the job, or it was deleted: nothing was written
    BUSY = "busy"  #: another transaction has locked the row: nothing was written, send it again
    UNWRITTEN = "unwritten"  #: the database could not store it: nothing was written, send it again


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
    """Return the finish of a run that returned."""
    return _finish(job, Outcome.COMPLETED, result=result, keep=keep, enqueue=enqueue)


def retry_later(job: Job, error: str, trace: str | None = None, *, delay: float) -> Finish:
    """Return the finish of a run that failed; the job is retried after `delay` seconds."""
    return _finish(job, Outcome.RETRY_LATER, error=error, trace=trace, delay=delay)


def failed(job: Job, error: str, trace: str | None = None, *, keep: float) -> Finish:
    """Return the finish of a run that failed for good."""
    return _finish(job, Outcome.FAILED, error=error, trace=trace, keep=keep)


def snoozed(job: Job, *, delay: float) -> Finish:
    """Return the finish of a run that asked to run again later; the attempt does not count."""
    return _finish(job, Outcome.SNOOZED, delay=delay)


def stopped(job: Job, error: str | None = None, *, keep: float) -> Finish:
    """Return the finish of a run that stopped on request, or of a job that expired before its run
    began."""
    return _finish(job, Outcome.STOPPED, error=error, keep=keep)


def released(job: Job) -> Finish:
    """Return the finish of a run that its worker stopped for a shutdown; the attempt does not count."""
    return _finish(job, Outcome.RELEASED)


def unreadable(job: Job, error: str, *, delay: float) -> Finish:
    """Return the finish of a job whose payload this worker cannot read; another worker may. The attempt
    does not count."""
    return _finish(job, Outcome.UNREADABLE, error=error, delay=delay)


def crashed(job: Job, error: str, *, delay: float, own: bool = True) -> Finish:
    """Return the finish of a run whose process died; the attempt does not count. `own`: the process
    died by its own doing, which counts as a crash of the job."""
    return _finish(job, Outcome.CRASHED, error=error, delay=delay, own=own)


# How a run ended.


class Returned(NamedTuple):
    result: str | None  #: JSON text
    enqueue: tuple[NewJob, ...] = ()
    next_run: datetime | float | None = None  #: of a recurring job: as the run asked


class Raised(NamedTuple):
    error: str
    trace: str | None
    permanent: bool = False
    after: float | None = None  #: seconds until the retry; None: the backoff decides


class Snoozed(NamedTuple):
    delay: float


class Stopped(NamedTuple):
    """The run was asked to stop, and did."""


class GivenBack(NamedTuple):
    """The worker stopped the run because the worker shuts down."""


class Late(NamedTuple):
    """The run did not begin: the job has expired, or the due time of a recurring job was missed."""

    error: str | None  #: None for a recurring job, which waits for its next due time


class Died(NamedTuple):
    """The run's process died."""

    how: str  #: "SIGSEGV", "exit code 9"
    own: bool = True  #: by its own doing, not by an operator's signal


class Unreadable(NamedTuple):
    """The handler was not called: the payload does not fit this worker's code."""

    error: str  #: names the field

    def failed(self, patience: float = 0.0) -> Raised:
        """Return this end as a permanent failure, after `patience` seconds in which no worker could
        read the payload."""
        waited = f"; no worker could read it for {patience:g} s" if patience else ""
        return Raised(f"{self.error}{waited}", None, permanent=True)


Ended = Returned | Raised | Snoozed | Stopped | GivenBack | Late | Died | Unreadable


@value
class Policy:
    """The settings of a task that decide what follows its runs."""

    backoff: Callable[[int], float]
    own_backoff: bool = False  #: the task was given a backoff of its own
    keep: Mapping[Status, float]  #: seconds that a finished job is kept
    discard_on: tuple[type[BaseException], ...] = ()
    retry_on: tuple[type[BaseException], ...] | None = None  #: None: all exceptions
    unreadable_for: float = 3600.0  #: seconds until a job that no worker can read fails


SHARED: Mapping[int, int] = {1: 17, 2: 5, 3: 1}  #: most jobs in one process, by their deaths
CRASHES = 3  #: a job fails after so many crashes: deaths of a process in which only it had begun
DIED = "its process died: "  #: the beginning of the error of a job whose process died


def judge(error: BaseException, policy: Policy) -> Raised | Snoozed:
    """Return how a run ended that raised this exception. Must be called in the process of the run: an
    exception cannot be sent to another process."""
    if isinstance(error, Snooze):
        return Snoozed(error.delay)
    text = encode_error(error)
    if isinstance(error, Retry):
        return Raised(text.error, text.trace, after=error.after)
    unwanted = policy.retry_on is not None and not isinstance(error, policy.retry_on)
    permanent = isinstance(error, (Discard, *policy.discard_on)) or unwanted
    return Raised(text.error, text.trace, permanent=permanent)


def decide(job: Job, ended: Ended, policy: Policy, now: datetime | None = None) -> Finish:
    """Return the finish to write after a run: which status follows, and when the job runs again. `now`:
    the time by the database's clock, used for recurring jobs and for payloads that cannot be read."""
    keep = policy.keep
    if isinstance(ended, Unreadable):
        moment = now or job.started_at or job.run_at
        given_back = await_reader(job.unreadable_since or moment, moment, policy.unreadable_for)
        if given_back is not None:
            return unreadable(job, f"{ended.error}{given_back.text}", delay=given_back.delay)
        ended = ended.failed(policy.unreadable_for)
    if job.schedule is not None and not isinstance(ended, Snoozed | GivenBack):
        return _recurred(job, ended, policy, now or job.started_at or job.run_at)
    match ended:
        case Returned():  # the most frequent comes first
            return completed(job, ended.result, keep=keep[Status.COMPLETED], enqueue=ended.enqueue)
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
        case Died(how, own) if own and job.crashes + 1 >= CRASHES:
            return failed(job, quarantined(job.crashes + 1, how), keep=keep[Status.FAILED])
        case Died(how, own):
            return crashed(job, DIED + how, delay=policy.backoff(job.crashes + 1), own=own)
        case _:
            assert_never(ended)


SILENT = (
    "NoNextRun: this job has no schedule of its own, and its run did not say when the next one is: "
    "call ctx.next_run(after=...) or ctx.next_run(at=...)"
)


def _recurred(job: Job, ended: Ended, policy: Policy, now: datetime) -> Finish:
    """Return the finish of a run of a recurring job: its row waits for the next run in any case."""
    try:
        schedule = next_run.from_json(job.schedule or "{}")
        return _next_run(job, ended, policy, now, schedule)
    except Exception as problem:  # such as a time zone unknown to this machine: try again later
        error = f"its schedule cannot be followed: {problem}"
        at = now + timedelta(seconds=policy.backoff(job.consecutive_failures + 1))
        recur = Recur(at, job.due_at or at, worker_now=now)
        return _finish(job, Outcome.RECURRED, error=error, recur=recur)


def _next_run(
    job: Job, ended: Ended, policy: Policy, now: datetime, schedule: next_run.Schedule
) -> Finish:
    due = job.due_at or job.run_at

    def after_failure() -> next_run.Next:
        return next_run.after_failure(
            schedule,
            due=due,
            now=now,
            failures=job.consecutive_failures + 1,
            fallback=policy.backoff,
            exact=policy.own_backoff,
        )

    regular = next_run.after_success(schedule, due=due, now=now)
    if isinstance(ended, Returned):
        asked = ended.next_run
        if isinstance(asked, int | float):
            asked = now + timedelta(seconds=asked)
        following = regular if asked is None else next_run.Next(asked, asked)
        if following is not None:
            recur = _recur(schedule, following, now)
            if isinstance(ended.next_run, datetime):
                recur = Recur(ended.next_run, None)
            return _finish(
                job, Outcome.RECURRED, result=ended.result, enqueue=ended.enqueue, recur=recur
            )
        ended = Raised(SILENT, None)
    if isinstance(ended, Stopped | Late):
        stopped = isinstance(ended, Stopped)
        recur = _recur(schedule, regular or after_failure(), now)
        recur = recur._replace(ran=stopped, stopped=stopped)
        return _finish(job, Outcome.RECURRED, recur=recur)
    died, own = isinstance(ended, Died), isinstance(ended, Died) and ended.own
    if isinstance(ended, Died):
        ended = Raised(DIED + ended.how, None)
    if not isinstance(ended, Raised):
        raise AssertionError(f"not the end of a run: {ended!r}")
    later = None if ended.after is None else now + timedelta(seconds=ended.after)
    because = None
    if job.crashes + own >= CRASHES:  # all in a row: a run that ends by itself sets crashes to 0
        because = f"{CRASHED_IN_A_ROW}: {_how(ended.error if died else job.error)}"
    following = after_failure() if later is None else next_run.Next(later, due)
    recur = _recur(schedule, following, now)._replace(died=died, because=because)
    error = f"Quarantined: {because}" if because is not None else ended.error
    return _finish(job, Outcome.RECURRED, error=error, trace=ended.trace, recur=recur, own=own)


def _recur(schedule: next_run.Schedule, following: next_run.Next, now: datetime) -> Recur:
    """Return the Recur for a next run. A time that cron names stays if the clock is set back; any other
    next run is counted from `now`."""
    is_named = schedule.cron is not None and following.due_at > now
    return Recur(*following, worker_now=None if is_named else now)


CRASHED_IN_A_ROW = "its process died three times in a row"  #: why a recurring job was disabled


def quarantined(crashes: int, how: str | None) -> str:
    """Return the error of a job that is quarantined. `how`: how its process died, or the error about
    it."""
    return (
        f"Quarantined: its process died {crashes} times under it, with no other job in it"
        f" ({_how(how)})"
    )


def _how(error: str | None) -> str:
    return error.removeprefix(DIED) if error else "see its worker's log"
