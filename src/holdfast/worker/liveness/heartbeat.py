"""Heartbeats of this process's workers, and the detection of dead workers. In a thread of its own,
outside of any event loop.

A worker is declared dead when its `beat_no` did not change during three heartbeats *that the observer
wrote itself*: while the observer cannot write either (an outage, a held lock, a suspended machine), no
silence counts. No two machines' clocks are compared.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast.engine.engine import Engine
from holdfast.engine.records import Seen, Swept, WorkerInfo
from holdfast.errors import HoldfastError
from holdfast.jobs.job import Claim
from holdfast.jobs.outcome import DIED
from holdfast.worker.processes.exit_cause import Blame, OomKills, how, oom_kills, own_making
from holdfast.worker.ticker import Ticker

logger = logging.getLogger("holdfast.worker")

BEATS_MISSED = 3
RESCUED = 10_000  # jobs of one sweep: all that one worker can hold
FRESH = 1.5  # heartbeat intervals without one of our own, after which we declare no worker dead


def boottime() -> float:
    """Return the time of a clock that also runs while the machine is suspended, where it has one."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class Observer:
    """Decides which workers are dead. Pure: its caller passes the time, its own heartbeats, and the
    rows of the workers."""

    def __init__(self, heartbeat: float) -> None:
        self._patience = BEATS_MISSED * heartbeat
        self._fresh = FRESH * heartbeat
        self._beat_at: float | None = None
        self._looked_at: float | None = None
        self._silence: dict[str, tuple[int, float]] = {}

    def beat(self, now: float) -> None:
        """Note that a heartbeat of our own was written."""
        if self._beat_at is not None and now - self._beat_at > self._fresh:
            self._silence.clear()
        self._beat_at = now

    def look(self, now: float, workers: Sequence[WorkerInfo], mine: frozenset[str]) -> list[Seen]:
        """Return the workers that are dead, judging by all looks so far. `mine`: workers of this
        process, which are alive."""
        healthy = self._beat_at is not None and now - self._beat_at <= self._fresh
        since = now - self._looked_at if self._looked_at is not None else 0.0
        self._looked_at = now
        if not healthy or since > self._fresh:
            self._silence.clear()
            since = 0.0
        before, self._silence, dead = self._silence, {}, list[Seen]()
        for worker in workers:
            if worker.died_at is not None or worker.id in mine:
                continue
            beat_no, silence = before.get(worker.id, (worker.beat_no, -since))
            silence = silence + since if beat_no == worker.beat_no else 0.0
            self._silence[worker.id] = worker.beat_no, silence
            if silence >= self._patience_with(worker):
                dead.append(Seen(worker.id, worker.beat_no))
        return dead

    def _patience_with(self, worker: WorkerInfo) -> float:
        """Return how long a worker may be silent: its heartbeat interval may be longer than ours."""
        try:
            theirs = float(json.loads(worker.info)["heartbeat"])
        except (ValueError, TypeError, KeyError):
            theirs = 0.0
        return max(self._patience, BEATS_MISSED * theirs)


@dataclass
class Member:
    """A worker whose heartbeats this thread sends."""

    id: str
    info: Callable[[], str]
    confirmed: Callable[[float], None]  #: called after each heartbeat, with the boottime before it
    dead: Callable[[], object]  #: called when it was declared dead
    stacks_wanted: Callable[[], object]  #: called when an operator asks for the stacks of its runs
    stopped: Callable[[], bool] = lambda: False  #: its process is frozen


@dataclass(frozen=True)
class Death:
    """The death of a worker process, certain since its supervisor has waited for the process."""

    begun: Sequence[Claim]  #: the runs that had begun and not ended, except those of `verdicts`
    verdicts: Sequence[tuple[Claim, str]]  #: runs whose end is known, and their errors
    blame: Blame | None  #: whether the runs in `begun` caused it; None: `code` tells
    code: int | None  #: the exit code, negative for signals; None: unknown

    def crash(self, oom_kills_before: int | None, oom_kills_now: int | None) -> str | None:
        """Return how the process died if that was its own doing, else None (docs/decisions/0021)."""
        if self.blame is Blame.CRASH:
            return f"{DIED}it was frozen"
        if self.blame is not None or self.code is None:
            return None
        counts = self.code, oom_kills_before, oom_kills_now
        return DIED + how(*counts) if own_making(*counts) else None


class Heartbeat(Ticker):
    def __init__(
        self,
        engine: Engine,
        heartbeat: float,
        *,
        swept: Callable[[Swept], None] = lambda swept: None,
        looked: Callable[[], None] = lambda: None,
    ) -> None:
        """`swept`: called with the result of each sweep; `looked`: called after it."""
        self._pause = 0.4 * heartbeat
        super().__init__("heart", {"heartbeat": self._try}, retry=self._pause, last=self._bury)
        self._engine = engine
        self._heartbeat = heartbeat
        self._swept = swept
        self._looked = looked
        self._observer = Observer(heartbeat)
        self._oom_kills = OomKills()
        self._lock = threading.Lock()
        self._members: dict[str, Member] = {}
        self._deaths: dict[str, tuple[Death, int | None]] = {}  # and the OOM kills before it
        self._beat_at = 0.0
        self._failing = False

    def add(self, member: Member) -> None:
        with self._lock:
            self._members[member.id] = member
        self._beat_at = 0.0
        self.call_now("heartbeat")

    def died(self, id: str, death: Death) -> None:
        """Give back the jobs of a worker process that is dead for certain."""
        with self._lock:
            self._members.pop(id, None)
            self._deaths[id] = death, self._oom_kills.before
        self.call_now("heartbeat")

    def _try(self) -> float:
        try:
            self.tick()
        except HoldfastError as problem:
            level = logging.DEBUG if self._failing else logging.WARNING
            logger.log(level, "no heartbeat can be written (%s); retrying", problem)
            self._failing = True
            return min(1.0, self._pause)
        if self._failing:
            self._failing = False
            logger.info("heartbeats are written again")
        return self._pause

    def tick(self) -> None:
        self._bury()
        if time.monotonic() >= self._beat_at:
            self._beat()
        mine = frozenset(member.id for member in self._living())
        dead = self._observer.look(time.monotonic(), self._engine.workers(), mine)
        if dead:
            logger.warning("declared dead after a long silence: %s", ", ".join(w.id for w in dead))
        self._sweep(dead)
        self._looked()
        self._oom_kills.look(time.monotonic())

    def _living(self) -> list[Member]:
        with self._lock:
            members = list(self._members.values())
        return [member for member in members if not member.stopped()]

    def _bury(self) -> None:
        """Give back the jobs of the processes that died."""
        with self._lock:
            deaths = dict(self._deaths)
        if not deaths:
            return
        now = oom_kills()
        dead = []
        for id, (death, before) in deaths.items():
            if death.blame is Blame.GIVEN_BACK:
                self._engine.leave(id)
            for claim, verdict in death.verdicts:
                self._engine.record_verdict(claim, verdict)
            dead.append(Seen(id, None, tuple(death.begun), death.crash(before, now)))
        self._sweep(dead)
        with self._lock:
            for id in deaths:
                del self._deaths[id]

    def _sweep(self, dead: Sequence[Seen]) -> None:
        swept = self._engine.sweep(dead, limit=RESCUED)
        if swept.rescued:
            logger.info("%d jobs of dead workers recovered", len(swept.rescued))
        self._swept(swept)

    def _beat(self) -> None:
        written = False
        for member in self._living():
            before = boottime()
            beat = self._engine.beat(member.id, member.info())
            if beat.alive:
                member.confirmed(before)
                written = True
                if beat.asked:
                    member.stacks_wanted()
            else:
                with self._lock:
                    self._members.pop(member.id, None)
                member.dead()
        if written:
            self._observer.beat(time.monotonic())
        self._beat_at = time.monotonic() + self._heartbeat
