"""Heartbeats of this worker, and the detection of dead ones. In a thread of its own, outside of any
event loop.

A worker is declared dead when its beat stood still for as long as three beats *of the watcher's own
successful ones*: while the watcher cannot write either (an outage, a held lock, a suspended machine),
nobody's silence counts. No two machines' clocks are compared.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.engine.engine import Engine
from holdfast.engine.records import Seen, Swept, WorkerInfo
from holdfast.errors import HoldfastError
from holdfast.jobs.job import Claim
from holdfast.jobs.outcome import DIED
from holdfast.worker.processes.exit_cause import Judgement, OomKills, how, oom_kills, own_making

logger = logging.getLogger("holdfast.worker")

BEATS_MISSED = 3
RESCUED = 10_000  # at a time: all that one worker can hold
FRESH = 1.5  # heartbeats: older than that, our own beats have stopped


def boottime() -> float:
    """A clock that also runs while the machine is suspended, where there is one."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class Observer:
    """Judges silence. Only thinks: it is told the time, its own beats, and what it sees."""

    def __init__(self, heartbeat: float) -> None:
        self._patience = BEATS_MISSED * heartbeat
        self._fresh = FRESH * heartbeat
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
            Seen(worker.id, worker.beat_no)
            for worker in workers
            if worker.id in seen and seen[worker.id][1] >= self._patience_with(worker)
        ]

    def _patience_with(self, worker: WorkerInfo) -> float:
        """It may have been told to beat less often than we do."""
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
    confirmed: Callable[
        [float], None
    ]  #: told the moment (boottime) before each beat that was written
    dead: Callable[[], None]  #: told that it was declared dead
    stopped: Callable[[], bool] = field(default=lambda: False)  #: its process is frozen
    asked: Callable[[], None] = field(default=lambda: None)  #: told to tell where its runs stand


class _Gone(NamedTuple):
    begun: Sequence[Claim]
    verdicts: Sequence[tuple[Claim, str]]
    judgement: Judgement | None
    code: int | None
    oom_kills: int | None  #: on record before it died


def _crash(gone: _Gone, oom_kills_now: int | None) -> str | None:
    """How a process died, if that was its own doing (decision 0021)."""
    if gone.judgement is Judgement.CRASH:
        return f"{DIED}it was frozen"
    if gone.judgement is not None or gone.code is None:
        return None
    counts = gone.code, gone.oom_kills, oom_kills_now
    return DIED + how(*counts) if own_making(*counts) else None


class Heartbeat:
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
        self._oom_kills = OomKills()
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
        self,
        id: str,
        *,
        begun: Sequence[Claim],
        verdicts: Sequence[tuple[Claim, str]],
        judgement: Judgement | None,
        code: int | None,
    ) -> None:
        """Its process was waited for: it is dead for certain. `begun`: the runs whose handlers had
        begun and not ended, except those of `verdicts`, which say how they ended. `judgement`: what its
        death says of the former; None: its exit code does (as waitpid has it; None: unknown)."""
        with self._lock:
            self._members.pop(id, None)
            self._gone[id] = _Gone(begun, verdicts, judgement, code, self._oom_kills.before)
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
                logger.exception("sending heartbeats failed; trying again")
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
        self._oom_kills.look(time.monotonic())

    def _living(self) -> list[Member]:
        with self._lock:
            members = list(self._members.values())
        return [member for member in members if not member.stopped()]

    def _bury(self) -> None:
        with self._lock:
            gone = dict(self._gone)
        now = oom_kills()
        for id, death in gone.items():
            if death.judgement is Judgement.GIVEN_BACK:
                self._engine.leave(id)
            for claim, verdict in death.verdicts:
                self._engine.record_verdict(claim, verdict)
        dead = [
            Seen(id, None, tuple(death.begun), _crash(death, now)) for id, death in gone.items()
        ]
        self._report(self._engine.sweep(dead, limit=RESCUED))
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
            beat = self._engine.beat(member.id, member.info())
            if beat.alive:
                member.confirmed(before)
                written = True
                if beat.asked:
                    member.asked()
            else:
                self.remove(member.id)
                member.dead()
        if written:
            self._observer.beat(time.monotonic())
        self._beat_at = time.monotonic() + self._heartbeat
