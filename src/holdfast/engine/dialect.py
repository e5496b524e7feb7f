"""What the scripts need to know of an engine, and the one thing that they all do."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Protocol

from holdfast.core.clock import Clock
from holdfast.engine.script import Run, Script
from holdfast.events.sampling import GLANCE, Pace
from holdfast.jobs.job import EventKind

MICRO = 1_000_000
EVERYTHING = ""  #: the topic of who follows all jobs; that of who follows one is its id
_BEAT = 1.0


class Dialect(Protocol):
    """How one engine says times."""

    def now(self) -> Any:
        """The moment of the call as a parameter; None where the database's own clock decides."""

    def time(self, moment: datetime) -> Any:
        """A moment, as a parameter."""

    def moment(self, value: Any) -> datetime:
        """A moment, from a column."""

    audience: "Audience"
    bodies_apart: bool  #: payloads and results have tables of their own
    hints_by_the_way: bool  #: an insert can hint at one queue itself
    claims_in_one: bool  #: one statement finds jobs and makes them running


class Audience:
    """What somebody follows, as far as is known here: looked up at most every second."""

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
        """Nobody does, for certain."""
        return not (self._topics or self._glances or self.is_stale)

    def listens(self, ids: Sequence[str] | None, kinds: Iterable[EventKind]) -> bool:
        """Would somebody be told that one of these happened to one of these jobs, or to any?"""
        if self._glances and any(self._pace.room(kind) for kind in kinds):
            return True
        if ids is None or EVERYTHING in self._topics:
            return bool(self._topics)
        return any(id in self._topics for id in ids) if self._topics else False

    def wants(self, ids: Sequence[str], kind: EventKind) -> Sequence[str]:
        """The jobs among these of which somebody is told that."""
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
        self._until = self._clock.monotonic() + _BEAT


def wake(queues: Iterable[str]) -> Script[None]:
    """Hint at queues: those who wait for them look again."""
    if names := frozenset(queues):
        yield Run("wake", {"queues": _queue_names(names)})


@lru_cache  # mostly the same few, at every enqueue
def _queue_names(queues: frozenset[str]) -> str:
    return json.dumps(sorted(queues))
