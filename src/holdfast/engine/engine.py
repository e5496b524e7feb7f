"""The interface to a database that holds jobs: methods that read and write batches.

No SQL and no driver's type leaves an engine. SQLite and PostgreSQL each have their own statements and
connections; the scripts of jobs, limits, schedules and so on are shared, and one suite of tests proves
that both behave alike. Every write is one transaction; a method that raises has changed nothing.

An engine also has a `claimer` (by which workers claim jobs), a `maintenance` (pruning and repair at
intervals) and a `doctor` (which checks how the database is set up).
"""

import logging
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from holdfast import errors
from holdfast.core.clock import Clock
from holdfast.engine.claimer import Claimer
from holdfast.engine.dialect import Dialect
from holdfast.engine.maintenance import Maintenance
from holdfast.engine.records import Beat, Doctor, Held, LimitInfo, Seen, Swept
from holdfast.engine.script import Script, T
from holdfast.engine.transaction import Transaction
from holdfast.engine.unknown_outcome import insert_again
from holdfast.engine.wakeups import Wakeups
from holdfast.events import outbox
from holdfast.jobs import commands, log_lines, rescue
from holdfast.jobs import finish as finish_scripts
from holdfast.jobs import read as read_scripts
from holdfast.jobs.job import Claim, EventKind, Job, NewJob, Status
from holdfast.jobs.outcome import WEEK, Applied, Finish, Outcome
from holdfast.limits import scripts as limits
from holdfast.monitoring import rollups
from holdfast.monitoring.backlog import read_backlog
from holdfast.monitoring.hourly_cache import HOUR, HourlyCache
from holdfast.monitoring.metrics import Point, Total
from holdfast.workflows import scripts as workflows

logger = logging.getLogger("holdfast.engine")

TIMEOUT = 30.0  # seconds for one call, unless the application says otherwise
# Errors about the values in a finish, and about nothing else: sent again, it would be refused again.
_REFUSALS = (errors.InvalidInput, errors.KeyConflict, errors.Refused)
P = ParamSpec("P")
M = TypeVar("M")
Takes = Callable[Concatenate[Dialect, P], Script[T]]  #: a script, which is given the dialect first
Verb = Callable[Concatenate["Engine", P], T]  #: a method


# A method that runs one script: `engine.promote(10)` runs `commands.promote(dialect, 10)`.


def _reads(script: Takes[P, T]) -> Verb[P, T]:
    def verb(engine: "Engine", /, *args: P.args, **options: P.kwargs) -> T:
        return engine.read(script, *args, **options)

    return verb


def _writes(script: Takes[P, T]) -> Verb[P, T]:
    def verb(engine: "Engine", /, *args: P.args, **options: P.kwargs) -> T:
        return engine.write(script, *args, **options)

    return verb


def _writes_batch(script: Takes[[Sequence[M]], None]) -> Verb[[Sequence[M]], None]:
    def verb(engine: "Engine", batch: Sequence[M]) -> None:
        if batch:
            engine.write(script, batch)

    return verb


class Engine(ABC):
    """One database that holds jobs."""

    dialect: Dialect
    claimer: Claimer
    doctor: Doctor

    def __init__(self, clock: Clock, timeout: float = TIMEOUT) -> None:
        """`timeout`: seconds that a call waits for the database before it raises."""
        self.clock = clock
        self.maintenance = Maintenance(self)
        self._timeout = timeout
        self._closed = False
        self._opened_by: int | None = None  # the process whose connections these are...
        self._opening_call = ""  # ... and the call that opened them
        self._totals = HourlyCache(lambda start, end: self.read(rollups.totals, start, end))
        self._points = HourlyCache(
            lambda start, end: self.read(rollups.series, start, end, None, None)
        )

    # What each engine does in its own way.

    @abstractmethod
    def migrate(self) -> list[str]:
        """Migrate the tables, and return the migrations applied. Safe when many start at once."""

    @abstractmethod
    def migrations_sql(self) -> str:
        """Return all migrations as SQL text, for operators who apply them by themselves."""

    @abstractmethod
    def open(self) -> None:
        """Connect and check the tables, as the first call of another method would. Idempotent."""

    @abstractmethod
    def close(self) -> None:
        """Release connections and threads; idempotent."""

    @abstractmethod
    def insert(self, jobs: Sequence[NewJob], *, notify: bool = True) -> list[Job]:
        """Add jobs, all or none. If an unfinished job has a job's key, `on_conflict` decides; if any
        job has its idempotency key, that job is returned, with `created=False`. A job whose id exists
        was sent before, and counts as created."""

    @abstractmethod
    def adopt(self, tx: Any) -> Transaction:
        """Return a caller's open transaction as a Transaction. Raises the reason if it is refused."""

    @abstractmethod
    async def aadopt(self, tx: Any) -> Transaction:
        """Do the same for asynchronous connections and sessions."""

    @abstractmethod
    def wakeups(self, *, events: bool = False) -> Wakeups:
        """Subscribe to hints about jobs, or about `events`. The caller closes the subscription."""

    @abstractmethod
    def run(
        self, script: Callable[[], Script[T]], *, write: bool, deadline: float | None = None
    ) -> T:
        """Run a script, in a transaction of our own if it writes. It may be run again from the start.
        `deadline`: by the monotonic clock, if it is not to be the timeout of a call from now on."""

    def hint(self, queues: frozenset[str]) -> None:  # noqa: B027
        """Let other workers look at these queues soon; "*": at all. (On SQLite each commit does so.)"""

    def lock_holders(self) -> set[int]:
        """Return the processes of this machine that hold a lock without which no process can write;
        empty if none does, or if the system does not tell. Reads no database, so it never waits."""
        return set()

    # Running scripts.

    def read(self, script: Takes[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Run a script that changes nothing."""
        return self.run(lambda: script(self.dialect, *args, **options), write=False)

    def run_vital(self, script: Callable[[], Script[T]]) -> T:
        """Run a write that must not wait behind other writes of this process: a heartbeat."""
        return self.run(script, write=True)

    def write(self, script: Takes[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Run a script in a transaction of our own."""
        return self.run(lambda: script(self.dialect, *args, **options), write=True)

    # Processes. Connections must not cross a fork: both sides would write on one socket, or believe to
    # hold one lock. An engine that has opened nothing may be forked, and each child opens its own.

    def check_usable(self) -> None:
        """Raise if this engine is closed, or was opened before a fork."""
        if self._closed:
            raise errors.AppClosed("this Holdfast is closed: make a new one")
        if self._is_opened_elsewhere:
            raise errors.UsedAfterFork(
                f"this Holdfast was opened before a fork, by process {self._opened_by} "
                f"({self._opening_call}), and is used by its child {os.getpid()}: connections cannot "
                "be shared. Remove that call from what runs before the fork, or make a new Holdfast in "
                "each child"
            )

    @property
    def _is_opened_elsewhere(self) -> bool:
        return self._opened_by is not None and self._opened_by != os.getpid()

    @contextmanager
    def _opened_here(self) -> Iterator[None]:
        """Record that this process opens the engine, unless opening it raises."""
        # Before anything is opened: a child that is forked meanwhile must not wait for a lock that no
        # thread of it will ever release.
        is_new = self._opened_by is None
        if is_new:
            self._opening_call, self._opened_by = _opening_call(), os.getpid()
        try:
            yield
        except BaseException:
            if is_new:
                self._opened_by = None
            raise

    # Inserts.

    def _insert_until_known(
        self, jobs: Sequence[NewJob], insert: Callable[[float], list[Job]]
    ) -> list[Job]:
        """Call `insert` with its deadline by the monotonic clock, and return its jobs. Insert again
        while it is unknown whether the first insert was committed."""
        deadline = time.monotonic() + self._timeout
        try:
            return insert(deadline)
        except errors.OutcomeUnknown as problem:
            again = partial(commands.insert, self.dialect, jobs, hint={job.queue for job in jobs})
            run_again = partial(self.run, again, write=True, deadline=deadline)
            return insert_again(jobs, run_again, problem, deadline, self._timeout)

    # How runs end.

    def finish(self, finishes: Sequence[Finish]) -> dict[Claim, Applied]:
        """Write how runs ended, and the jobs that they enqueued, each only while its claim holds. If
        the database refuses a finish, the others are written."""
        if not finishes:
            return {}
        results = self._finish_all(finishes)
        self._advance(
            {
                finish.workflow_id
                for finish in finishes
                if finish.workflow_id is not None
                and results[Claim(finish.id, finish.claim_no)] is Applied.APPLIED
            }
        )
        return results

    def _finish_all(self, finishes: Sequence[Finish]) -> dict[Claim, Applied]:
        """Write all in one transaction. If the database refuses it or cannot store it, write each
        finish alone: one that is refused, or too large for a full disk, does not hold up the others."""
        try:
            return self._finish(finishes)
        except (*_REFUSALS, errors.StorageError):
            if len(finishes) == 1:
                return self._finish_alone(finishes[0])
        results: dict[Claim, Applied] = {}
        failure: errors.StorageError | None = None
        for member in finishes:
            try:
                results |= self._finish_alone(member)
            except errors.StorageError as problem:
                failure = problem
                results[Claim(member.id, member.claim_no)] = Applied.UNWRITTEN
        if failure is not None and set(results.values()) == {Applied.UNWRITTEN}:
            raise failure
        return results

    def _finish(self, finishes: Sequence[Finish]) -> dict[Claim, Applied]:
        return self.write(finish_scripts.finish, finishes)

    def _finish_alone(self, finish: Finish) -> dict[Claim, Applied]:
        """Write one finish. If the database refuses its values (a result, a chained job), they are left
        out and the job fails with the reason: the end of a run must be recorded in any case. Any other
        error means that the database is unavailable: it is raised, and the finish is sent again."""
        try:
            return self._finish([finish])
        except _REFUSALS as problem:
            logger.error("job %s fails: its end could not be written: %s", finish.id, problem)
            minimal = Finish(
                id=finish.id,
                claim_no=finish.claim_no,
                outcome=Outcome.FAILED if finish.recur is None else Outcome.RECURRED,
                attempt=finish.attempt,
                worker_id=finish.worker_id,
                started_at=finish.started_at,
                error=f"the finish could not be written: {problem}"[:1000],
                keep=finish.keep,
                recur=finish.recur,
                limit_key=finish.limit_key,
                workflow_id=finish.workflow_id,
            )
            return self._finish([minimal])

    def _advance(self, members_of: Collection[str]) -> None:
        """What follows from these ends. If it cannot be done now, the next look does it."""
        if members_of:
            with suppress(errors.DatabaseBusy, errors.DatabaseUnavailable):
                self.write(workflows.advance, members_of)

    # What else workers write.

    declare = _writes(limits.declare)  # the limits that the code has
    promote = _writes(commands.promote)  # make due jobs pending; returns when the next one is due
    ask_stacks = _writes(rescue.ask_stacks)  # ask a worker for the stacks of its runs
    tell_stacks = _writes(rescue.tell_stacks)
    leave = _writes(rescue.leave)  # deregister a worker: jobs that it still holds did not kill it
    report = _writes_batch(rescue.report)  # progress of runs; a locked row is skipped
    log = _writes_batch(log_lines.log)  # lines of deleted jobs are dropped
    roll_up = _writes_batch(rollups.roll_up)
    probe = _writes(rollups.probe)  # raises if the database cannot be written

    def beat(self, worker: str, info: str) -> Beat:
        """Write a worker's heartbeat; return whether it counts as alive, and its claims."""
        return self.run_vital(lambda: rescue.beat(self.dialect, worker, info))

    def sweep(self, dead: Sequence[Seen], *, limit: int) -> Swept:
        """Declare workers dead that sent no heartbeat since they were seen, for good, and return the
        jobs of dead workers to the queues."""
        return self.write(rescue.sweep, dead, limit, WEEK)

    def record_verdict(self, claim: Claim, verdict: str) -> None:
        """Store the end of a run whose worker cannot record it, for the worker of the next claim."""
        self.run(lambda: rescue.record_verdict(claim, verdict), write=True)

    # Reads: they take no lock, and scan no more rows when the table grows.

    get = _reads(read_scripts.get)  # jobs with their bodies, in the order of the ids
    search = _reads(read_scripts.search)  # a page of jobs; it may be short: the search is bounded
    workers = _reads(read_scripts.workers)  # also dead ones
    queues = _reads(read_scripts.queues)
    suspects = _reads(read_scripts.suspects)  # bounded; paused queues are left out
    backlog = _reads(read_backlog)  # queues and types of pending jobs: a few seeks for each
    next_due = _reads(commands.next_due)
    stacks = _reads(rescue.stacks)  # of a worker's runs, as last stored
    shares = _reads(rollups.shares)  # how many jobs of each queue each worker finished
    overdue = _reads(rollups.overdue)  # the job that should have been made pending the longest ago

    def counts(self, *, cap: int = 10_000) -> dict[Status, int]:
        """Return the number of jobs in each status, each counted up to `cap`."""
        return self.run(lambda: read_scripts.counts(Status, cap), write=False)

    def limits(self, *, cap: int = 10_000) -> list[LimitInfo]:
        """Return all limits, with their running and waiting jobs, each counted up to `cap`."""
        return self.run(lambda: limits.listing(cap), write=False)

    def held(self, worker: str) -> list[Held]:
        """Return the claims of a worker, according to the database."""
        return self.run(lambda: rescue.held(worker), write=False)

    def now(self) -> datetime:
        """Return the time by the clock that writes the times in this database."""
        return self.clock.now()

    def series(
        self, since: datetime, *, type: str | None = None, queue: str | None = None
    ) -> list[Point]:
        """Return the figures of each minute since a time in which runs ended."""
        now = self.now()
        if type is not None or queue is not None:  # there may be many of these to remember
            return self.read(rollups.series, since, now + HOUR, type, queue)
        return self._points.all(since, now)

    def totals(self, since: datetime) -> list[Total]:
        """Return the figures since a time by task and queue, with histograms of waits and durations."""
        return self._totals.all(since, self.now())

    def is_followed(
        self,
        ids: Sequence[str] | None = None,
        kinds: Iterable[EventKind] = tuple(EventKind),
        deadline: float | None = None,
    ) -> bool:
        """Return whether a follower would get an event of one of these kinds about one of these jobs
        (None: any job), as far as was known within the last second."""
        followers = self.dialect.followers
        if followers.is_stale:
            self.run(lambda: outbox.read_followers(self.dialect), write=False, deadline=deadline)
        return followers.listens(ids, kinds)


def _opening_call() -> str:
    """Return which function of ours was called, and the line that called it."""
    frame, name = sys._getframe(), ""
    while frame.f_back is not None:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] not in ("holdfast", "contextlib"):
            break
        name = frame.f_code.co_name
        frame = frame.f_back
    if frame.f_globals.get("__name__", "").startswith(("threading", "concurrent.")):
        return f"{name}() in thread {threading.current_thread().name!r}"
    return f"{name}() at {frame.f_code.co_filename}:{frame.f_lineno}"
