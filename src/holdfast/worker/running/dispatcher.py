"""Decides when to look for work: at a hint, when a slot becomes free, when the next scheduled job is
due, and at every poll interval.

It claims exactly the free slots of each lane. A lane whose last claim got fewer jobs than it asked for
is exhausted: it claims nothing until a hint or the poll.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence

from holdfast.engine.engine import Engine
from holdfast.engine.wakeups import Wakeups
from holdfast.errors import HoldfastError
from holdfast.jobs.job import Job
from holdfast.worker.processes.isolation import Isolation
from holdfast.worker.running.slots import Lane

logger = logging.getLogger("holdfast.worker")

PROMOTED = 1000  # at a time
_LONGEST_PAUSE = 5.0

Begin = Callable[[Lane, Sequence[Job]], None]


class Dispatcher:
    def __init__(
        self,
        engine: Engine,
        lanes: Sequence[Lane],
        *,
        worker: Callable[[], str | None],
        begin: Begin,
        poll: float,
        update: Callable[[], None],
        may_claim: Callable[[], bool],
        isolation: Isolation,
    ) -> None:
        """`worker`: its id, None while it has none. `may_claim`: False while no finish can be written.
        `isolation`: takes jobs with deaths on record."""
        self._engine = engine
        self._lanes = list(lanes)
        self._worker = worker
        self._begin = begin
        self._poll = poll
        self._update = update
        self._may_claim = may_claim
        self._isolation = isolation
        self._lock = threading.Lock()
        self._claiming = threading.Lock()  # held from before a claim until its jobs have begun
        self._wakeups: Wakeups | None = None
        self._pausing = False
        self._closing = False
        self._due_at = 0.0
        self._expected_at = math.inf  # the first moment that `expect` named since the last look
        self._due_is_known = False
        self._ended = 0  # limited jobs, so far
        self._poll_at = 0.0
        self._thread = threading.Thread(target=self._run, name="holdfast-dispatcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def pause(self) -> None:
        """Start no more claims. One in progress can still return jobs: see `settle`."""
        self._pausing = True
        self.wake()

    def settle(self, timeout: float) -> bool:
        """Wait, after `pause`, until no claim is in progress. False: one still is."""
        if settled := self._claiming.acquire(timeout=max(0.0, timeout)):
            self._claiming.release()
        return settled

    def close(self, timeout: float) -> None:
        self._pausing = self._closing = True
        self.wake()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def wake(self) -> None:
        """Look for work now."""
        with self._lock:
            if self._wakeups is not None:
                self._wakeups.nudge()

    def freed(self, lanes: Sequence[Lane]) -> None:
        """Free the slots of runs whose finishes are committed."""
        with self._lock:
            for lane in lanes:
                lane.free += 1
                if lane.of is not None:
                    lane.of.free += 1
            wanted = any(not lane.exhausted for lane in lanes)
        if wanted:
            self.wake()

    def capacity_freed(self) -> None:
        """Let all workers look again: limits have capacity, since a limited job has ended."""
        self._engine.hint(frozenset({"*"}))
        self._ended += 1
        self.hinted()

    def hinted(self) -> None:
        for lane in list(self._lanes):
            lane.exhausted = False

    def expect(self, seconds: float) -> None:
        """Look for work after so many seconds: a job is due then."""
        at = time.monotonic() + seconds
        with self._lock:
            self._expected_at = min(self._expected_at, at)
            is_sooner = at < self._due_at
            self._due_at = min(self._due_at, at)
        if is_sooner:
            self.wake()

    def clock_was_set(self) -> None:
        """Ask again when the next job is due: what was known is wrong."""
        self._due_is_known = False
        self.wake()

    def _run(self) -> None:
        pause = 0.05
        while not self._closing:
            try:
                if self._wakeups is None:
                    subscription = self._engine.wakeups()
                    with self._lock:
                        self._wakeups = subscription
                with self._claiming:
                    wait = self._tick()
                hints = self._wakeups.wait(wait)
                self._note_hints(hints)
                pause = 0.05
            except HoldfastError as problem:
                logger.warning("no work can be taken: %s", problem)
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            except Exception:
                logger.exception("no work could be taken")
                time.sleep(1.0)
        with self._lock:
            wakeups, self._wakeups = self._wakeups, None
        if wakeups is not None:
            wakeups.close()

    def _note_hints(self, hints: frozenset[str]) -> None:
        for lane in self._lanes:
            if "*" in hints or lane.queue in hints:
                lane.exhausted = False
        if hints:
            self._due_is_known = False  # what was added may be due sooner than what we know of

    def _tick(self) -> float:
        """Claim what can run now; return the seconds to wait."""
        worker = self._worker()
        if worker is None or self._pausing or not self._may_claim():
            return self._poll
        self._update()
        now = time.monotonic()
        if now >= self._poll_at:
            self._poll_at = now + self._poll
            self._due_is_known = False  # a hint may have been lost
            self.hinted()
        for lane in self._lanes:
            if now >= lane.again_at:
                lane.exhausted, lane.again_at = False, math.inf
        isolation = self._isolation
        if isolation.takes_others and now >= self._due_at:
            self._promote()
        self._isolate(worker, now)
        if isolation.takes_others and not isolation.holds_others:
            self._claim(worker)
            if not self._due_is_known:  # after the claim: what is pending need not wait for it
                self._promote()
        now = time.monotonic()
        look_at = isolation.look_at
        if isolation.holds_others or not isolation.takes_others:
            return max(0.0, min(look_at, self._poll_at) - now)
        if any(not lane.exhausted and lane.free and lane.types for lane in self._lanes):
            return 0.0
        again = min(lane.again_at for lane in self._lanes)
        return max(0.0, min(self._due_at, self._poll_at, again, look_at) - now)

    def _promote(self) -> None:
        """Ask when the next job is due; jobs that are due now become pending."""
        now = time.monotonic()
        self._expected_at = math.inf  # what is expected from here on may be missing from this look
        due = self._engine.next_due()
        if due is not None and due <= 0:
            promoted = self._engine.promote(PROMOTED)
            due = promoted.next_due
            for lane in self._lanes:
                if lane.queue in promoted.queues:
                    lane.exhausted = False
        with self._lock:
            self._due_at = min(now + (self._poll if due is None else due), self._expected_at)
        self._due_is_known = True

    def _claim(self, worker: str) -> None:
        for lane in self._lanes:
            free = lane.free
            if lane.exhausted or not free or not lane.types or self._pausing:
                continue
            seen = self._ended
            jobs, more, due = self._engine.claimer.fetch(
                lane.queue, free, worker=worker, types=lane.types, rules=lane.rules
            )
            # A limited job that ended meanwhile may have freed capacity that was not counted.
            lane.exhausted = not more and seen == self._ended
            lane.again_at = math.inf if due is None else time.monotonic() + due
            if jobs:
                with self._lock:
                    lane.free -= len(jobs)
                self._begin(lane, jobs)
        # A rotating start: a lane that always finds work must not be the first for ever.
        self._lanes.append(self._lanes.pop(0))

    def _isolate(self, worker: str, now: float) -> None:
        """Begin jobs with deaths on record, before ordinary jobs can take their slots."""
        for lane, jobs in self._isolation.take(worker, now, self._lanes):
            with self._lock:
                lane.free -= len(jobs)
                if lane.of is not None:
                    lane.of.free -= len(jobs)
            self._begin(lane, jobs)
