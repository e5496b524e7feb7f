"""Where the next claim begins to look.

While somebody holds an old snapshot, every job claimed since leaves a dead entry in the index, in
front of those that are pending; a claim that walks over them all gets slower by the minute. So it
begins where the last one of its queue and type ended. That would miss a job that belongs in front:
one of our own making forgets the bound; for those of others, everything is looked at when a claim
finds too little, and from time to time: as often as it is cheap (a twentieth of the time).
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.jobs.job import Job, NewJob
from holdfast.jobs.read import FIRST_ID

BEGINNING = (-(2**63), "-infinity", FIRST_ID)
_SHARE = 20
_SOONEST, _LATEST = 0.05, 10.0  # seconds between two looks at everything
_CHEAP = 0.02  # seconds: a look that takes less is never put off


class ClaimCursor:
    """Of one engine. Any thread may forget; whoever claims next starts from the beginning."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._ends: dict[tuple[str, str], tuple[int, str, str]] = {}
        self._cost = 0.0
        self._due_at = 0.0

    def start(self, queue: str, types: Sequence[str]) -> list[dict[str, Any]]:
        """What a claim of these types is told."""
        if self._monotonic() >= self._due_at:
            self._ends.clear()
        wanted = []
        for type in types:
            rank, run_at, id = self._ends.get((queue, type), BEGINNING)
            wanted.append({"type": type, "rank": rank, "run_at": run_at, "id": id})
        return wanted

    def looked_at_everything(self, wanted: Sequence[dict[str, Any]]) -> bool:
        return all(bound["id"] == FIRST_ID for bound in wanted)

    def took(self, seconds: float) -> None:
        """How long a look at everything took: it says when the next may be."""
        self._cost = seconds
        self._due_at = self._monotonic() + min(max(_SHARE * seconds, _SOONEST), _LATEST)

    def may_look_again(self) -> bool:
        """A bounded claim found too little: look at everything at once?"""
        return self._cost < _CHEAP or self._monotonic() >= self._due_at

    def claimed(self, queue: str, jobs: Sequence[Job]) -> None:
        for job in jobs:  # in the order of running: the last of each type stays
            self._ends[queue, job.type] = (job.rank, job.run_at.isoformat(), job.id)

    def inserted(self, jobs: Sequence[NewJob]) -> None:
        """A new job in front of a bound: the next claim must see it."""
        for job in jobs if self._ends else ():
            end = self._ends.get((job.queue, job.type))
            if end is not None and (
                -job.priority < end[0] or job.run_at is not None or job.special
            ):
                self._ends.pop((job.queue, job.type), None)

    def forget(self, queue: str | None = None, types: Sequence[str] = ()) -> None:
        """Of some types of a queue, or all."""
        if queue is None:
            self._ends.clear()
        for type in types:
            self._ends.pop((str(queue), type), None)
