"""What the scripts need to know of an engine, and the hints that they all give."""

import json
from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache
from typing import Any, Protocol

from holdfast.engine.script import Run, Script
from holdfast.events.audience import Audience

MICRO = 1_000_000


class Dialect(Protocol):
    """How one engine says times."""

    def now(self) -> Any:
        """The moment of the call as a parameter; None where the database's own clock decides."""

    def time(self, moment: datetime) -> Any:
        """A moment, as a parameter."""

    def moment(self, value: Any) -> datetime:
        """A moment, from a column."""

    audience: Audience
    bodies_apart: bool  #: payloads and results have tables of their own
    hints_by_the_way: bool  #: an insert can hint at one queue itself
    claims_in_one: bool  #: one statement finds jobs and makes them running
    seeks_rows: bool  #: a comparison of rows, (a, b) > (1, 2), is one seek in an index


def wake(queues: Iterable[str]) -> Script[None]:
    """Hint at queues: those who wait for them look again."""
    if names := frozenset(queues):
        yield Run("wake", {"queues": _queue_names(names)})


@lru_cache  # mostly the same few, at every enqueue
def _queue_names(queues: frozenset[str]) -> str:
    return json.dumps(sorted(queues))
