"""Housekeeping: what a worker does once in a while, besides running jobs. Each service is a `tick` that
returns how long to wait; what it did is counted."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path

from holdfast.engine.access import PRUNED as ACCESS_PRUNED
from holdfast.engine.engine import Engine
from holdfast.errors import HoldfastError
from holdfast.events.outbox import PRUNED as EVENTS_PRUNED
from holdfast.jobs.job import Claim, Status
from holdfast.worker.housekeeping.workdir import sweep_workdirs

logger = logging.getLogger("holdfast.worker")

Tick = Callable[[], float]
KEYS = 1000  # of limits, looked at at a time
WORKFLOWS = 100  # looked at at a time
_EVERY = 60.0
_ADVANCE = 2.0
_REPAIR = 5.0
_EVENTS = 5.0
_ACCESS = 3600.0


class Services:
    """Runs ticks, one after the other, in one thread."""

    def __init__(self, name: str, ticks: dict[str, Tick]) -> None:
        self._due = dict.fromkeys(ticks, 0.0)
        self._ticks = ticks
        self._asked: set[str] = set()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"holdfast-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def soon(self, name: str) -> None:
        """Let a tick come now, whenever it is due."""
        self._asked.add(name)
        self._wake.set()

    def close(self, timeout: float) -> None:
        self._closing.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        while not self._closing.is_set():
            for name, tick in self._ticks.items():
                if self._closing.is_set() or not self._is_due(name):
                    continue
                self._asked.discard(name)
                self._due[name] = time.monotonic() + self._guarded(name, tick)
            self._wake.wait(max(0.0, min(self._due.values()) - time.monotonic()))
            self._wake.clear()

    def _is_due(self, name: str) -> bool:
        return name in self._asked or time.monotonic() >= self._due[name]

    def _guarded(self, name: str, tick: Tick) -> float:
        try:
            return tick()
        except HoldfastError as problem:
            logger.debug("%s waits for the database: %s", name, problem)
            return 5.0
        except Exception:
            logger.exception("%s stumbled", name)
            return _EVERY


class Housekeeping:
    """Scratch folders, and room under limits. (Pruning is apart: its hooks may be slow.)"""

    def __init__(self, engine: Engine, *, workdir: Path, counts: Counter[str]) -> None:
        self._engine = engine
        self._workdir = workdir
        self._counts = counts

    def ticks(self) -> dict[str, Tick]:
        return {
            "sweeping": self.sweep,
            "repairing": self.repair,
            "advancing": self.advance,
            "forgetting": self.forget,
            "clearing": self.clear,
            "events": self.prune_events,
            "access": self.prune_access,
        }

    def repair(self) -> float:
        """Room that nobody has told of: a job that was deleted while it ran, a raised limit."""
        moved = self._engine.maintenance.repair_limits(KEYS)
        self._counts["unparked"] += moved
        if moved:
            logger.info("%d jobs may run again: their limits have room", moved)
        return _REPAIR

    def advance(self) -> float:
        """Consequences that nobody has drawn: of a job that was cancelled, or whose worker died."""
        self._counts["advanced"] += self._engine.maintenance.advance_workflows(WORKFLOWS)
        return _ADVANCE

    def forget(self) -> float:
        self._engine.maintenance.prune_keys(KEYS)
        self._engine.maintenance.find_orphans(KEYS)
        return _EVERY

    def clear(self) -> float:
        """Old figures, a minute of them at a time."""
        return 0.05 if self._engine.maintenance.prune_rollups() else _EVERY

    def prune_events(self) -> float:
        return 0.05 if self._engine.maintenance.prune_events() >= EVENTS_PRUNED else _EVENTS

    def prune_access(self) -> float:
        return 0.05 if self._engine.maintenance.prune_access() >= ACCESS_PRUNED else _ACCESS

    def sweep(self) -> float:
        swept = sweep_workdirs(self._workdir, self._living)
        self._counts["workdirs"] += swept
        if swept:
            logger.info("%d abandoned work directories removed", swept)
        return 10 * _EVERY

    def _living(self, ids: list[str]) -> Collection[Claim]:
        return {job.claim for job in self._engine.get(ids) if job.status is Status.RUNNING}
