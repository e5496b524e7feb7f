"""Which jobs have followers: events are written for these only."""

from collections.abc import Iterable, Sequence

from holdfast.core.clock import Clock
from holdfast.events.sampling import GLANCE, Pace
from holdfast.jobs.job import EventKind

EVERYTHING = ""  #: the topic of followers of all jobs; that of followers of one job is its id
_KNOWN_FOR = 1.0  # seconds between two looks at the followers


class Audience:
    """What has followers, as far as this process knows: looked up at most every second."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = float("-inf")
        self._topics: frozenset[str] = frozenset()
        self._glances = False
        self._pace = Pace(clock.monotonic)

    @property
    def is_stale(self) -> bool:
        return self._clock.monotonic() >= self._until

    @property
    def is_silent(self) -> bool:
        """True if, for certain, nothing has a follower."""
        return not (self._topics or self._glances or self.is_stale)

    def listens(self, ids: Sequence[str] | None, kinds: Iterable[EventKind]) -> bool:
        """Would a follower get an event if one of these happened to one of these jobs, or to any?"""
        if self._glances and any(self._pace.room(kind) for kind in kinds):
            return True
        if ids is None or EVERYTHING in self._topics:
            return bool(self._topics)
        return any(id in self._topics for id in ids) if self._topics else False

    def wants(self, ids: Sequence[str], kind: EventKind) -> Sequence[str]:
        """The jobs among these for which an event of this kind is to be written."""
        if EVERYTHING in self._topics:
            return ids
        room = self._pace.room(kind) if self._glances else 0
        if not room:
            return [id for id in ids if id in self._topics] if self._topics else ()
        if not self._topics:
            return ids[:room]
        glanced = frozenset([id for id in ids if id not in self._topics][:room])
        return [id for id in ids if id in glanced or id in self._topics]

    def told(self, kind: EventKind, number: int) -> None:
        if self._glances:
            self._pace.count(kind, number)

    def learn(self, topics: Iterable[str]) -> None:
        found = frozenset(topics)
        self._topics = found - {GLANCE}
        self._glances = GLANCE in found
        self._until = self._clock.monotonic() + _KNOWN_FOR
