"""What the two engines share: every verb is a script, handed to `run`.

An engine adds its connections: `run` (a transaction of our own, repeated where that is safe),
`adopt` (the caller's transaction), `insert` (its quickest way in), wake-ups and migrations.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

from holdfast.core.clock import Clock
from holdfast.core.ids import floor_id
from holdfast.engine import access
from holdfast.engine.claiming import Claiming
from holdfast.engine.fork_guard import ForkGuard
from holdfast.engine.records import (
    Beat,
    Filter,
    Held,
    Lease,
    LimitInfo,
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
from holdfast.engine.unknown_outcome import until_known
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
from holdfast.jobs import commands, log_lines, retention
from holdfast.jobs import finish as finish_scripts
from holdfast.jobs import read as read_scripts
from holdfast.jobs import rescue as worker_scripts
from holdfast.jobs.job import FINISHED, Claim, EventKind, Job, LogLine, NewJob, Status
from holdfast.jobs.outcome import WEEK, Applied, Finish, Outcome
from holdfast.limits import scripts as limit_scripts
from holdfast.limits.limit import Declared
from holdfast.monitoring import rollups as rollup_scripts
from holdfast.monitoring.hourly_cache import HOUR, HourlyCache
from holdfast.monitoring.metrics import Point, Rollup, Share, Total
from holdfast.schedules import scripts as schedule_scripts
from holdfast.workflows import scripts as workflow_scripts

logger = logging.getLogger("holdfast.engine")

TIMEOUT = 30.0  # seconds for one call, unless the application says otherwise
DEAD_WORKERS_KEPT = 86400.0
# What speaks of the values in a finish, and of nothing else: sent again, it would be refused again.
_REFUSALS = (InvalidInput, KeyConflict, Refused)


class BaseEngine(Claiming):
    """The verbs. See `Engine` for what each promises."""

    def __init__(self, clock: Clock, timeout: float = TIMEOUT) -> None:
        """`timeout`: seconds that a call waits for the database before it raises."""
        super().__init__()
        self.clock = clock
        self._timeout = timeout
        self._fork_guard = ForkGuard()
        self._closed = False
        self._pruned_to: dict[Status, str] = {}
        self._totals, self._points = HourlyCache[Total](), HourlyCache[Point]()
        self._repaired_to = self._keys_pruned_to = ""
        self._orphans_to = self._flows_to = read_scripts.FIRST_ID

    def run_vital(self, script: Callable[[], Script[T]]) -> T:
        """Run a write that must not wait behind others of this process: a sign of life."""
        return self.run(script, write=True)

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

    def finish(self, finishes: Sequence[Finish]) -> dict[Claim, Applied]:
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
        return self.run(lambda: finish_scripts.finish(self.dialect, finishes), write=True)

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

    def _advance(self, workflows: Collection[str]) -> None:
        """What follows from these ends. If it cannot be done now, the next look does it."""
        if workflows:
            with suppress(DatabaseBusy, DatabaseUnavailable):
                self.run(lambda: workflow_scripts.advance(self.dialect, workflows), write=True)

    def advance(self, limit: int) -> int:
        changed_workflows = self.run(lambda: workflow_scripts.changed_workflows(limit), write=False)
        if not changed_workflows:
            return 0
        done = self.run(
            lambda: workflow_scripts.advance(self.dialect, changed_workflows), write=True
        )
        return done.freed + done.dropped

    def find_orphans(self, limit: int) -> None:
        self._orphans_to = self.run(
            lambda: workflow_scripts.orphans(self._orphans_to, limit), write=True
        )
        self._flows_to = self.run(
            lambda: workflow_scripts.abandoned(self.dialect, self._flows_to, limit), write=True
        )
        self.run(lambda: workflow_scripts.prune(self.dialect, limit), write=True)

    def is_followed(
        self,
        ids: Sequence[str] | None = None,
        kinds: Iterable[EventKind] = tuple(EventKind),
        deadline: float | None = None,
    ) -> bool:
        audience = self.dialect.audience
        if audience.is_stale:
            self._run(lambda: outbox.look(self.dialect), False, deadline)
        return audience.listens(ids, kinds)

    def prune_events(self) -> int:
        if not self.run(outbox.is_kept, write=False):
            return 0
        return self.run(lambda: outbox.prune(self.dialect, outbox.PRUNED), write=True)

    def prune_access(self) -> int:
        return self.run(lambda: access.prune(self.dialect, access.PRUNED), write=True)

    def hint(self, queues: frozenset[str]) -> None:
        """Where a commit does not tell others by itself, an engine does."""

    def promote(self, limit: int) -> Promoted:
        return self.run(lambda: commands.promote(self.dialect, limit), write=True)

    def now(self) -> datetime:
        return self.clock.now()

    def next_due(self) -> float | None:
        return self.run(lambda: commands.next_due(self.dialect), write=False)

    def declare(self, limits: Sequence[Declared]) -> None:
        self.run(lambda: limit_scripts.declare(self.dialect, limits), write=True)

    def repair(self, limit: int) -> int:
        if not self.run(limit_scripts.is_waited_for, write=False):
            return 0
        repaired = self.run(
            lambda: limit_scripts.repair(self.dialect, self._repaired_to, limit), write=True
        )
        self._repaired_to = repaired.after
        return repaired.moved

    def prune_keys(self, limit: int) -> None:
        self._keys_pruned_to = self.run(
            lambda: limit_scripts.prune_keys(self._keys_pruned_to, limit), write=True
        )

    def beat(self, worker: str, info: str) -> Beat:
        return self.run_vital(lambda: worker_scripts.beat(self.dialect, worker, info))

    def ask_stacks(self, worker: str) -> bool:
        return self.run(lambda: worker_scripts.ask_stacks(self.dialect, worker), write=True)

    def tell_stacks(self, worker: str, text: str) -> None:
        self.run(lambda: worker_scripts.tell_stacks(self.dialect, worker, text), write=True)

    def stacks(self, worker: str) -> Stacks | None:
        return self.run(lambda: worker_scripts.stacks(self.dialect, worker), write=False)

    def held(self, worker: str) -> list[Held]:
        return self.run(lambda: worker_scripts.held(worker), write=False)

    def leave(self, worker: str) -> None:
        self.run(lambda: worker_scripts.leave(self.dialect, worker), write=True)

    def record_verdict(self, claim: Claim, verdict: str) -> None:
        self.run(lambda: worker_scripts.record_verdict(claim, verdict), write=True)

    def report(self, reports: Sequence[Report]) -> None:
        if reports:
            self.run(lambda: worker_scripts.report(self.dialect, reports), write=True)

    def log(self, lines: Sequence[LogLine]) -> None:
        if lines:
            self.run(lambda: log_lines.log(self.dialect, lines), write=True)

    def sweep(self, dead: Sequence[Seen], *, limit: int) -> Swept:
        return self.run(lambda: worker_scripts.sweep(self.dialect, dead, limit, WEEK), write=True)

    def prune(self, wanted: Retention, *, limit: int, leases: int = 10) -> Pruned:
        if not self._pruned_to:  # a new round
            self._pruned_to = dict.fromkeys(sorted(FINISHED), read_scripts.FIRST_ID)
        gone, leased = 0, list[Lease]()
        for status, after in list(self._pruned_to.items()):
            if gone >= limit or len(leased) >= leases:
                break
            look = self.run(
                partial(
                    retention.prune,
                    *(self.dialect, status, wanted),
                    after=after,
                    before=floor_id(self.clock.now() - timedelta(seconds=wanted.keep[status])),
                    limit=limit - gone,
                    leases=leases - len(leased),
                ),
                write=True,
            )
            gone += look.gone
            leased += look.leased
            if look.edge is None:
                self._pruned_to.pop(status, None)  # another pruner of this process may have
            else:
                self._pruned_to[status] = look.edge
        if not self._pruned_to:
            self.run(
                lambda: worker_scripts.prune_workers(self.dialect, DEAD_WORKERS_KEPT), write=True
            )
        return Pruned(gone, leased, more=bool(self._pruned_to))

    def prune_leased(self, leases: Sequence[Lease]) -> list[str]:
        return self.run(lambda: retention.prune_leased(leases), write=True) if leases else []

    def put_off(self, kept: Sequence[PutOff]) -> None:
        if kept:
            self.run(lambda: retention.put_off(self.dialect, kept), write=True)

    def declare_hooks(self, types: Collection[str], gone: Collection[str] = ()) -> None:
        if types or gone:
            self.run(lambda: retention.declare_hooks(types, gone), write=True)

    def hooks(self) -> list[str]:
        return self.run(retention.hooks, write=False)

    def limits(self, *, cap: int = 10_000) -> list[LimitInfo]:
        return self.run(lambda: limit_scripts.listing(cap), write=False)

    # the Inspector

    def disabled_schedules(self, *, limit: int = 100) -> list[tuple[str, str, str]]:
        return self.run(lambda: schedule_scripts.disabled(limit), write=False)

    def suspects(self) -> list[Suspects]:
        return self.run(lambda: read_scripts.suspects(self.dialect), write=False)

    def get(self, ids: Sequence[str]) -> list[Job]:
        return self.run(lambda: read_scripts.get(self.dialect, ids), write=False)

    def search(self, filter: Filter, *, after: str | None = None, limit: int = 100) -> Page:
        return self.run(
            lambda: read_scripts.search(self.dialect, filter, after, limit), write=False
        )

    def counts(self, *, cap: int = 10_000) -> dict[Status, int]:
        return self.run(lambda: read_scripts.counts(Status, cap), write=False)

    def workers(self) -> list[WorkerInfo]:
        return self.run(lambda: read_scripts.workers(self.dialect), write=False)

    def queues(self, *, cap: int = 10_000) -> list[QueueInfo]:
        return self.run(lambda: read_scripts.queues(self.dialect, cap), write=False)

    # figures

    def roll_up(self, rollups: Sequence[Rollup]) -> None:
        if rollups:
            self.run(lambda: rollup_scripts.roll_up(self.dialect, rollups), write=True)

    def prune_rollups(self) -> int:
        return self.run(lambda: rollup_scripts.prune(self.dialect), write=True)

    def series(
        self, since: datetime, *, type: str | None = None, queue: str | None = None
    ) -> list[Point]:
        def read(start: datetime, end: datetime) -> list[Point]:
            return self.run(
                lambda: rollup_scripts.series(self.dialect, start, end, type, queue), write=False
            )

        now = self.now()
        if type is not None or queue is not None:  # there may be many of these to remember
            return read(since, now + HOUR)
        return self._points.all(since, now, read)

    def totals(self, since: datetime) -> list[Total]:
        def read(start: datetime, end: datetime) -> list[Total]:
            return self.run(lambda: rollup_scripts.totals(self.dialect, start, end), write=False)

        return self._totals.all(since, self.now(), read)

    def shares(self, since: datetime) -> list[Share]:
        return self.run(lambda: rollup_scripts.shares(self.dialect, since), write=False)

    def overdue(self) -> tuple[str, str, datetime] | None:
        return self.run(lambda: rollup_scripts.overdue(self.dialect), write=False)

    def probe(self) -> None:
        self.run(lambda: rollup_scripts.probe(self.dialect), write=True)
