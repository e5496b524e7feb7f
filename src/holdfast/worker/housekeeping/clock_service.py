"""Notices when the database's clock was set. If it was set back, repairs the times that are too far
ahead now, by the scripts of schedules/clock_repair.py."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from holdfast.engine.engine import Engine
from holdfast.schedules import clock_repair
from holdfast.schedules.clock_repair import TOLERANCE

logger = logging.getLogger("holdfast.worker")

EVERY = 10.0  # seconds between two looks
_PAUSE = 0.05  # seconds between two batches of a repair


class ClockWatch:
    """Compares the database's clock with this process's monotonic one, which cannot be set."""

    def __init__(self, engine: Engine, stepped: Callable[[], None]) -> None:
        """`stepped`: called after the clock was set, in either direction."""
        self._engine = engine
        self._stepped = stepped
        self._seen: tuple[datetime, float] | None = None
        self._repair()  # once at the start: the clock may have been set meanwhile

    def _repair(self) -> None:
        """Begin a repair: first of all waiting jobs, then of all keys of limits."""
        self._jobs: clock_repair.Cursor | None = None
        self._keys = ""
        self._repairs = [self._wake_keys_early, self._bring_forward]

    def tick(self) -> float:
        """Read the clock, and repair one batch; return the seconds until the next tick."""
        self._look()
        if self._repairs and self._repairs[-1]():
            self._repairs.pop()
        return _PAUSE if self._repairs else EVERY

    def _look(self) -> None:
        monotonic = self._engine.clock.monotonic
        before = monotonic()
        now = self._engine.read(clock_repair.read_clock)
        after = monotonic()
        if after - before > TOLERANCE.total_seconds() / 2:
            return  # it is unknown when in this time the database read its clock
        if self._seen is not None:
            then, at = self._seen
            step = (now - then) - timedelta(seconds=after - at)
            if abs(step) > TOLERANCE:
                self._step(step.total_seconds())
        self._seen = now, after

    def _step(self, seconds: float) -> None:
        where = "back" if seconds < 0 else "forward"
        logger.warning("the database's clock was set %s by %.0f s", where, abs(seconds))
        if seconds < 0:
            self._repair()
        self._stepped()

    def _bring_forward(self) -> bool:
        found = self._engine.write(clock_repair.bring_forward, self._jobs)
        self._jobs = found.after
        if found.moved:
            logger.info("%d next runs are counted from now: the clock was set back", found.moved)
        return found.after is None

    def _wake_keys_early(self) -> bool:
        self._keys = self._engine.write(clock_repair.wake_keys_early, self._keys)
        return not self._keys
