"""Signs of life, and the watch over others'. In a thread of its own, outside of any event loop.

A worker is declared dead when its beat stood still for as long as three beats *of the watcher's own
successful ones*: while the watcher cannot write either (an outage, a held lock, a suspended machine),
nobody's silence counts. No two machines' clocks are compared.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.engine import Engine, Seen, Swept, WorkerInfo
from holdfast.errors import HoldfastError
from holdfast.job import Claim

logger = logging.getLogger("holdfast.worker")

BEATS_MISSED = 3
RESCUED = 10_000  # at a time: all that one worker can hold
_FRESH = 1.5  # heartbeats: older than that, our own beats have stopped


def boottime() -> float:
    """A clock that also runs while the machine is suspended, where there is one."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class Observer:
    """Judges silence. Only thinks: it is told the time, its own beats, and what it sees."""

    def __init__(self, heartbeat: float) -> None:
        self._patience = BEATS_MISSED * heartbeat
        self._fresh = _FRESH * heartbeat
        self._beat_at: float | None = None
        self._looked_at: float | None = None
        self._silence: dict[str, tuple[int, float]] = {}

    def beat(self, now: float) -> None:
        """A beat of our own was written."""
        if self._beat_at is not None and now - self._beat_at > self._fresh:
            self._silence.clear()
        self._beat_at = now

    def look(self, now: float, workers: Sequence[WorkerInfo], mine: frozenset[str]) -> list[Seen]:
        """Those that are dead by what was seen so far."""
        healthy = self._beat_at is not None and now - self._beat_at <= self._fresh
        since = now - self._looked_at if self._looked_at is not None else 0.0
        self._looked_at = now
        if not healthy or since > self._fresh:
            self._silence.clear()
            since = 0.0
        seen: dict[str, tuple[int, float]] = {}
        for worker in workers:
            if worker.died_at is not None or worker.id in mine:
                continue
            beat_no, silence = self._silence.get(worker.id, (worker.beat_no, -since))
            seen[worker.id] = (
                worker.beat_no,
                silence + since if beat_no == worker.beat_no else 0.0,
            )
        self._silence = seen
        return [
            Seen(id, beat_no)
            for id, (beat_no, silence) in seen.items()
            if silence >= self._patience
        ]


class Doubt:
    """Whether our own silence can be held against us.

    Others judge by their beats, and forget what they saw when those stop (`Observer`). While nobody
    else is heard either, as when the application holds SQLite's write lock, nobody can declare us
    dead: what runs here goes on. So when a beat of ours is late, we listen, by reading, which waits
    for no lock. A database that cannot be read either is no excuse.
    """

    def __init__(
        self,
        engine: Engine,
        heartbeat: float,
        worker: Callable[[], str | None],
        silent_for: Callable[[], float],
        confirmed: Callable[[float], None],
    ) -> None:
        """`worker`: our id. `silent_for`: seconds since our last beat. `confirmed`: as of a beat."""
        self._engine = engine
        self._heartbeat = heartbeat
        self._worker = worker
        self._silent_for = silent_for
        self._confirmed = confirmed
        self._numbers: dict[str, int] = {}
        self._heard_at = 0.0  #: when we last saw a new beat of another, or began to listen
        self._looked_at = 0.0
        self._excused_at = -1.0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-doubt", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout: float) -> None:
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def silence(self) -> float:
        """Our silence as far as it counts. It does not yet, while we know that nobody else was heard
        for most of a heartbeat; by the last possible moment it does."""
        silence, now = self._silent_for(), boottime()
        knows = now - self._looked_at <= 0.3 * self._heartbeat
        quiet = now - self._heard_at >= 0.8 * self._heartbeat
        last = silence >= (BEATS_MISSED - 0.15) * self._heartbeat
        return 0.0 if knows and quiet and not last else silence

    def _run(self) -> None:
        while not self._closing.wait(0.1 * self._heartbeat):
            try:
                self.tick(boottime())
            except HoldfastError as problem:
                logger.debug("the others cannot be heard: %s", problem)
            except Exception:
                logger.exception("the doubt stumbled")

    def tick(self, now: float) -> None:
        worker, silence = self._worker(), self._silent_for()
        excused = abs(now - silence - self._excused_at) < 0.05 * self._heartbeat
        if worker is None or (silence < 1.05 * self._heartbeat and not excused):
            self._numbers = {}
            return
        living = {one.id: one.beat_no for one in self._engine.workers() if one.died_at is None}
        others = {id: beat_no for id, beat_no in living.items() if id != worker}
        if not self._numbers or any(self._numbers.get(id) != no for id, no in others.items()):
            self._heard_at = now
        self._numbers = living
        self._looked_at = now
        # Whoever beats next begins anew with us: as good as a beat of our own.
        if worker in living and now - self._heard_at > (_FRESH + 0.1) * self._heartbeat:
            self._excused_at = now
            self._confirmed(now)


@dataclass
class Member:
    """A worker for whom this heart beats."""

    id: str
    info: Callable[[], str]
    confirmed: Callable[
        [float], None
    ]  #: told the moment (boottime) before each beat that was written
    dead: Callable[[], None]  #: told that it was declared dead
    stopped: Callable[[], bool] = field(default=lambda: False)  #: its process is frozen


class _Gone(NamedTuple):
    verdicts: Sequence[tuple[Claim, str]]
    orderly: bool


class Heart:
    def __init__(
        self,
        engine: Engine,
        heartbeat: float,
        *,
        swept: Callable[[Swept], None] = lambda swept: None,
        looked: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._heartbeat = heartbeat
        self._swept = swept
        self._looked = looked
        self._observer = Observer(heartbeat)
        self._lock = threading.Lock()
        self._members: dict[str, Member] = {}
        self._gone: dict[str, _Gone] = {}
        self._wake = threading.Event()
        self._closing = False
        self._beat_at = 0.0
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="holdfast-heart", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout: float) -> None:
        self._closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def add(self, member: Member) -> None:
        with self._lock:
            self._members[member.id] = member
        self._beat_at = 0.0
        self._wake.set()

    def remove(self, id: str) -> None:
        with self._lock:
            self._members.pop(id, None)

    def died(
        self, id: str, verdicts: Sequence[tuple[Claim, str]] = (), *, orderly: bool = False
    ) -> None:
        """Its process was waited for: it is dead for certain. `orderly`: we made it, and none of its
        jobs is to blame; `verdicts`: except these runs, and how they ended."""
        with self._lock:
            self._members.pop(id, None)
            self._gone[id] = _Gone(verdicts, orderly)
        self._wake.set()

    def _run(self) -> None:
        look = 0.4 * self._heartbeat
        while not self._closing:
            self._wake.clear()
            try:
                self.tick()
            except HoldfastError as problem:
                (logger.debug if self._failing else logger.warning)(
                    "no sign of life can be given: %s", problem
                )
                self._failing = True
                self._wake.wait(min(1.0, look))
                continue
            except Exception:
                logger.exception("the heart stumbled")
            if self._failing:
                self._failing = False
                logger.info("signs of life are given again")
            self._wake.wait(look)
        if self._gone:
            self._bury()

    def tick(self) -> None:
        if self._gone:
            self._bury()
        if time.monotonic() >= self._beat_at:
            self._beat()
        mine = frozenset(member.id for member in self._living())
        dead = self._observer.look(time.monotonic(), self._engine.workers(), mine)
        if dead:
            logger.warning("declared dead after a long silence: %s", ", ".join(w.id for w in dead))
        self._report(self._engine.sweep(dead, limit=RESCUED))
        self._looked()

    def _living(self) -> list[Member]:
        with self._lock:
            members = list(self._members.values())
        return [member for member in members if not member.stopped()]

    def _bury(self) -> None:
        with self._lock:
            gone = dict(self._gone)
        for id, (verdicts, orderly) in gone.items():
            if orderly:
                self._engine.leave(id)
            for claim, verdict in verdicts:
                self._engine.sentence(claim, verdict)
        self._report(self._engine.sweep([Seen(id, None) for id in gone], limit=RESCUED))
        with self._lock:
            for id in gone:
                self._gone.pop(id, None)

    def _report(self, swept: Swept) -> None:
        if swept.rescued:
            logger.info("%d jobs of dead workers recovered", len(swept.rescued))
        self._swept(swept)

    def _beat(self) -> None:
        written = False
        for member in self._living():
            before = boottime()
            if self._engine.beat(member.id, member.info()).alive:
                member.confirmed(before)
                written = True
            else:
                self.remove(member.id)
                member.dead()
        if written:
            self._observer.beat(time.monotonic())
        self._beat_at = time.monotonic() + self._heartbeat
