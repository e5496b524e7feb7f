"""The followers of jobs, as far as this process knows them: `outbox.emit` writes events only for jobs
that have followers."""

from collections.abc import Iterable, Sequence

from holdfast.core.clock import Clock
from holdfast.events.sampling import GLANCE, Pace
from holdfast.jobs.job import EventKind

EVERYTHING = ""  #: the topic of followers of all jobs; the topic of followers of one job is its id
_KNOWN_FOR = 1.0  # seconds until the followers are read again


class Followers:
    """The topics that have followers, as this process last read them: at most a second ago."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = float("-inf")
        self._topics: frozenset[str] = frozenset()
        self._samples = False
        self._pace = Pace(clock.monotonic)

    @property
    def is_stale(self) -> bool:
        return self._clock.monotonic() >= self._until

    @property
    def is_silent(self) -> bool:
        """Whether it is certain that no topic has followers."""
        return not (self._topics or self._samples or self.is_stale)

    def listens(self, ids: Sequence[str] | None, kinds: Iterable[EventKind]) -> bool:
        """Whether an event of one of these kinds would be written for one of these jobs, or (None) for
        any job."""
        if self._samples and any(self._pace.left(kind) for kind in kinds):
            return True
        if ids is None or EVERYTHING in self._topics:
            return bool(self._topics)
        return any(id in self._topics for id in ids) if self._topics else False

    def wants(self, ids: Sequence[str], kind: EventKind) -> Sequence[str]:
        """Return those of these jobs for which an event of this kind must be written."""
        if EVERYTHING in self._topics:
            return ids
        left = self._pace.left(kind) if self._samples else 0
        if not left:
            return [id for id in ids if id in self._topics] if self._topics else ()
        if not self._topics:
            return ids[:left]
        sampled = frozenset([id for id in ids if id not in self._topics][:left])
        return [id for id in ids if id in sampled or id in self._topics]

    def count(self, kind: EventKind, number: int) -> None:
        """Count events that were written, against the limit of samples."""
        if self._samples:
            self._pace.count(kind, number)

    def learn(self, topics: Iterable[str]) -> None:
        """Replace the topics by those that were read from the database."""
        found = frozenset(topics)
        self._topics = found - {GLANCE}
        self._samples = GLANCE in found
        self._until = self._clock.monotonic() + _KNOWN_FOR
