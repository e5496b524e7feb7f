"""Notices when the database's clock is set, and mends what a step back leaves behind."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from holdfast.engine.engine import Engine
from holdfast.schedules import clock_steps
from holdfast.schedules.clock_steps import TOLERANCE

logger = logging.getLogger("holdfast.worker")

EVERY = 10.0  # seconds between two looks
_PAUSE = 0.05  # seconds between two batches


class ClockWatch:
    """Compares the database's clock with this process's monotonic one, which nobody sets."""

    def __init__(self, engine: Engine, stepped: Callable[[], None]) -> None:
        """`stepped`: called after the clock was set, in either direction."""
        self._engine = engine
        self._stepped = stepped
        self._seen: tuple[datetime, float] | None = None
        self._jobs: clock_steps.Cursor | None = None
        self._keys = ""
        self._walks = {"jobs", "keys"}  # once at the start: the clock may have been set meanwhile

    def tick(self) -> float:
        """A look, and one batch of a walk that goes on; the seconds until the next tick."""
        self._look()
        if "jobs" in self._walks:
            self._bring_forward()
        elif "keys" in self._walks:
            self._wake_keys_early()
        return _PAUSE if self._walks else EVERY

    def _look(self) -> None:
        monotonic = self._engine.clock.monotonic
        before = monotonic()
        now = self._engine.read(clock_steps.read_clock)
        after = monotonic()
        if after - before > TOLERANCE.total_seconds() / 2:
            return  # nobody knows when in this time the database looked at its clock
        if self._seen is not None:
            then, at = self._seen
            step = (now - then) - timedelta(seconds=after - at)
            if abs(step) > TOLERANCE:
                self._tell(step)
        self._seen = now, after

    def _tell(self, step: timedelta) -> None:
        seconds = step.total_seconds()
        where = "back" if seconds < 0 else "forward"
        logger.warning("the database's clock was set %s by %.0f s", where, abs(seconds))
        if seconds < 0:
            self._walks, self._jobs, self._keys = {"jobs", "keys"}, None, ""
        self._stepped()

    def _bring_forward(self) -> None:
        found = self._engine.write(clock_steps.bring_forward, self._jobs)
        self._jobs = found.after
        if found.moved:
            logger.info("%d next runs are counted from now: the clock went back", found.moved)
        if found.after is None:
            self._walks.discard("jobs")

    def _wake_keys_early(self) -> None:
        self._keys = self._engine.write(clock_steps.wake_keys_early, self._keys)
        if not self._keys:
            self._walks.discard("keys")
