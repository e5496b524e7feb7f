"""What the two engines share: every verb is a script, handed to `run`.

An engine adds its connections: `run` (a transaction of our own, repeated where that is safe),
`adopt` (the caller's transaction), `insert` (its quickest way in), wake-ups and migrations.
"""

import os
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from holdfast.clock import Clock
from holdfast.engine import (
    NO_RULES,
    Beat,
    Engine,
    Fetched,
    Filter,
    Held,
    LimitInfo,
    Page,
    Promoted,
    QueueInfo,
    Report,
    Seen,
    Swept,
    WorkerInfo,
    claims,
    finishing,
    inspection,
    limiting,
    liveness,
    verbs,
)
from holdfast.engine.dialect import Dialect
from holdfast.engine.script import Script, T
from holdfast.errors import (
    AppClosed,
    DatabaseBusy,
    DatabaseUnavailable,
    HoldfastError,
    KeyConflict,
    UsedAfterFork,
)
from holdfast.ids import floor_id
from holdfast.job import FINISHED, Attempt, Claim, Job, Status
from holdfast.limits import QUEUE, Declared, Rule
from holdfast.outcome import WEEK, Applied, Finish, Outcome

DEAD_WORKERS_KEPT = 86400.0
SCAN = 1000  # jobs that a claim under limits looks at, at the most
_CROWDS = 2.0  # seconds between two looks whether a queue has got a limit


class BaseEngine(Engine):
    """The verbs. See `Engine` for what each promises."""

    dialect: Dialect

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._pid = os.getpid()
        self._closed = False
        self._pruned_to: dict[Status, str] = {}
        self._crowded: set[str] = set()  # queues with limits of their own
        self._crowds_at = 0.0
        self._flowing: set[str] = set()  # queues whose last claim took jobs under limits
        self._scan: dict[str, int] = {}
        self._repaired_to = self._keys_pruned_to = ""
        self._beginning: dict[str, Any] = {}

    def run_vital(self, script: Callable[[], Script[T]]) -> T:
        """Run a write that must not wait behind others of this process: a sign of life."""
        return self.run(script, write=True)

    @abstractmethod
    def run(self, script: Callable[[], Script[T]], *, write: bool) -> T: ...

    def check_usable(self) -> None:
        """Connections must not cross a fork: both sides would write on one socket or lock."""
        if self._closed:
            raise AppClosed("this Holdfast is closed: make a new one")
        if os.getpid() != self._pid:
            raise UsedAfterFork(
                f"this Holdfast was opened by process {self._pid} and is used after a fork by "
                f"{os.getpid()}: make it (or use it for the first time) in the child"
            )

    def claim(self, queue: str, limit: int, *, worker: str, types: Sequence[str]) -> list[Job]:
        wanted = [{"type": type, "limit": limit} for type in types]
        return self.run(
            lambda: claims.claim(self.dialect, queue, limit, worker, wanted), write=True
        )

    def fetch(
        self,
        queue: str,
        limit: int,
        *,
        worker: str,
        types: Sequence[str],
        rules: Mapping[str, Rule] = NO_RULES,
    ) -> Fetched:
        mine = {type: rules[type] for type in types if type in rules}
        crowded = queue in self._crowded
        found = Fetched([], False)
        if not crowded:
            if mine:
                found = self._fetch_mixed(queue, limit, worker, types, mine)
            else:
                found = self._fetch(queue, limit, worker, types)
            crowded = not found.jobs and not found.more and self._is_crowded(queue)
        if crowded:
            found = self._fetch_limited(queue, limit, worker, types, mine, crowded=True)
        return found

    def _fetch_mixed(
        self,
        queue: str,
        limit: int,
        worker: str,
        types: Sequence[str],
        rules: Mapping[str, Rule],
    ) -> Fetched:
        """Some types have limits. While none of those can run, the others are claimed as if there were
        none: to hold a limit costs a transaction of several statements."""
        if self.dialect.claims_in_one and queue not in self._flowing:
            ahead = self.run(lambda: claims.foresee(self.dialect, queue, rules), write=False)
            if not ahead.is_open:
                free = [type for type in types if type not in rules]
                found = self._fetch(queue, limit, worker, free) if free else Fetched([], False)
                return Fetched(found.jobs, found.more, ahead.due)
        found = self._fetch_limited(queue, limit, worker, types, rules, crowded=False)
        flows = any(job.limited for job in found.jobs)
        (self._flowing.add if flows else self._flowing.discard)(queue)
        return found

    def _fetch_others(self, queue: str, limit: int, worker: str, types: Sequence[str]) -> Fetched:
        """Somebody holds a limit and does not go on: what has none need not wait for that."""
        jobs = self._fetch(queue, limit, worker, types).jobs if types else []
        return Fetched(jobs, more=bool(jobs), due=0.1)

    def _fetch_limited(
        self,
        queue: str,
        limit: int,
        worker: str,
        types: Sequence[str],
        rules: Mapping[str, Rule],
        *,
        crowded: bool,
    ) -> Fetched:
        wanted = [{"type": type, **self._beginning} for type in types]
        scan = self._scan.get(queue, 0)
        try:
            limited = self.run(
                lambda: claims.claim_limited(
                    self.dialect, queue, limit, worker, wanted, rules, scan=scan, crowded=crowded
                ),
                write=True,
            )
        except DatabaseBusy:
            if not self.dialect.claims_in_one:
                raise  # the whole database is held, and not a key
            others = [type for type in types if type not in rules and not crowded]
            return self._fetch_others(queue, limit, worker, others)
        if limited.full and self.dialect.claims_in_one:
            self._look_again(limited.full)
        (self._crowded.add if limited.crowded else self._crowded.discard)(queue)
        self._scan[queue] = min(SCAN, max(100, 4 * scan)) if limited.parked else scan // 2
        return Fetched(limited.jobs, limited.more, limited.due)

    def _look_again(self, full: set[str]) -> None:
        """What ended while these were parked could not see them yet: whoever commits later of the two,
        a finish or a claim, finds what the other has done."""
        found = self.run(lambda: limiting.peek(self.dialect, full, "keyed"), write=False)
        self._release({key: room.left for key, room in found.items() if room.left})

    def _release(self, freed: Mapping[str, int]) -> None:
        """Let others run under these keys. Nothing is held for it, unless somebody waits."""
        waited_for = self.run(lambda: limiting.awaited(freed), write=False) if freed else {}
        if waited_for:
            self.run(lambda: limiting.release(self.dialect, waited_for), write=True)

    def _fetch(self, queue: str, limit: int, worker: str, types: Sequence[str]) -> Fetched:
        """Without limits."""
        jobs = self.claim(queue, limit, worker=worker, types=types)
        return Fetched(jobs, more=len(jobs) >= limit)

    def _is_crowded(self, queue: str) -> bool:
        """A queue with a limit of its own gives nothing to who does not ask for it: looked at now and
        then, when a claim was in vain."""
        now = time.monotonic()
        if now < self._crowds_at:
            return False
        self._crowds_at = now + _CROWDS
        name = QUEUE + queue
        script = partial(limiting.rooms, self.dialect, [name], "whole")
        return name in self.run(script, write=True)

    def finish(self, finishes: Sequence[Finish]) -> dict[Claim, Applied]:
        if not finishes:
            return {}
        try:
            return self._finish(finishes)
        except (DatabaseBusy, DatabaseUnavailable):
            raise
        except HoldfastError:
            results: dict[Claim, Applied] = {}
            for member in finishes:
                results |= self._finish_alone(member)
            return results

    def _finish(self, finishes: Sequence[Finish]) -> dict[Claim, Applied]:
        return self.run(lambda: finishing.finish(self.dialect, finishes), write=True)

    def _finish_alone(self, finish: Finish) -> dict[Claim, Applied]:
        """The path that records a failure cannot itself fail: what the database refuses of a finish
        (a result, a chained job) is left out, and the job fails with the reason."""
        try:
            return self._finish([finish])
        except (DatabaseBusy, DatabaseUnavailable):
            raise
        except HoldfastError as problem:
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
            )
            return self._finish([minimal])

    def hint(self, queues: frozenset[str]) -> None:
        """Where a commit does not tell others by itself, an engine does."""

    def promote(self, limit: int) -> Promoted:
        return self.run(lambda: verbs.promote(self.dialect, limit), write=True)

    def now(self) -> datetime:
        return self.clock.now()

    def next_due(self) -> float | None:
        return self.run(lambda: verbs.next_due(self.dialect), write=False)

    def claim_suspect(
        self,
        queues: Sequence[str],
        *,
        worker: str,
        types: Sequence[str],
        rules: Mapping[str, Rule] = NO_RULES,
    ) -> list[Job]:
        return self.run(
            lambda: claims.claim_suspect(self.dialect, queues, worker, types, rules), write=True
        )

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

    def held(self, worker: str) -> list[Held]:
        return self.run(lambda: liveness.held(worker), write=False)

    def leave(self, worker: str) -> None:
        self.run(lambda: liveness.leave(self.dialect, worker), write=True)

    def sentence(self, claim: Claim, verdict: str) -> None:
        self.run(lambda: liveness.sentence(claim, verdict), write=True)

    def report(self, reports: Sequence[Report]) -> None:
        if reports:
            self.run(lambda: liveness.report(self.dialect, reports), write=True)

    def sweep(self, dead: Sequence[Seen], *, limit: int) -> Swept:
        return self.run(lambda: liveness.sweep(self.dialect, dead, limit, WEEK), write=True)

    def prune(self, *, older_than: float, limit: int) -> int:
        before = floor_id(self.clock.now() - timedelta(seconds=older_than))
        total = 0
        for status in sorted(FINISHED):
            total += self._prune(status, before, limit - total)
            if total >= limit:
                return total
        self.run(lambda: liveness.prune_workers(self.dialect, DEAD_WORKERS_KEPT), write=True)
        return total

    def _prune(self, status: Status, before: str, limit: int) -> int:
        after = self._pruned_to.pop(status, inspection.FIRST_ID)
        gone, edge = self.run(
            lambda: verbs.prune(self.dialect, status, after=after, before=before, limit=limit),
            write=True,
        )
        if edge is not None:
            self._pruned_to[status] = edge
        return gone

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

    def suspects(self) -> list[tuple[str, str]]:
        return self.run(lambda: inspection.suspects(), write=False)

    def get(self, ids: Sequence[str]) -> list[Job]:
        return self.run(lambda: inspection.get(self.dialect, ids), write=False)

    def attempts(self, id: str) -> list[Attempt]:
        return self.run(lambda: inspection.attempts(self.dialect, id), write=False)

    def search(self, filter: Filter, *, after: str | None = None, limit: int = 100) -> Page:
        return self.run(lambda: inspection.search(self.dialect, filter, after, limit), write=False)

    def counts(self, *, cap: int = 10_000) -> dict[Status, int]:
        return self.run(lambda: inspection.counts(self.dialect, cap), write=False)

    def workers(self) -> list[WorkerInfo]:
        return self.run(lambda: inspection.workers(self.dialect), write=False)

    def queues(self, *, cap: int = 10_000) -> list[QueueInfo]:
        return self.run(lambda: inspection.queues(self.dialect, cap), write=False)
