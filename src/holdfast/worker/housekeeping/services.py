"""Housekeeping: services that a worker runs at intervals, besides running jobs. Each is a tick, a
function that returns the seconds until its next call. The work on the database is done by
engine/maintenance.py; its results are counted and logged here."""

import logging
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path

from holdfast.engine import access
from holdfast.engine.engine import Engine
from holdfast.events import outbox
from holdfast.jobs.job import Claim, Status
from holdfast.worker.housekeeping.workdir import sweep_workdirs
from holdfast.worker.ticker import Tick

logger = logging.getLogger("holdfast.worker")

KEYS = 1000  # keys of limits that one call looks at
WORKFLOWS = 100  # workflows that one call looks at
_SOON = 0.05  # seconds until the next batch, if there is more to prune
_ADVANCE = 2.0
_EVENTS = _REPAIR = 5.0
_MINUTE = 60.0


class Housekeeping:
    """Services for scratch folders, limits, workflows, and old figures, events and entries of the audit
    log. (Jobs are pruned by a thread of their own, the Pruner: their hooks may be slow.)"""

    def __init__(self, engine: Engine, *, workdir: Path, counts: Counter[str]) -> None:
        self._engine = engine
        self._maintenance = engine.maintenance
        self._workdir = workdir
        self._counts = counts

    def ticks(self) -> dict[str, Tick]:
        maintenance = self._maintenance
        return {
            "scratch folders": self.sweep_folders,
            "limits": self._repair_limits,
            "workflows": self._advance_workflows,
            "unused keys": self._forget,
            "old figures": _pruning(maintenance.prune_rollups, 1, _MINUTE),
            "old events": _pruning(maintenance.prune_events, outbox.PRUNED, _EVENTS),
            "audit log": _pruning(maintenance.prune_access, access.PRUNED, 60 * _MINUTE),
        }

    def sweep_folders(self) -> float:
        swept = sweep_workdirs(self._workdir, self._running)
        self._counts["workdirs"] += swept
        if swept:
            logger.info("%d abandoned work directories removed", swept)
        return 10 * _MINUTE

    def _running(self, ids: list[str]) -> Collection[Claim]:
        return {job.claim for job in self._engine.get(ids) if job.status is Status.RUNNING}

    def _repair_limits(self) -> float:
        """Release parked jobs that no finish has released: a job was deleted while it ran, or a limit
        was raised."""
        moved = self._maintenance.repair_limits(KEYS)
        self._counts["unparked"] += moved
        if moved:
            logger.info("%d jobs may run again: their limits have free capacity", moved)
        return _REPAIR

    def _advance_workflows(self) -> float:
        """Advance workflows after jobs that no worker finished: they were cancelled, or their worker
        died."""
        self._counts["advanced"] += self._maintenance.advance_workflows(WORKFLOWS)
        return _ADVANCE

    def _forget(self) -> float:
        self._maintenance.prune_keys(KEYS)
        self._maintenance.find_orphans(KEYS)
        return _MINUTE


def _pruning(prune: Callable[[], int], batch: int, every: float) -> Tick:
    return lambda: _SOON if prune() >= batch else every
