"""A cache of past hours: their figures do not change any more, and summing the minutes of a day takes
half a second."""

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from holdfast.monitoring.metrics import KEPT

HOUR = timedelta(hours=1)
SETTLED = timedelta(minutes=10)  #: after this, no worker writes to a past hour: they do every 5 s
T = TypeVar("T")  #: a figure of a period


class HourlyCache(Generic[T]):
    """Thread-safe; an hour that two threads need at the same time is read twice."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[datetime, list[T]] = {}

    def all(
        self, since: datetime, now: datetime, read: Callable[[datetime, datetime], list[T]]
    ) -> list[T]:
        """Return the figures since a time, as `read` returns them for each part, from the cache where
        possible."""
        end = now + HOUR  # includes the present minute, and clocks that are ahead
        first = since if since == _whole(since) else _whole(since) + HOUR
        last = _whole(now - SETTLED)
        if first >= last:
            return read(since, end)
        found = read(since, first) if since < first else []
        for number in range((last - first) // HOUR):
            found += self._hour(first + number * HOUR, read)
        self._forget(now)
        return found + read(last, end)

    def _hour(self, start: datetime, read: Callable[[datetime, datetime], list[T]]) -> list[T]:
        with self._lock:
            known = self._known.get(start)
        if known is None:
            known = read(start, start + HOUR)
            with self._lock:
                self._known[start] = known
        return known

    def _forget(self, now: datetime) -> None:
        oldest = now - timedelta(seconds=KEPT) - HOUR
        with self._lock:
            for start in [one for one in self._known if one < oldest]:
                del self._known[start]


def _whole(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)
