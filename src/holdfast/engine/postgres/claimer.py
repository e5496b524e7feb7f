"""Claims on PostgreSQL begin where the last one of their queue and type ended."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.engine.claimer import Claimer
from holdfast.engine.postgres.claim_cursor import BEGINNING, ClaimCursor
from holdfast.engine.records import Fetched
from holdfast.jobs.claim import claim
from holdfast.jobs.job import EventKind, Job

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine


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
        if jobs:  # they need not wait for a look at everything
            return Fetched(jobs, more=True)
        return self._fetch_unlimited(queue, limit, worker, types)

    def _claim(
        self, queue: str, limit: int, worker: str, wanted: Sequence[dict[str, Any]]
    ) -> list[Job]:
        began = time.monotonic()
        engine = self._engine
        # One statement, which commits itself: no transaction around it, unless somebody follows.
        write = engine.is_followed(kinds=[EventKind.STARTED])
        jobs = engine.run(lambda: claim(engine.dialect, queue, limit, worker, wanted), write=write)
        if self.cursor.looked_at_everything(wanted):
            self.cursor.took(time.monotonic() - began)
        return jobs
