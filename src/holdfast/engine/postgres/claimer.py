"""Claims on PostgreSQL begin where the last claim of their queue and type ended.

While a transaction holds an old snapshot, every job claimed since leaves a dead entry in the index, in
front of the entries of pending jobs; a claim that walks over them all gets slower by the minute. So a
claim begins where the last claim of its queue and type ended. That would miss a new job that belongs in
front of that place. If this process inserts such a job, it forgets the place; for jobs of other
processes, a claim begins at the start of the index if it found too few jobs, and from time to time: as
often as it is cheap (a twentieth of the time).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.engine.claimer import Claimer
from holdfast.engine.records import Fetched
from holdfast.jobs.claim import claim
from holdfast.jobs.job import EventKind, Job, NewJob
from holdfast.jobs.read import FIRST_ID

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine

BEGINNING = (-(2**63), "-infinity", FIRST_ID)
_SHARE = 20
_SOONEST, _LATEST = 0.05, 10.0  # seconds between two looks at everything
_CHEAP = 0.02  # seconds: a look that takes less is never put off


class ClaimCursor:
    """The ends of one engine's claims. Any thread may forget them; then the next claim starts from the
    beginning."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._ends: dict[tuple[str, str], tuple[int, str, str]] = {}
        self._cost = 0.0
        self._due_at = 0.0

    def start(self, queue: str, types: Sequence[str]) -> list[dict[str, Any]]:
        """Return where a claim of these types starts, as parameters."""
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
        """Record how long a claim from the start of the index took, which decides when the next may
        be."""
        self._cost = seconds
        self._due_at = self._monotonic() + min(max(_SHARE * seconds, _SOONEST), _LATEST)

    def may_look_again(self) -> bool:
        """Return whether a claim that found too few jobs may be repeated from the start of the
        index."""
        return self._cost < _CHEAP or self._monotonic() >= self._due_at

    def claimed(self, queue: str, jobs: Sequence[Job]) -> None:
        for job in jobs:  # in the order of running: the last of each type stays
            self._ends[queue, job.type] = (job.rank, job.run_at.isoformat(), job.id)

    def inserted(self, jobs: Sequence[NewJob]) -> None:
        """Forget the places behind which these new jobs would be missed by the next claim."""
        for job in jobs if self._ends else ():
            end = self._ends.get((job.queue, job.type))
            if end is not None and (
                -job.priority < end[0] or job.run_at is not None or job.special
            ):
                self._ends.pop((job.queue, job.type), None)

    def forget(self, queue: str | None = None, types: Sequence[str] = ()) -> None:
        """Forget the places of some types of a queue, or of all types."""
        if queue is None:
            self._ends.clear()
        for type in types:
            self._ends.pop((str(queue), type), None)


class PostgresClaimer(Claimer):
    beginning: Mapping[str, Any] = dict(zip(("rank", "run_at", "id"), BEGINNING, strict=True))

    def __init__(self, engine: "Engine") -> None:
        super().__init__(engine)
        self.cursor = ClaimCursor()

    def _fetch_unlimited(
        self, queue: str, limit: int, worker: str, types: Sequence[str]
    ) -> Fetched:
        wanted = self.cursor.start(queue, types)
        jobs = self._claim(queue, limit, worker, wanted)
        self.cursor.claimed(queue, jobs)
        if len(jobs) >= limit or self.cursor.looked_at_everything(wanted):
            return Fetched(jobs, more=len(jobs) >= limit)
        if not self.cursor.may_look_again():
            return Fetched(jobs, more=False)
        self.cursor.forget(queue, types)
        if jobs:  # they need not wait for a claim from the start of the index
            return Fetched(jobs, more=True)
        return self._fetch_unlimited(queue, limit, worker, types)

    def _claim(
        self, queue: str, limit: int, worker: str, wanted: Sequence[dict[str, Any]]
    ) -> list[Job]:
        began = time.monotonic()
        engine = self._engine
        # One statement, which commits itself: no transaction around it, unless a job is followed.
        write = engine.is_followed(kinds=[EventKind.STARTED])
        jobs = engine.run(lambda: claim(engine.dialect, queue, limit, worker, wanted), write=write)
        if self.cursor.looked_at_everything(wanted):
            self.cursor.took(time.monotonic() - began)
        return jobs
