"""Writes the heartbeats of the workers of this process, and has the jobs of dead workers rescued. In a
thread of its own, outside of any event loop."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast.engine.engine import Engine
from holdfast.engine.records import Seen, Swept
from holdfast.errors import HoldfastError
from holdfast.worker.liveness.dead_workers import Death, Observer
from holdfast.worker.processes.exit_cause import Blame, OomKills, oom_kills
from holdfast.worker.ticker import Ticker

logger = logging.getLogger("holdfast.worker")

RESCUED = 10_000  # jobs of one sweep: all that one worker can hold


def boottime() -> float:
    """Return the time of a clock that also runs while the machine is suspended, where it has one."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


@dataclass
class Member:
    """A worker whose heartbeats this thread sends."""

    id: str
    info: Callable[[], str]
    confirmed: Callable[[float], None]  #: called after each heartbeat, with `boottime()` before it
    dead: Callable[[], object]  #: called when it was declared dead
    stacks_wanted: Callable[[], object]  #: called when an operator asks for the stacks of its runs
    stopped: Callable[[], bool] = lambda: False  #: its process is frozen


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
