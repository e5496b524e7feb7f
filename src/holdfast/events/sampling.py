"""Samples of all events: a few of each kind a second, for pages that then fetch what they show.
Writing every event would cost a busy queue much of its speed, and nobody reads that fast."""

from collections.abc import Callable

from holdfast.jobs.job import EventKind

GLANCE = "glance"  #: the topic of who follows like this
MOST = 10  #: events of a kind that are told in a second


class Pace:
    """How many events of each kind came in this second, and in the one before."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counts: dict[EventKind, tuple[int, int, int]] = {}

    def _look(self, kind: EventKind) -> tuple[int, int, int]:
        """The second, how many came in it, and how many before."""
        now = int(self._clock())
        second, number, before = self._counts.get(kind, (now, 0, 0))
        if second == now:
            return now, number, before
        return now, 0, number if second == now - 1 else 0

    def count(self, kind: EventKind, number: int = 1) -> None:
        now, present, before = self._look(kind)
        self._counts[kind] = now, present + number, before

    def room(self, kind: EventKind) -> int:
        """How many more may be told now."""
        return max(0, MOST - self._look(kind)[1])

    @property
    def is_brisk(self) -> bool:
        """So many came lately that a writer, whose second is another, may have left some out."""
        return sum(sum(self._look(kind)[1:]) for kind in list(self._counts)) >= MOST
