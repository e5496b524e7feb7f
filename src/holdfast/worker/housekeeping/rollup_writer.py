"""Counts the finishes of this worker, and writes the figures every few seconds, in transactions of
their own.

Figures are kept in memory until their minute is long over, and each write has the whole count of a
minute so far. So a write whose reply was lost can be sent again, and the next write makes up for one
that failed. The last seconds of figures are lost if the process dies.
"""

import logging
import threading
from datetime import datetime

from holdfast.engine.engine import Engine
from holdfast.jobs.job import Job
from holdfast.jobs.outcome import Finish
from holdfast.monitoring.metrics import MINUTE, Rollup, kind_of, minute_of

logger = logging.getLogger("holdfast.worker")

EVERY = 5.0  # seconds between two writes
ROWS = 5000  # most roll-ups that are kept while the database cannot be written
_PATIENCE = 1.0  # seconds that a worker that stops waits for a write in progress
_OPEN = 2 * MINUTE  # how long a minute may still be added to, by clocks that differ a little

Key = tuple[datetime, str, str, str]


class RollupWriter:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._rollups: dict[Key, Rollup] = {}
        self._unwritten: set[Key] = set()
        self._closed: datetime | None = None  # minutes before this one are forgotten

    def count(self, job: Job, finish: Finish, now: datetime | None) -> None:
        """Count a finish that was applied."""
        kind = kind_of(finish)
        if kind is None or now is None:
            return
        minute = minute_of(now)
        with self._lock:
            if self._closed is not None and minute < self._closed:
                minute = self._closed  # a clock was set back: what is written must not be undone
            key = (minute, job.type, job.queue, finish.worker_id or "")
            if key not in self._rollups:
                self._rollups[key] = Rollup(*key)
            self._rollups[key].count(kind, job, now)
            self._unwritten.add(key)

    def tick(self) -> float:
        self.write()
        return EVERY

    def close(self) -> None:
        """Write the last figures. If that fails, nothing is raised: the worker stops anyway."""
        try:
            self.write()
        except Exception as problem:
            logger.warning("the last figures of this worker are lost: %s", problem)

    def write(self) -> None:
        """Write the roll-ups that have changed since the last write. Only one thread writes at a time:
        an older count must not overwrite a newer one."""
        if not self._writing.acquire(timeout=_PATIENCE):
            return
        try:
            self._write()
        finally:
            self._writing.release()

    def _write(self) -> None:
        with self._lock:
            keys, self._unwritten = self._unwritten, set()
            changed = [self._rollups[key].copy() for key in sorted(keys)]
        try:
            self._engine.roll_up(changed)
        except BaseException:
            with self._lock:
                self._unwritten |= keys
            raise
        finally:
            with self._lock:
                self._forget()

    def _forget(self) -> None:
        """Forget roll-ups that are written and whose minute is over; and the oldest ones, if the
        database is unavailable for long."""
        newest = max((key[0] for key in self._rollups), default=None)
        if newest is None:
            return
        over = [key for key in self._rollups if key[0] < newest - _OPEN]
        gone = [key for key in over if key not in self._unwritten]
        if len(self._rollups) - len(gone) > ROWS:
            gone += sorted(self._unwritten)[: len(self._rollups) - len(gone) - ROWS]
            logger.warning("figures of some minutes are lost: they could not be written for long")
        for key in gone:
            self._rollups.pop(key, None)
            self._unwritten.discard(key)
        self._closed = newest - _OPEN
