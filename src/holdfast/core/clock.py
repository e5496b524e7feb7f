"""Clocks: code takes the time from a clock that it is given, and tests give a clock that they move.

On PostgreSQL the server's clock decides, so that machines with different clocks agree. A clock of a
test decides instead of the server's.
"""

import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


class Clock(Protocol):
    """The type of clocks."""

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
    """A clock that a test moves: `clock.advance(30)`."""

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
    """Return the microseconds since 1970, exactly (a float of seconds would be rounded)."""
    return (moment - EPOCH) // MICROSECOND


@lru_cache(maxsize=4096)  # the moments of a batch are mostly the same few
def from_microseconds(count: int) -> datetime:
    return EPOCH + timedelta(microseconds=count)
