"""Samples of all events: a few of each kind in a second, for pages that then fetch what they show.
Writing every event would cost a busy queue much of its throughput, and no reader needs them all."""

from collections.abc import Callable

from holdfast.jobs.job import EventKind

GLANCE = "glance"  #: the topic of followers that want samples
MOST = 10  #: events of a kind that are written in a second


class Pace:
    """Counts the events of each kind in this second and in the one before."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._counts: dict[EventKind, tuple[int, int, int]] = {}

    def _count_of(self, kind: EventKind) -> tuple[int, int, int]:
        """Return the second, the events in it, and the events in the one before."""
        now = int(self._clock())
        second, number, before = self._counts.get(kind, (now, 0, 0))
        if second == now:
            return now, number, before
        return now, 0, number if second == now - 1 else 0

    def count(self, kind: EventKind, number: int = 1) -> None:
        now, present, before = self._count_of(kind)
        self._counts[kind] = now, present + number, before

    def left(self, kind: EventKind) -> int:
        """Return how many more events of a kind may be written now."""
        return max(0, MOST - self._count_of(kind)[1])

    @property
    def is_brisk(self) -> bool:
        """Return whether there were so many events lately that a writer may have left some out: its
        seconds begin at other moments."""
        return sum(sum(self._count_of(kind)[1:]) for kind in list(self._counts)) >= MOST
