"""The seam: what a job queue asks of a database, in verbs that take batches.

No SQL and no driver's type leaves an engine. SQLite and PostgreSQL each have their own statements
and connections; the scripts of jobs, limits, schedules and so on are shared, and one suite of tests
proves that both behave alike. Every write is one transaction; a verb that raises changed nothing.

Beside its own verbs an engine has a `claimer` (how a worker takes jobs), a `maintenance` (what is done
at intervals) and a `doctor` (how the database is set up).
"""

import logging
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Concatenate

from holdfast.core.clock import Clock
from holdfast.engine.claimer import Claimer
from holdfast.engine.dialect import Dialect
from holdfast.engine.doctor import Doctor
from holdfast.engine.fork_guard import ForkGuard
from holdfast.engine.inspector import Inspector, P
from holdfast.engine.maintenance import Maintenance
from holdfast.engine.records import Beat, Promoted, Report, Seen, Swept
from holdfast.engine.script import Script, T
from holdfast.engine.transaction import Transaction
from holdfast.engine.unknown_outcome import until_known
from holdfast.engine.wakeups import Wakeups
from holdfast.errors import (
    AppClosed,
    DatabaseBusy,
    DatabaseUnavailable,
    InvalidInput,
    KeyConflict,
    Refused,
    StorageError,
)
from holdfast.events import outbox
from holdfast.jobs import commands, log_lines, rescue
from holdfast.jobs import finish as finish_scripts
from holdfast.jobs.job import Claim, EventKind, Job, LogLine, NewJob
from holdfast.jobs.outcome import WEEK, Applied, Finish, Outcome
from holdfast.limits import scripts as limits
from holdfast.limits.limit import Declared
from holdfast.monitoring import rollups
from holdfast.monitoring.metrics import Rollup
from holdfast.workflows import scripts as workflows

logger = logging.getLogger("holdfast.engine")

TIMEOUT = 30.0  # seconds for one call, unless the application says otherwise
# What speaks of the values in a finish, and of nothing else: sent again, it would be refused again.
_REFUSALS = (InvalidInput, KeyConflict, Refused)


class Engine(Inspector):
    """One database that holds jobs."""

    claimer: Claimer
    doctor: Doctor

    def __init__(self, clock: Clock, timeout: float = TIMEOUT) -> None:
        """`timeout`: seconds that a call waits for the database before it raises."""
        super().__init__()
        self.clock = clock
        self.maintenance = Maintenance(self)
        self._timeout = timeout
        self._fork_guard = ForkGuard()
        self._closed = False

    # What each engine does in its own way.

    @abstractmethod
    def migrate(self) -> list[str]:
        """Bring the tables up to this release; the migrations applied. Safe when many start at once."""

    @abstractmethod
    def migrations_sql(self) -> str:
        """All migrations as SQL text, for those who apply them themselves."""

    @abstractmethod
    def open(self) -> None:
        """Connect and check the tables, which the first verb would do. Idempotent."""

    @abstractmethod
    def close(self) -> None:
        """Release connections and threads; idempotent."""

    @abstractmethod
    def insert(self, jobs: Sequence[NewJob], *, notify: bool = True) -> list[Job]:
        """Add jobs, all or none. A live key is settled by each job's `on_conflict`, an idempotency key
        that is there by returning the job that has it; `job.created` tells. A job whose id exists
        already was sent before, and counts as created."""

    @abstractmethod
    def adopt(self, tx: Any) -> Transaction:
        """Recognise a caller's open transaction, or refuse it with the reason."""

    @abstractmethod
    async def aadopt(self, tx: Any) -> Transaction:
        """The same, for kinds that must be asked asynchronously."""

    @abstractmethod
    def wakeups(self, *, events: bool = False) -> Wakeups:
        """A new subscription to hints; close it. `events`: hints that there are new events."""

    @abstractmethod
    def _run(
        self, script: Callable[[], Script[T]], write: bool, deadline: float | None = None
    ) -> T:
        """`deadline`: by the monotonic clock, if it is not to be the timeout of a call from now on."""

    def hint(self, queues: frozenset[str]) -> None:
        """Let others look at these queues ("*": all), soon. (On SQLite each commit does so.)"""

    def lock_holders(self) -> set[int]:
        """The processes of this machine that hold a lock without which nobody can write; empty where
        there is none, or it cannot be told. Reads no database, so that it never waits."""
        return set()

    # Running scripts.

    def run(self, script: Callable[[], Script[T]], *, write: bool) -> T:
        return self._run(script, write)

    def run_vital(self, script: Callable[[], Script[T]]) -> T:
        """Run a write that must not wait behind others of this process: a heartbeat."""
        return self.run(script, write=True)

    def write(
        self,
        script: Callable[Concatenate[Dialect, P], Script[T]],
        *args: P.args,
        **options: P.kwargs,
    ) -> T:
        """Run a script in a transaction of our own; it is given the dialect first."""
        return self.run(lambda: script(self.dialect, *args, **options), write=True)

    def check_usable(self) -> None:
        """Raise if it is closed, or was opened before a fork."""
        if self._closed:
            raise AppClosed("this Holdfast is closed: make a new one")
        self._fork_guard.check()

    def _repeated(self, jobs: Sequence[NewJob], insert: Callable[[float], list[Job]]) -> list[Job]:
        """Insert jobs, and send them again while nobody can tell whether they were committed."""
        script = partial(commands.insert, self.dialect, jobs, hint={job.queue for job in jobs})
        again = partial(self._run, script, True)
        return until_known(insert, again, jobs, self._timeout)

    # How runs end.

    def finish(self, finishes: Sequence[Finish]) -> dict[Claim, Applied]:
        """Write how runs ended, and what they enqueue, each only while its claim holds. A member
        that the database refuses fails alone."""
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
        """All in one transaction. If the database refuses it or cannot store it, each member alone: one
        that is refused harms no other, and one that is too large for a full disk delays no other."""
        try:
            return self._finish(finishes)
        except (*_REFUSALS, StorageError):
            if len(finishes) == 1:
                return self._finish_alone(finishes[0])
        results: dict[Claim, Applied] = {}
        failure: StorageError | None = None
        for member in finishes:
            try:
                results |= self._finish_alone(member)
            except StorageError as problem:
                failure = problem
                results[Claim(member.id, member.claim_no)] = Applied.UNWRITTEN
        if failure is not None and set(results.values()) == {Applied.UNWRITTEN}:
            raise failure
        return results

    def _finish(self, finishes: Sequence[Finish]) -> dict[Claim, Applied]:
        return self.write(finish_scripts.finish, finishes)

    def _finish_alone(self, finish: Finish) -> dict[Claim, Applied]:
        """The path that records a failure cannot itself fail: what the database refuses of a finish
        (a result, a chained job) is left out, and the job fails with the reason. Any other error
        means that the database is unavailable: it is raised, and the finish is sent again."""
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
            with suppress(DatabaseBusy, DatabaseUnavailable):
                self.write(workflows.advance, members_of)

    # What else workers write.

    def declare(self, declared: Sequence[Declared]) -> None:
        """Make known the limits that the code has."""
        self.write(limits.declare, declared)

    def promote(self, limit: int) -> Promoted:
        """Make due jobs pending; tells when to look again."""
        return self.write(commands.promote, limit)

    def beat(self, worker: str, info: str) -> Beat:
        """Write a worker's heartbeat; tells whether it counts as alive, and what it holds."""
        return self.run_vital(lambda: rescue.beat(self.dialect, worker, info))

    def ask_stacks(self, worker: str) -> bool:
        """Let a worker tell where its runs stand, with its next beat; False: it is not there."""
        return self.write(rescue.ask_stacks, worker)

    def tell_stacks(self, worker: str, text: str) -> None:
        """Write where a worker's runs stand."""
        self.write(rescue.tell_stacks, worker, text)

    def sweep(self, dead: Sequence[Seen], *, limit: int) -> Swept:
        """Declare workers dead that are still as silent as was seen, and give back what dead
        workers hold. Death is for good."""
        return self.write(rescue.sweep, dead, limit, WEEK)

    def leave(self, worker: str) -> None:
        """Deregister a worker that stops in good order: what it still holds, when it is swept, did not
        kill it."""
        self.write(rescue.leave, worker)

    def record_verdict(self, claim: Claim, verdict: str) -> None:
        """Write how a run ended for the worker that claims the job next: its own cannot record it."""
        self.run(lambda: rescue.record_verdict(claim, verdict), write=True)

    def report(self, reports: Sequence[Report]) -> None:
        """How far runs have come, each only while its claim holds; a row that is held is skipped."""
        if reports:
            self.write(rescue.report, reports)

    def log(self, lines: Sequence[LogLine]) -> None:
        """Keep lines that runs wrote; those whose job is gone are dropped, and one that was sent
        before stays as it is."""
        if lines:
            self.write(log_lines.log, lines)

    def roll_up(self, figures: Sequence[Rollup]) -> None:
        """Write what a worker did; a row that is there already is replaced."""
        if figures:
            self.write(rollups.roll_up, figures)

    def probe(self) -> None:
        """Commit a small write. Raises if the database takes none."""
        self.write(rollups.probe)

    def is_followed(
        self,
        ids: Sequence[str] | None = None,
        kinds: Iterable[EventKind] = tuple(EventKind),
        deadline: float | None = None,
    ) -> bool:
        """Would a follower get an event if one of these happened to one of these jobs, or to any? (As
        far as was known within the last second.)"""
        audience = self.dialect.audience
        if audience.is_stale:
            self._run(lambda: outbox.read_audience(self.dialect), False, deadline)
        return audience.listens(ids, kinds)
