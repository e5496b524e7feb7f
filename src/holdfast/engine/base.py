"""What the two engines share: every verb is a script, handed to `run`.

An engine adds its connections: `run` (a transaction of our own, repeated where that is safe),
`adopt` (the caller's transaction), `insert` (its quickest way in), wake-ups and migrations.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

from holdfast.clock import Clock
from holdfast.engine import (
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
    access,
    finishing,
    flows,
    inspection,
    limiting,
    liveness,
    logs,
    metering,
    outbox,
    retention,
    scheduling,
    verbs,
)
from holdfast.engine.fetching import Fetching
from holdfast.engine.hours import HOUR, Hours
from holdfast.engine.owner import Owner
from holdfast.engine.repeats import until_known
from holdfast.engine.script import Script, T
from holdfast.errors import (
    AppClosed,
    DatabaseBusy,
    DatabaseUnavailable,
    InvalidInput,
    KeyConflict,
    Refused,
    StorageError,
)
from holdfast.ids import floor_id
from holdfast.job import FINISHED, Attempt, Claim, EventKind, Job, LogLine, NewJob, Status
from holdfast.limits import Declared
from holdfast.metrics import Point, Rollup, Share, Total
from holdfast.outcome import WEEK, Applied, Finish, Outcome

logger = logging.getLogger("holdfast.engine")

TIMEOUT = 30.0  # seconds for one call, unless the application says otherwise
DEAD_WORKERS_KEPT = 86400.0
# What speaks of the values in a finish, and of nothing else: sent again, it would be refused again.
_REFUSALS = (InvalidInput, KeyConflict, Refused)


class BaseEngine(Fetching):
    """The verbs. See `Engine` for what each promises."""

    def __init__(self, clock: Clock, timeout: float = TIMEOUT) -> None:
        """`timeout`: seconds that a call waits for the database before it raises."""
        super().__init__()
        self.clock = clock
        self._timeout = timeout
        self._owner = Owner()
        self._closed = False
        self._pruned_to: dict[Status, str] = {}
        self._totals, self._points = Hours[Total](), Hours[Point]()
        self._repaired_to = self._keys_pruned_to = ""
        self._orphans_to = self._flows_to = inspection.FIRST_ID

    def run_vital(self, script: Callable[[], Script[T]]) -> T:
        """Run a write that must not wait behind others of this process: a sign of life."""
        return self.run(script, write=True)

    def check_usable(self) -> None:
        """Raise if it is closed, or was opened before a fork."""
        if self._closed:
            raise AppClosed("this Holdfast is closed: make a new one")
        self._owner.check()

    def _repeated(self, jobs: Sequence[NewJob], insert: Callable[[float], list[Job]]) -> list[Job]:
        """Insert jobs, and send them again while nobody can tell whether they were committed."""
        script = partial(verbs.insert, self.dialect, jobs, hint={job.queue for job in jobs})
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
        return self.run(lambda: finishing.finish(self.dialect, finishes), write=True)

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
                self.run(lambda: flows.advance(self.dialect, workflows), write=True)

    def advance(self, limit: int) -> int:
        stirred = self.run(lambda: flows.stirred(limit), write=False)
        if not stirred:
            return 0
        done = self.run(lambda: flows.advance(self.dialect, stirred), write=True)
        return done.freed + done.dropped

    def find_orphans(self, limit: int) -> None:
        self._orphans_to = self.run(lambda: flows.orphans(self._orphans_to, limit), write=True)
        self._flows_to = self.run(
            lambda: flows.abandoned(self.dialect, self._flows_to, limit), write=True
        )
        self.run(lambda: flows.prune(self.dialect, limit), write=True)

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
        return self.run(lambda: verbs.promote(self.dialect, limit), write=True)

    def now(self) -> datetime:
        return self.clock.now()

    def next_due(self) -> float | None:
        return self.run(lambda: verbs.next_due(self.dialect), write=False)

    def declare(self, limits: Sequence[Declared]) -> None:
        self.run(lambda: limiting.declare(self.dialect, limits), write=True)

    def repair(self, limit: int) -> int:
        if not self.run(limiting.is_waited_for, write=False):
            return 0
        repaired = self.run(
            lambda: limiting.repair(self.dialect, self._repaired_to, limit), write=True
        )
        self._repaired_to = repaired.after
        return repaired.moved

    def prune_keys(self, limit: int) -> None:
        self._keys_pruned_to = self.run(
            lambda: limiting.prune_keys(self._keys_pruned_to, limit), write=True
        )

    def beat(self, worker: str, info: str) -> Beat:
        return self.run_vital(lambda: liveness.beat(self.dialect, worker, info))

    def ask_stacks(self, worker: str) -> bool:
        return self.run(lambda: liveness.ask_stacks(self.dialect, worker), write=True)

    def tell_stacks(self, worker: str, text: str) -> None:
        self.run(lambda: liveness.tell_stacks(self.dialect, worker, text), write=True)

    def stacks(self, worker: str) -> Stacks | None:
        return self.run(lambda: liveness.stacks(self.dialect, worker), write=False)

    def held(self, worker: str) -> list[Held]:
        return self.run(lambda: liveness.held(worker), write=False)

    def leave(self, worker: str) -> None:
        self.run(lambda: liveness.leave(self.dialect, worker), write=True)

    def sentence(self, claim: Claim, verdict: str) -> None:
        self.run(lambda: liveness.sentence(claim, verdict), write=True)

    def report(self, reports: Sequence[Report]) -> None:
        if reports:
            self.run(lambda: liveness.report(self.dialect, reports), write=True)

    def log(self, lines: Sequence[LogLine]) -> None:
        if lines:
            self.run(lambda: logs.log(self.dialect, lines), write=True)

    def sweep(self, dead: Sequence[Seen], *, limit: int) -> Swept:
        return self.run(lambda: liveness.sweep(self.dialect, dead, limit, WEEK), write=True)

    def prune(self, wanted: Retention, *, limit: int, leases: int = 10) -> Pruned:
        if not self._pruned_to:  # a new round
            self._pruned_to = dict.fromkeys(sorted(FINISHED), inspection.FIRST_ID)
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
            self.run(lambda: liveness.prune_workers(self.dialect, DEAD_WORKERS_KEPT), write=True)
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

    def cancel(self, ids: Sequence[str], *, keep: float) -> list[str]:
        return self.run(lambda: verbs.cancel(self.dialect, ids, keep), write=True)

    def retry(self, ids: Sequence[str]) -> list[str]:
        try:
            return self.run(lambda: verbs.retry(self.dialect, ids), write=True)
        except KeyConflict:  # an enqueue of the same key raced, and the index refused the batch
            return [id for id in ids if self._retry_alone(id)]

    def _retry_alone(self, id: str) -> bool:
        try:
            return bool(self.run(lambda: verbs.retry(self.dialect, [id]), write=True))
        except KeyConflict:
            return False

    def delete(self, ids: Sequence[str]) -> list[str]:
        return self.run(lambda: verbs.delete(self.dialect, ids), write=True)

    def pause(self, queue: str, paused: bool) -> None:
        self.run(lambda: verbs.pause(self.dialect, queue, paused), write=True)

    def limits(self, *, cap: int = 10_000) -> list[LimitInfo]:
        return self.run(lambda: limiting.listing(cap), write=False)

    # the Inspector

    def disabled_schedules(self, *, limit: int = 100) -> list[tuple[str, str, str]]:
        return self.run(lambda: scheduling.disabled(limit), write=False)

    def suspects(self) -> list[Suspects]:
        return self.run(lambda: inspection.suspects(self.dialect), write=False)

    def get(self, ids: Sequence[str]) -> list[Job]:
        return self.run(lambda: inspection.get(self.dialect, ids), write=False)

    def attempts(self, id: str) -> list[Attempt]:
        return self.run(lambda: inspection.attempts(self.dialect, id), write=False)

    def logs(
        self, id: str, *, after: logs.Place | None = None, limit: int = 1000, newest: bool = False
    ) -> list[LogLine]:
        return self.run(lambda: logs.logs(self.dialect, id, after, limit, newest), write=False)

    def search(self, filter: Filter, *, after: str | None = None, limit: int = 100) -> Page:
        return self.run(lambda: inspection.search(self.dialect, filter, after, limit), write=False)

    def counts(self, *, cap: int = 10_000) -> dict[Status, int]:
        return self.run(lambda: inspection.counts(Status, cap), write=False)

    def workers(self) -> list[WorkerInfo]:
        return self.run(lambda: inspection.workers(self.dialect), write=False)

    def queues(self, *, cap: int = 10_000) -> list[QueueInfo]:
        return self.run(lambda: inspection.queues(self.dialect, cap), write=False)

    # figures

    def roll_up(self, rollups: Sequence[Rollup]) -> None:
        if rollups:
            self.run(lambda: metering.roll_up(self.dialect, rollups), write=True)

    def prune_rollups(self) -> int:
        return self.run(lambda: metering.prune(self.dialect), write=True)

    def series(
        self, since: datetime, *, type: str | None = None, queue: str | None = None
    ) -> list[Point]:
        def read(start: datetime, end: datetime) -> list[Point]:
            return self.run(
                lambda: metering.series(self.dialect, start, end, type, queue), write=False
            )

        now = self.now()
        if type is not None or queue is not None:  # there may be many of these to remember
            return read(since, now + HOUR)
        return self._points.all(since, now, read)

    def totals(self, since: datetime) -> list[Total]:
        def read(start: datetime, end: datetime) -> list[Total]:
            return self.run(lambda: metering.totals(self.dialect, start, end), write=False)

        return self._totals.all(since, self.now(), read)

    def shares(self, since: datetime) -> list[Share]:
        return self.run(lambda: metering.shares(self.dialect, since), write=False)

    def overdue(self) -> tuple[str, str, datetime] | None:
        return self.run(lambda: metering.overdue(self.dialect), write=False)

    def probe(self) -> None:
        self.run(lambda: metering.probe(self.dialect), write=True)
