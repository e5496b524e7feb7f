"""A rate limit for each of many callers, in memory: one number each."""

import time
from collections.abc import Callable


class Throttle:
    """`burst` at once, then `per_minute`. The number is when the next one would be on time."""

    def __init__(
        self,
        *,
        per_minute: float,
        burst: int,
        most: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gap = 60.0 / per_minute
        self._ahead = self._gap * burst
        self._most = most
        self._clock = clock
        self._next: dict[str, float] = {}

    def wait(self, who: str) -> float:
        """Seconds until they may; nought: now."""
        return max(0.0, self._next.get(who, 0.0) + self._gap - self._clock() - self._ahead)

    def spend(self, who: str) -> None:
        now = self._clock()
        if len(self._next) >= self._most:
            self._next = {key: at for key, at in self._next.items() if at > now}
        self._next[who] = max(now, self._next.get(who, 0.0)) + self._gap
