"""Time as a parameter.

Nothing below the edges asks the system for the time. On PostgreSQL the server's clock decides, so
that machines with different clocks agree; a clock that is not the system's overrides it (tests).
"""

import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Clock(Protocol):
    """What tells the time."""

    rules_the_database: bool  #: True: the database uses this clock instead of its own

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...


class SystemClock:
    """The machine's own clock."""

    rules_the_database = False

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class FakeClock:
    """A clock that moves only when told to: `clock.advance(30)`."""

    rules_the_database = True

    def __init__(self, start: datetime = datetime(2030, 1, 1, tzinfo=UTC)) -> None:
        self._now = start
        self._monotonic = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds


def to_microseconds(moment: datetime) -> int:
    """Microseconds since 1970, exact (a float of seconds would round)."""
    return (moment - EPOCH) // MICROSECOND


@lru_cache(maxsize=4096)  # the moments of a batch are mostly the same few
def from_microseconds(count: int) -> datetime:
    return EPOCH + timedelta(microseconds=count)
