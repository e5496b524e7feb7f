"""What the scripts need to know of an engine, and the hints that they all give."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, ClassVar

from holdfast.core.clock import Clock, from_microseconds, to_microseconds
from holdfast.engine.script import Run, Script
from holdfast.events.audience import Audience

MICRO = 1_000_000


class Dialect(ABC):
    """How one engine says times, and what its SQL can do."""

    bodies_apart: ClassVar[bool]  #: payloads and results have tables of their own
    hints_by_the_way: ClassVar[bool]  #: an insert can hint at one queue itself
    claims_in_one: ClassVar[bool]  #: one statement finds jobs and makes them running
    seeks_rows: ClassVar[bool]  #: a comparison of rows, (a, b) > (1, 2), is one seek in an index

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.audience = Audience(clock)

    @abstractmethod
    def now(self) -> Any:
        """The time of the call as a parameter; None where the database's own clock decides."""

    @abstractmethod
    def time(self, moment: datetime) -> Any:
        """Return a time as a parameter."""

    @abstractmethod
    def moment(self, value: Any) -> datetime:
        """Return the time of a column."""


class SqliteDialect(Dialect):
    """Times are integers: microseconds since 1970. All processes share the machine's clock."""

    bodies_apart = True
    hints_by_the_way = claims_in_one = seeks_rows = False

    def now(self) -> int:
        return to_microseconds(self._clock.now())

    def time(self, moment: datetime) -> int:
        return to_microseconds(moment)

    def moment(self, value: Any) -> datetime:
        return from_microseconds(value)


class PostgresDialect(Dialect):
    """Times are the server's, unless a clock rules; as parameters they are ISO text."""

    bodies_apart = False
    hints_by_the_way = claims_in_one = seeks_rows = True

    def now(self) -> str | None:
        return self._clock.now().isoformat() if self._clock.rules_the_database else None

    def time(self, moment: datetime) -> str:
        return moment.isoformat()

    def moment(self, value: Any) -> datetime:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return moment if moment.tzinfo is UTC else moment.astimezone(UTC)


def wake(queues: Iterable[str]) -> Script[None]:
    """Hint at queues: workers that wait for them look again."""
    if names := frozenset(queues):
        yield Run("wake", {"queues": _queue_names(names)})


@lru_cache  # mostly the same few, at every enqueue
def _queue_names(queues: frozenset[str]) -> str:
    return json.dumps(sorted(queues))
