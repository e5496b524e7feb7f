"""`app.jobs`: look at jobs, wait for them, and change what happens to them: by id, by filter, or by
entity."""

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from holdfast.core import validation
from holdfast.core.duration import Duration
from holdfast.core.ids import parse_id
from holdfast.engine.records import Edit, Filter, Page
from holdfast.engine.script import Script
from holdfast.engine.steps import Runner, Steps, read_step, write_step
from holdfast.errors import InvalidInput, JobNotFound
from holdfast.events.feed import patience
from holdfast.jobs import commands, log_lines
from holdfast.jobs import read as read_scripts
from holdfast.jobs.bulk_change import Act, BulkChange, Progress
from holdfast.jobs.bulk_result import (
    Changed,
    Verb,
    make_edit,
    settle_cancel,
    settle_delete,
    settle_edit,
    settle_retry,
)
from holdfast.jobs.error_groups import BROKEN, ErrorGroups, read_errors
from holdfast.jobs.filters import make_filter
from holdfast.jobs.job import Attempt, Job, LogLine, Status
from holdfast.jobs.waiting import Results
from holdfast.monitoring.health import why_it_waits
from holdfast.tasks.task import Task

PAGE = 100
COUNT_CAP = 100_000
LINES, MOST_LINES = 1000, 10_000


class Jobs:
    """Jobs by id, or by filter: `status` (one or several), `type`, `prefix` (of the type), `queue`,
    `key`, `worker_id`, `entity`, `since` and `until` (by the time of creation), `id`, `min_priority`,
    `max_priority`, `text`, `error` and `payload`. Jobs must match all filters that are given; `limit`
    bounds how many are returned or changed. Methods with `tx=` also run in a caller's transaction."""

    def __init__(
        self,
        runner: Runner,
        *,
        keep: Callable[[str], float],
        aging: float | None,
        tasks: Mapping[str, Task[Any, Any]],
    ) -> None:
        """`keep`: how long cancelled jobs of a task are kept. `aging`: as the application is set."""
        self._runner = runner
        self._tasks = tasks
        self._results = Results(runner, tasks)
        self._dialect = runner.engine.dialect
        self._keep = keep
        self._aging = aging

    def on(self, runner: Runner) -> "Jobs":
        """Return the same for another database."""
        return Jobs(runner, keep=self._keep, aging=self._aging, tasks=self._tasks)

    # looking

    def get(self, id: str | UUID, *, tx: Any = None) -> Job:
        """Return a job with its payload and result. Raises JobNotFound."""
        return self._runner.go(self._get(id), tx)

    async def aget(self, id: str | UUID, *, tx: Any = None) -> Job:
        return await self._runner.ago(self._get(id), tx)

    def _get(self, id: str | UUID) -> Steps[Job]:
        known = parse_id(id)
        return _only(
            (yield from read_step(lambda: read_scripts.get(self._dialect, [known]))), known
        )

    def attempts(self, id: str | UUID) -> list[Attempt]:
        """Return the failed runs of a job with their tracebacks, the newest first."""
        return self._runner.go(self._attempts(id))

    async def aattempts(self, id: str | UUID) -> list[Attempt]:
        return await self._runner.ago(self._attempts(id))

    def _attempts(self, id: str | UUID) -> Steps[list[Attempt]]:
        return read_step(partial(read_scripts.attempts, self._dialect, parse_id(id)))

    def logs(
        self, id: str | UUID, *, after: str | None = None, limit: int = LINES, newest: bool = False
    ) -> list[LogLine]:
        """Return what the last 20 runs of a job wrote with `ctx.log`, in order. `after`: only lines
        behind this one (its `cursor`), which may be the last so far: a running job adds lines.
        `newest`: the last `limit` lines instead of the first."""
        return self._runner.go(self._logs(id, after, limit, newest))

    async def alogs(
        self, id: str | UUID, *, after: str | None = None, limit: int = LINES, newest: bool = False
    ) -> list[LogLine]:
        return await self._runner.ago(self._logs(id, after, limit, newest))

    def _logs(
        self, id: str | UUID, after: str | None, limit: int, newest: bool
    ) -> Steps[list[LogLine]]:
        known, place = parse_id(id), None if after is None else log_lines.parse_cursor(after)
        if type(limit) is not int or not 1 <= limit <= MOST_LINES:
            raise InvalidInput(f"limit={limit!r}: give a number of lines from 1 to {MOST_LINES}")
        return read_step(lambda: log_lines.logs(self._dialect, known, place, limit, newest))

    def why(self, id: str | UUID) -> list[str]:
        """Return why a job is not finished yet: "limit tmdb-api: 4 of 4 running, 17th in line"."""
        return why_it_waits(self._runner.engine, self.get(id))

    async def awhy(self, id: str | UUID) -> list[str]:
        return await self._runner.hop(lambda: self.why(id))

    def search(self, *, limit: int | None = None, tx: Any = None, **filter: Any) -> Iterator[Job]:
        """Return all jobs that match, the newest first, read page by page, without payloads and
        results."""
        wanted = make_filter(**filter)
        return self._pages(wanted, _limit(limit), tx)

    def _pages(self, filter: Filter, limit: int | None, tx: Any) -> Iterator[Job]:
        after = None
        while limit is None or limit > 0:
            page = self._runner.go(self._page(filter, after, limit), tx)
            yield from page.jobs
            if (after := page.next) is None:
                return
            limit = None if limit is None else limit - len(page.jobs)

    def asearch(
        self, *, limit: int | None = None, tx: Any = None, **filter: Any
    ) -> AsyncIterator[Job]:
        wanted = make_filter(**filter)
        return self._apages(wanted, _limit(limit), tx)

    async def _apages(self, filter: Filter, limit: int | None, tx: Any) -> AsyncIterator[Job]:
        after = None
        while limit is None or limit > 0:
            page = await self._runner.ago(self._page(filter, after, limit), tx)
            for job in page.jobs:
                yield job
            if (after := page.next) is None:
                return
            limit = None if limit is None else limit - len(page.jobs)

    def _page(self, filter: Filter, after: str | None, limit: int | None) -> Steps[Page]:
        size = PAGE if limit is None else min(limit, PAGE)
        return read_step(lambda: read_scripts.search(self._dialect, filter, after, size))

    def latest(self, *, tx: Any = None, **filter: Any) -> Job | None:
        """Return the newest job that matches, with its body: `latest(entity=("movie", 7),
        type="transcode")`."""
        return self._runner.go(self._latest(make_filter(**filter)), tx)

    async def alatest(self, *, tx: Any = None, **filter: Any) -> Job | None:
        return await self._runner.ago(self._latest(make_filter(**filter)), tx)

    def _latest(self, filter: Filter) -> Steps[Job | None]:
        page = yield from self._page(filter, None, 1)
        while True:
            if page.jobs:
                newest = partial(read_scripts.get, self._dialect, [page.jobs[0].id])
                whole = yield from read_step(newest)
                return whole[0] if whole else (yield from self._latest(filter))
            if page.next is None:
                return None
            page = yield from self._page(filter, page.next, None)

    def count(self, *, cap: int = COUNT_CAP, tx: Any = None, **filter: Any) -> int:
        """Return how many jobs match, counted up to `cap`."""
        return self._runner.go(self._count(cap, make_filter(**filter)), tx)

    async def acount(self, *, cap: int = COUNT_CAP, tx: Any = None, **filter: Any) -> int:
        return await self._runner.ago(self._count(cap, make_filter(**filter)), tx)

    def _count(self, cap: int, filter: Filter) -> Steps[int]:
        if filter == Filter(status=filter.status):
            statuses = sorted(filter.status) or list(Status)
            found = yield from read_step(lambda: read_scripts.counts(statuses, cap))
            return min(sum(found.values()), cap)
        total, after = 0, None
        while total < cap:
            page = yield from read_step(
                partial(read_scripts.search, self._dialect, filter, after, 1000)
            )
            total, after = total + len(page.jobs), page.next
            if after is None:
                break
        return min(total, cap)

    def errors(self, *, status: Collection[str] = BROKEN, type: str | None = None) -> ErrorGroups:
        """Return the newest failures, grouped by exception, message and place."""
        return read_errors(self._runner.engine, statuses=status, type=type)

    async def aerrors(
        self, *, status: Collection[str] = BROKEN, type: str | None = None
    ) -> ErrorGroups:
        return await self._runner.hop(lambda: self.errors(status=status, type=type))

    def wait_for(self, id: str | UUID, *, timeout: Duration | None = None) -> Any:
        """Wait until a job has ended, and return its result, in the type that its task returns if that
        task is registered here. Raises JobFailed if the job failed or was cancelled, TimeoutError
        after `timeout`."""
        return self._results.wait_for(parse_id(id), patience(timeout))

    async def await_for(self, id: str | UUID, *, timeout: Duration | None = None) -> Any:
        return await self._results.await_for(parse_id(id), patience(timeout))

    # changing

    def cancel(self, id: str | UUID, *, tx: Any = None) -> Job:
        """Cancel a job. A running job is asked to stop (`job.cancel_requested`), and is cancelled when
        its run has ended."""
        return self._runner.go(self._change(id, self._cancelling, settle_cancel), tx)

    async def acancel(self, id: str | UUID, *, tx: Any = None) -> Job:
        return await self._runner.ago(self._change(id, self._cancelling, settle_cancel), tx)

    def retry(self, id: str | UUID, *, tx: Any = None) -> Job:
        """Run a job again from the beginning: its attempts start at 0, and its error is cleared.
        Refused while it runs, or if another unfinished job has its key."""
        return self._runner.go(self._change(id, self._retrying, settle_retry), tx)

    async def aretry(self, id: str | UUID, *, tx: Any = None) -> Job:
        return await self._runner.ago(self._change(id, self._retrying, settle_retry), tx)

    def delete(self, id: str | UUID, *, tx: Any = None) -> Job:
        """Delete a job in any status, and return it as it was. If it is running, its run ends without a
        record."""
        return self._runner.go(self._change(id, self._deleting, settle_delete), tx)

    async def adelete(self, id: str | UUID, *, tx: Any = None) -> Job:
        return await self._runner.ago(self._change(id, self._deleting, settle_delete), tx)

    def edit(
        self,
        id: str | UUID,
        *,
        priority: int | None = None,
        run_at: datetime | None = None,
        delay: Duration | None = None,
        queue: str | None = None,
        tx: Any = None,
    ) -> Job:
        """Give a waiting job another priority, another time (a moment, or a time from now) or another
        queue. Refused once it runs or is finished."""
        wanted = make_edit(priority, run_at, delay, queue, self._aging)
        return self._runner.go(self._edit(id, wanted), tx)

    async def aedit(
        self,
        id: str | UUID,
        *,
        priority: int | None = None,
        run_at: datetime | None = None,
        delay: Duration | None = None,
        queue: str | None = None,
        tx: Any = None,
    ) -> Job:
        wanted = make_edit(priority, run_at, delay, queue, self._aging)
        return await self._runner.ago(self._edit(id, wanted), tx)

    def _edit(self, id: str | UUID, wanted: Edit) -> Steps[Job]:
        def editing(jobs: Sequence[Job], only: Collection[Status]) -> Script[list[str]]:
            return commands.edit(self._dialect, jobs[0].id, wanted)

        return self._change(id, editing, partial(settle_edit, wanted=wanted))

    def cancel_all(
        self, *, everything: bool = False, progress: Progress = None, tx: Any = None, **filter: Any
    ) -> Changed:
        """Cancel all jobs that match, in batches: each is a short transaction of its own, so that other
        writers do not wait for a million rows. `progress` is called after each batch, with the sum so
        far. Recurring jobs are skipped, unless they are running."""
        return self._runner.go(self._all("cancel", filter, everything, progress), tx)

    async def acancel_all(
        self, *, everything: bool = False, progress: Progress = None, tx: Any = None, **filter: Any
    ) -> Changed:
        return await self._runner.ago(self._all("cancel", filter, everything, progress), tx)

    def retry_all(
        self, *, everything: bool = False, progress: Progress = None, tx: Any = None, **filter: Any
    ) -> Changed:
        """Run all jobs that match again from the beginning, in batches as `cancel_all`. Skipped are
        running and blocked jobs, recurring ones (unless the filter names their entity or key), and jobs
        whose key another unfinished job has."""
        return self._runner.go(self._all("retry", filter, everything, progress), tx)

    async def aretry_all(
        self, *, everything: bool = False, progress: Progress = None, tx: Any = None, **filter: Any
    ) -> Changed:
        return await self._runner.ago(self._all("retry", filter, everything, progress), tx)

    def delete_all(
        self, *, everything: bool = False, progress: Progress = None, tx: Any = None, **filter: Any
    ) -> Changed:
        """Delete all jobs that match, in any status, in batches as `cancel_all`. Recurring jobs are
        skipped, unless the filter names their entity or key."""
        return self._runner.go(self._all("delete", filter, everything, progress), tx)

    async def adelete_all(
        self, *, everything: bool = False, progress: Progress = None, tx: Any = None, **filter: Any
    ) -> Changed:
        return await self._runner.ago(self._all("delete", filter, everything, progress), tx)

    def _cancelling(self, jobs: Sequence[Job], only: Collection[Status]) -> Script[list[str]]:
        keep = {job.id: self._keep(job.type) for job in jobs}
        return commands.cancel(self._dialect, list(keep), keep, only)

    def _retrying(self, jobs: Sequence[Job], only: Collection[Status]) -> Script[list[str]]:
        return commands.retry(self._dialect, [job.id for job in jobs], only)

    def _deleting(self, jobs: Sequence[Job], only: Collection[Status]) -> Script[list[str]]:
        return commands.delete(self._dialect, [job.id for job in jobs], only)

    def _change(
        self, id: str | UUID, act: Act, settle: Callable[[Job, Job | None, bool], Job]
    ) -> Steps[Job]:
        known = parse_id(id)

        def script() -> Script[tuple[Job, list[str], list[Job]]]:
            before = _only((yield from read_scripts.get(self._dialect, [known])), known)
            changed = yield from act([before], ())
            after = yield from read_scripts.get(self._dialect, [known])
            return before, changed, after

        before, changed, after = yield from write_step(script)
        return settle(before, after[0] if after else None, bool(changed))

    def _all(
        self, verb: Verb, given: Mapping[str, Any], everything: bool, progress: Progress
    ) -> Steps[Changed]:
        wanted = dict(given)
        most = _limit(wanted.pop("limit", None))
        if not wanted and not everything:
            raise InvalidInput(
                f"{verb}_all() without a filter would concern every job: give one, such as "
                "status='failed' or entity=('movie', 7), or everything=True"
            )
        act: Mapping[Verb, Act] = {
            "cancel": self._cancelling,
            "retry": self._retrying,
            "delete": self._deleting,
        }
        change = BulkChange(self._dialect, verb, make_filter(**wanted), act[verb])
        return change.steps(most, progress)


def _limit(limit: int | None) -> int | None:
    return None if limit is None else validation.integer(limit, "limit", 0)


def _only(found: Sequence[Job], id: str) -> Job:
    if not found:
        raise JobNotFound(f"no job has the id {id}: it was never made, or deleted, or pruned")
    return found[0]
