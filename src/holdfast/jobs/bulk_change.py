"""Cancel, retry or delete all jobs that match a filter, in batches: each is a short transaction of
its own, so that other writers do not wait for a million rows."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial

from holdfast.engine.dialect import Dialect
from holdfast.engine.records import Filter
from holdfast.engine.script import Script
from holdfast.engine.steps import Steps, read_step, write_step
from holdfast.errors import KeyConflict
from holdfast.jobs.bulk_result import Changed, Verb
from holdfast.jobs.job import Job, Status
from holdfast.jobs.read import search

BATCH = 500  # jobs that one transaction changes

Progress = Callable[[Changed], object] | None
#: The script that changes some jobs, while their statuses are among these; the ids of those changed.
Act = Callable[[Sequence[Job], Collection[Status]], Script[list[str]]]
_Batch = tuple[
    list[Job], list[str], str | None
]  # jobs found, ids changed, where the next one begins


class BulkChange:
    """One command and its filter."""

    def __init__(self, dialect: Dialect, verb: Verb, filter: Filter, act: Act) -> None:
        self._dialect = dialect
        self._verb = verb
        self._filter = filter
        self._act = act
        #: Only a filter that names its entity or key retries or deletes a recurring job.
        self._spares_recurring = verb != "cancel" and filter.entity is None and filter.key is None

    def steps(self, most: int | None, progress: Progress) -> Steps[Changed]:
        """Change at most so many jobs; `progress` is called with the sum after each batch."""
        total, after = Changed(), None
        left = most
        while left is None or left > 0:
            size = BATCH if left is None else min(BATCH, left)
            try:
                batch = yield from write_step(partial(self._batch, after, size))
            except KeyConflict:  # an enqueue of the same key raced with a retry
                batch = yield from self._one_by_one(after, size)
            jobs, changed, after = batch
            total = total.plus(jobs, changed, self._verb)
            left = None if left is None else left - len(jobs)
            if progress is not None:
                progress(total)
            if after is None:
                break
        return total

    def _batch(self, after: str | None, size: int) -> Script[_Batch]:
        page = yield from search(self._dialect, self._filter, after, size)
        jobs = [job for job in page.jobs if self._concerns(job)]
        changed = (yield from self._act(jobs, self._filter.status)) if jobs else []
        return page.jobs, changed, page.next

    def _one_by_one(self, after: str | None, size: int) -> Steps[_Batch]:
        page = yield from read_step(partial(search, self._dialect, self._filter, after, size))
        changed: list[str] = []
        for job in page.jobs:
            if self._concerns(job):
                act = partial(self._act, [job], self._filter.status)
                with suppress(KeyConflict):
                    changed += yield from write_step(act)
        return page.jobs, changed, page.next

    def _concerns(self, job: Job) -> bool:
        return job.schedule is None or not self._spares_recurring
