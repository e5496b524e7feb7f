"""A cache of the figures of past hours, which do not change any more: summing the minutes of a day
takes half a second."""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Generic, TypeVar

from holdfast.monitoring.metrics import KEPT

HOUR = timedelta(hours=1)
SETTLED = timedelta(
    minutes=10
)  #: no worker writes to an hour so long after it: they write every 5 s
_MOST = round(KEPT / 3600) + 1  # hours that are remembered
T = TypeVar("T")  #: a figure of a period


class HourlyCache(Generic[T]):
    """Returns figures from the cache or from `read`. Thread-safe; an hour that two threads need at the
    same time is read twice."""

    def __init__(self, read: Callable[[datetime, datetime], list[T]]) -> None:
        """`read`: return the figures between two times."""
        self._read = read
        self._hour = lru_cache(_MOST)(lambda start: read(start, start + HOUR))

    def all(self, since: datetime, now: datetime) -> list[T]:
        """Return the figures since a time, from the cache where possible."""
        end = now + HOUR  # includes the present minute, and clocks that are ahead
        first = since if since == _whole(since) else _whole(since) + HOUR
        last = _whole(now - SETTLED)
        if first >= last:
            return self._read(since, end)
        found = self._read(since, first) if since < first else []
        for number in range((last - first) // HOUR):
            found += self._hour(first + number * HOUR)
        return found + self._read(last, end)


def _whole(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)
