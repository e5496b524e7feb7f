"""Lanes: which jobs a worker takes, and how many at a time.

By default each queue has a lane for each kind of handler, so that a hundred waiting coroutines do not
keep threads from working. A size given for a queue is one lane for all of its kinds.
"""

import math
import os
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.core import validation
from holdfast.errors import InvalidInput
from holdfast.limits.limit import Rule
from holdfast.tasks.task import Kind, Task

DEFAULT_SLOTS: Mapping[Kind, int] = {
    "async": 100,
    "thread": 10,
    "process": os.cpu_count() or 1,
}
MOST = 10_000


class Lane:
    """Some kinds of jobs of one queue. `free` is changed under the dispatcher's lock only."""

    of: "Lane | None" = None  #: the lane whose slots these are, too
    apart = False  #: each of its jobs has a process of its own, whatever its kind

    def __init__(self, queue: str, kinds: Iterable[Kind], size: int) -> None:
        self.queue = queue
        self.kinds = frozenset(kinds)
        self.size = size
        self.free = size
        self.exhausted = False  #: the last look found less than it asked for
        self.again_at = math.inf  #: when a rate lets more start
        self.types: list[str] = []
        self.rules: dict[str, Rule] = {}

    def __repr__(self) -> str:
        return f"<Lane {self.queue} {'/'.join(sorted(self.kinds))} {self.free} of {self.size} free>"

    @property
    def taken(self) -> int:
        return self.size - self.free

    def update(self, tasks: Mapping[str, Task[Any, Any]]) -> None:
        """Which types it takes: those of its kinds that are registered now."""
        mine = {name: task for name, task in tasks.items() if task.conduct.kind in self.kinds}
        self.types = list(mine)
        self.rules = {name: task.rule for name, task in mine.items() if task.rule is not None}


Queues = str | Iterable[str] | Mapping[str, int | None] | None


def make_lanes(queues: Queues, concurrency: int | None) -> list[Lane]:
    """From what callers give: "default=10,media", ["default"], {"media": 2}, and a size for the queues
    that have none."""
    lanes: list[Lane] = []
    for queue, size in parse_queues(queues).items():
        size = concurrency if size is None else size
        if size is not None:
            size = validation.integer(size, f"concurrency of queue {queue!r}", 1, MOST)
            lanes.append(Lane(queue, DEFAULT_SLOTS, size))
        else:
            lanes += [Lane(queue, [kind], slots) for kind, slots in DEFAULT_SLOTS.items()]
    return lanes


def parse_queues(queues: Queues) -> dict[str, int | None]:
    if queues is None:
        return {"default": None}
    found: dict[str, int | None] = {}
    if isinstance(queues, Mapping):
        found = {validation.name(queue, "queue"): size for queue, size in queues.items()}
    else:
        for word in queues.split(",") if isinstance(queues, str) else queues:
            queue, equals, size = str(word).strip().partition("=")
            if equals and not size.isdecimal():
                raise InvalidInput(f"queues: {word!r}: write 'media' or 'media=2'")
            found[validation.name(queue, "queue")] = int(size) if equals else None
    if not found:
        raise InvalidInput("queues: none was given")
    return found
