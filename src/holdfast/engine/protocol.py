"""The seam: what a job queue asks of a database, in verbs that take batches.

No SQL and no driver's type leaves an engine. SQLite and PostgreSQL each have their own statements
and connections; the scripts of jobs, limits, schedules and so on are shared, and one conformance suite
proves that both behave alike. Every write is one transaction; a verb that raises changed nothing.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from holdfast.core.clock import Clock
from holdfast.engine.dialect import Dialect
from holdfast.engine.records import (
    Beat,
    Fetched,
    Filter,
    Finding,
    Held,
    Lease,
    LimitInfo,
    Measures,
    Page,
    Promoted,
    Pruned,
    PutOff,
    QueueInfo,
    Report,
    Retention,
    Seen,
    Stacks,
    Suspects,
    Swept,
    WorkerInfo,
)
from holdfast.engine.script import Script, T
from holdfast.jobs.job import Claim, EventKind, Job, LogLine, NewJob, Status
from holdfast.jobs.outcome import Applied, Finish
from holdfast.limits.limit import Declared, Rule
from holdfast.monitoring.metrics import Point, Rollup, Share, Total

NO_RULES: Mapping[str, Rule] = {}


class Inspector(Protocol):
    """What may be read: never a lock, never a scan that grows with the table."""

    def get(self, ids: Sequence[str]) -> list[Job]:
        """Whole jobs, in the order of the ids; unknown ids are left out."""

    def search(self, filter: Filter, *, after: str | None = None, limit: int = 100) -> Page:
        """A page of jobs without bodies, the newest first. It looks at a bounded number of rows, so
        a page may be short although more follow: `page.next` tells."""

    def counts(self, *, cap: int = 10_000) -> dict[Status, int]:
        """How many jobs are in each status, each counted up to `cap`."""

    def workers(self) -> list[WorkerInfo]:
        """Every worker that is remembered, dead ones too."""

    def queues(self, *, cap: int = 10_000) -> list[QueueInfo]:
        """The queues that hold pending jobs or were ever paused."""

    def backlog(self, *, limit: int = 1000) -> list[tuple[str, str, datetime]]:
        """What is pending: each queue and type, with when the longest waiting one was due. (Once
        for each priority that waits, the 50 first and the last: a seek each, however many jobs.)"""

    def hooks(self) -> list[str]:
        """The tasks whose finished jobs may go only after a hook was called."""

    def limits(self, *, cap: int = 10_000) -> list[LimitInfo]:
        """Every limit, with what runs under it and what waits for it, counted up to `cap`."""

    def series(
        self, since: datetime, *, type: str | None = None, queue: str | None = None
    ) -> list[Point]:
        """What ended in each minute from this one on; minutes in which nothing did are left out."""

    def totals(self, since: datetime) -> list[Total]:
        """The same by task and queue, with how long they waited and ran."""

    def shares(self, since: datetime) -> list[Share]:
        """How many jobs of each queue each worker finished."""

    def overdue(self) -> tuple[str, str, datetime] | None:
        """What should have been made pending the longest ago: queue, type, and when it was due."""

    def now(self) -> datetime:
        """The clock by which times in this database are written: ages are measured by it."""

    def next_due(self) -> float | None:
        """Seconds until the next scheduled or retrying job is due; None: none waits."""

    def held(self, worker: str) -> list[Held]:
        """What a worker holds, by the database's word."""

    def stacks(self, worker: str) -> Stacks | None:
        """Where its runs stood when it was last asked; None: there is no such worker."""

    def disabled_schedules(self, *, limit: int = 100) -> list[tuple[str, str, str]]:
        """Recurring jobs that were not disabled by an operator: task, key, and why."""

    def suspects(self) -> list[Suspects]:
        """How many pending jobs have deaths on record, by queue, type and level (a bounded look; paused
        queues are left out)."""


class Wakeups(Protocol):
    """Hints that something may be due. Polling alone is always correct; this makes it quick."""

    def wait(self, timeout: float) -> frozenset[str]:
        """The queues to look at, `{"*"}` for all of them; empty when the time is up."""

    def wake(self) -> None:
        """End the wait of another thread of this process: everything is to be looked at."""

    def nudge(self) -> None:
        """End it without a hint: the other thread knows what for."""

    def close(self) -> None: ...


class Transaction(Protocol):
    """A caller's open transaction, ready to carry scripts."""

    is_async: bool

    def run(self, script: Script[T]) -> T:
        """Run a script inside it; whom it hints at is woken when it commits."""

    async def arun(self, script: Script[T]) -> T: ...


class Engine(Inspector, Protocol):
    """One database that holds jobs."""

    clock: Clock
    dialect: Dialect

    def migrate(self) -> list[str]:
        """Bring the tables up to this release; the migrations applied. Safe when many start at once."""

    def migrations_sql(self) -> str:
        """All migrations as SQL text, for those who apply them themselves."""

    def diagnose(self) -> list[Finding]:
        """How this database is set up, for an operator: what is well and what is not, with remedies.
        Changes nothing, and tells of a database that cannot be reached instead of raising."""

    def measure(self) -> Measures:
        """How large it is, as far as that costs little to know, and which migrations it has had."""

    def open(self) -> None:
        """Connect and check the tables, which the first verb would do. Idempotent."""

    def close(self) -> None:
        """Release connections and threads; idempotent."""

    def insert(self, jobs: Sequence[NewJob], *, notify: bool = True) -> list[Job]:
        """Add jobs, all or none. A live key is settled by each job's `on_conflict`, an idempotency key
        that is there by returning the job that has it; `job.created` tells. A job whose id exists
        already was sent before, and counts as created."""

    def claim(self, queue: str, limit: int, *, worker: str, types: Sequence[str]) -> list[Job]:
        """Take up to `limit` pending jobs of these types, in the order of running. A dead or
        unknown worker, and a paused queue, get nothing."""

    def fetch(
        self,
        queue: str,
        limit: int,
        *,
        worker: str,
        types: Sequence[str],
        rules: Mapping[str, Rule] = NO_RULES,
    ) -> Fetched:
        """The same for a worker that comes again and again: it may get less than there is, soon.
        `rules`: the limits of types; a queue's own limit is always kept."""

    def claim_suspects(
        self,
        queues: Sequence[str],
        limit: int,
        *,
        level: int | None = None,
        worker: str,
        types: Sequence[str],
        rules: Mapping[str, Rule] = NO_RULES,
    ) -> list[Job]:
        """Take up to `limit` of the jobs with deaths on record, which `claim` passes over; of this
        level (decision 0021), or of any. Limits are kept."""

    def hint(self, queues: frozenset[str]) -> None:
        """Let others look at these queues ("*": all), soon."""

    def declare(self, limits: Sequence[Declared]) -> None:
        """Make known the limits that the code has."""

    def repair(self, limit: int) -> int:
        """Put back in line what waits for a key that has room, though nobody has said so; how many. A
        look at some keys, the next ones at the next call."""

    def advance(self, limit: int) -> int:
        """Draw the consequences of what has ended, or was added, in workflows, some at a time; how many
        jobs may run now, or are cancelled. (`finish` does so for the jobs that it ends.)"""

    def find_orphans(self, limit: int) -> None:
        """Look again at jobs that wait for one whose row is gone, and at workflows whose last job is,
        some at a time; and forget workflows of which nothing is left."""

    def prune_keys(self, limit: int) -> None:
        """Forget some of the keys that nobody uses."""

    def finish(self, finishes: Sequence[Finish]) -> dict[Claim, Applied]:
        """Write how runs ended, and what they enqueue, each only while its claim holds. A member
        that the database refuses fails alone."""

    def promote(self, limit: int) -> Promoted:
        """Make due jobs pending; tells when to look again."""

    def beat(self, worker: str, info: str) -> Beat:
        """A worker's sign of life; tells whether it counts as alive, and what it holds."""

    def ask_stacks(self, worker: str) -> bool:
        """Let a worker tell where its runs stand, with its next beat; False: it is not there."""

    def tell_stacks(self, worker: str, text: str) -> None:
        """Where they stand."""

    def lock_holders(self) -> set[int]:
        """The processes of this machine that hold a lock without which nobody can write; empty where
        there is none, or it cannot be told. Reads no database, so that it never waits."""
        return set()

    def sweep(self, dead: Sequence[Seen], *, limit: int) -> Swept:
        """Declare workers dead that are still as silent as was seen, and give back what dead
        workers hold. Death is for good."""

    def leave(self, worker: str) -> None:
        """A worker goes in good order: what it still holds, when it is swept, did not kill it."""

    def record_verdict(self, claim: Claim, verdict: str) -> None:
        """Leave word how a run ended, for whoever claims the job next: its own worker cannot say."""

    def report(self, reports: Sequence[Report]) -> None:
        """How far runs have come, each only while its claim holds; a row that is held is skipped."""

    def log(self, lines: Sequence[LogLine]) -> None:
        """Keep lines that runs wrote; those whose job is gone are dropped, and one that was sent
        before stays as it is."""

    def prune(self, wanted: Retention, *, limit: int, leases: int = 10) -> Pruned:
        """Delete finished jobs whose time is over, and lease those for which the caller has to do
        something first. A bounded look, the next call goes on: `more` tells."""

    def prune_leased(self, leases: Sequence[Lease]) -> list[str]:
        """Delete what was leased, each only while its lease holds; the ids."""

    def put_off(self, kept: Sequence[PutOff]) -> None:
        """Keep what was leased and could not go."""

    def declare_hooks(self, types: Collection[str], gone: Collection[str] = ()) -> None:
        """Make known which tasks have a hook that comes before pruning, and which none any more."""

    def roll_up(self, rollups: Sequence[Rollup]) -> None:
        """Write what a worker did; a row that is there already is replaced."""

    def prune_rollups(self) -> int:
        """Forget the oldest minute of them, if its time is over; how many rows went."""

    def probe(self) -> None:
        """Commit a small write. Raises if the database takes none."""

    def wakeups(self, *, events: bool = False) -> Wakeups:
        """A new subscription to hints; close it. `events`: hints that there are new ones of these."""

    def is_followed(
        self, ids: Sequence[str] | None = None, kinds: Iterable[EventKind] = tuple(EventKind)
    ) -> bool:
        """Would somebody be told if one of these happened to one of these jobs, or to any? (As far as
        was known within the last second.)"""

    def prune_events(self) -> int:
        """Forget some of the events that nobody needs; how many."""

    def prune_access(self) -> int:
        """Forget some of the oldest entries of the audit log, and sessions that are over; how many."""

    def adopt(self, tx: Any) -> Transaction:
        """Recognise a caller's open transaction, or refuse it with the reason."""

    async def aadopt(self, tx: Any) -> Transaction:
        """The same, for kinds that must be asked asynchronously."""

    def run(self, script: Callable[[], Script[T]], *, write: bool) -> T:
        """Run a script in a transaction of our own. It may be run again from the start."""
