"""A rate limit for each of many callers, in memory: one number for each."""

import time
from collections.abc import Callable

_MOST = 10_000  # callers, before those that are on time again are forgotten


class Throttle:
    """Allows a `burst`, then `per_minute`. The number is the time at which the next use would be on
    time."""

    def __init__(
        self, *, per_minute: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._gap = 60.0 / per_minute
        self._ahead = self._gap * burst
        self._clock = clock
        self._next: dict[str, float] = {}

    def wait(self, caller: str) -> float:
        """Return the seconds until the caller may go on; 0: now."""
        return max(0.0, self._next.get(caller, 0.0) + self._gap - self._clock() - self._ahead)

    def spend(self, caller: str) -> None:
        """Count one use."""
        now = self._clock()
        if len(self._next) >= _MOST:
            self._next = {key: at for key, at in self._next.items() if at > now}
        self._next[caller] = max(now, self._next.get(caller, 0.0)) + self._gap
