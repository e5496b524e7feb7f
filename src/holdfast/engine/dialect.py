"""The differences between the engines that scripts depend on; and `wake`, the script of hints."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, ClassVar

from holdfast.core.clock import Clock, from_microseconds, to_microseconds
from holdfast.engine.script import Run, Script
from holdfast.events.followers import Followers

MICRO = 1_000_000


class Dialect(ABC):
    """The representation of times in one engine, and the abilities of its SQL."""

    bodies_apart: ClassVar[bool]  #: payloads and results have tables of their own
    insert_hints: ClassVar[bool]  #: the statement of an insert can also send the hint for one queue
    #: Other transactions write at the same time, so scripts lock the rows that they decide about, and a
    #: claim finds and takes jobs in one statement. False: one writer at a time, nothing to lock.
    locks_rows: ClassVar[bool]
    seeks_rows: ClassVar[bool]  #: a comparison of rows, (a, b) > (1, 2), is one seek in an index

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.followers = Followers(clock)

    @abstractmethod
    def now(self) -> Any:
        """Return the present time as a parameter; None where the database's own clock decides."""

    @abstractmethod
    def time(self, moment: datetime) -> Any:
        """Return a time as a parameter."""

    @abstractmethod
    def moment(self, value: Any) -> datetime:
        """Return the time in a column."""


class SqliteDialect(Dialect):
    """SQLite: times are integers, microseconds since 1970. All processes share the machine's clock."""

    bodies_apart = True
    insert_hints = locks_rows = seeks_rows = False

    def now(self) -> int:
        return to_microseconds(self._clock.now())

    def time(self, moment: datetime) -> int:
        return to_microseconds(moment)

    def moment(self, value: Any) -> datetime:
        return from_microseconds(value)


class PostgresDialect(Dialect):
    """PostgreSQL: the server's clock decides, unless a test's clock does; times are ISO text."""

    bodies_apart = False
    insert_hints = locks_rows = seeks_rows = True

    def now(self) -> str | None:
        return self._clock.now().isoformat() if self._clock.rules_the_database else None

    def time(self, moment: datetime) -> str:
        return moment.isoformat()

    def moment(self, value: Any) -> datetime:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return moment if moment.tzinfo is UTC else moment.astimezone(UTC)


def wake(queues: Iterable[str]) -> Script[None]:
    """Send a hint for each of these queues: workers that serve them look for jobs now."""
    if names := frozenset(queues):
        yield Run("wake", {"queues": _queue_names(names)})


@lru_cache  # every enqueue calls it, mostly for the same few queues
def _queue_names(queues: frozenset[str]) -> str:
    return json.dumps(sorted(queues))
