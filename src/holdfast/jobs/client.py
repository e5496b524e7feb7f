"""`app.jobs`: look at jobs, wait for them, and change what happens to them: by id, by filter, or by
entity."""

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from holdfast.core import validation
from holdfast.core.duration import Duration
from holdfast.core.ids import parse_id
from holdfast.engine.records import Filter, Page
from holdfast.engine.steps import Runner, Steps, async_twin, read_step, run_steps
from holdfast.errors import InvalidInput
from holdfast.events.feed import patience
from holdfast.jobs import log_lines
from holdfast.jobs import read as read_scripts
from holdfast.jobs.changes import Changed, Changes, Notify, Verb, make_edit, only
from holdfast.jobs.error_groups import BROKEN, ErrorGroups, read_errors
from holdfast.jobs.filters import make_filter
from holdfast.jobs.job import Attempt, Job, LogLine, Status
from holdfast.jobs.result_waiter import ResultWaiter
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
        self._results = ResultWaiter(runner, tasks)
        self._dialect = runner.engine.dialect
        self._changes = Changes(self._dialect, keep)
        self._keep = keep
        self._aging = aging

    def on(self, runner: Runner) -> "Jobs":
        """Return the same for another database."""
        return Jobs(runner, keep=self._keep, aging=self._aging, tasks=self._tasks)

    # looking

    @run_steps
    def get(self, id: str | UUID, *, tx: Any = None) -> Steps[Job]:
        """Return a job with its payload and result. Raises JobNotFound."""
        known = parse_id(id)
        found = yield from read_step(lambda: read_scripts.get(self._dialect, [known]))
        return only(found, known)

    aget = async_twin(get)

    @run_steps
    def attempts(self, id: str | UUID) -> Steps[list[Attempt]]:
        """Return the failed runs of a job with their tracebacks, the newest first."""
        return read_step(partial(read_scripts.attempts, self._dialect, parse_id(id)))

    aattempts = async_twin(attempts)

    @run_steps
    def logs(
        self, id: str | UUID, *, after: str | None = None, limit: int = LINES, newest: bool = False
    ) -> Steps[list[LogLine]]:
        """Return what the last 20 runs of a job wrote with `ctx.log`, in order. `after`: only lines
        behind this one (its `cursor`), which may be the last so far: a running job adds lines.
        `newest`: the last `limit` lines instead of the first."""
        known, place = parse_id(id), None if after is None else log_lines.parse_cursor(after)
        if type(limit) is not int or not 1 <= limit <= MOST_LINES:
            raise InvalidInput(f"limit={limit!r}: give a number of lines from 1 to {MOST_LINES}")
        return read_step(lambda: log_lines.logs(self._dialect, known, place, limit, newest))

    alogs = async_twin(logs)

    def why(self, id: str | UUID) -> list[str]:
        """Return why a job is not finished yet: "limit tmdb-api: 4 of 4 running, 17th in line"."""
        return why_it_waits(self._runner.engine, self.get(id))

    async def awhy(self, id: str | UUID) -> list[str]:
        return await self._runner.hop(lambda: self.why(id))

    def search(self, *, limit: int | None = None, tx: Any = None, **filter: Any) -> Iterator[Job]:
        """Return all jobs that match, the newest first, read page by page, without payloads and
        results."""
        return self._pages(make_filter(**filter), _limit(limit), tx)

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
        return self._apages(make_filter(**filter), _limit(limit), tx)

    async def _apages(self, filter: Filter, limit: int | None, tx: Any) -> AsyncIterator[Job]:
        after = None
        while limit is None or limit > 0:
            page = await self._runner.ago(self._page(filter, after, limit), tx)
            for job in page.jobs:
                yield job
            if (after := page.next) is None:
                return
            limit = None if limit is None else limit - len(page.jobs)

    def _page(
        self, filter: Filter, after: str | None, limit: int | None, size: int = PAGE
    ) -> Steps[Page]:
        most = size if limit is None else min(limit, size)
        return read_step(lambda: read_scripts.search(self._dialect, filter, after, most))

    @run_steps
    def latest(self, /, *, tx: Any = None, **filter: Any) -> Steps[Job | None]:
        """Return the newest job that matches, with its body: `latest(entity=("movie", 7),
        type="transcode")`."""
        wanted, after, limit = make_filter(**filter), None, 1
        while True:
            page = yield from self._page(wanted, after, limit)
            after, limit = page.next, PAGE
            if page.jobs:
                newest = partial(read_scripts.get, self._dialect, [page.jobs[0].id])
                if whole := (yield from read_step(newest)):
                    return whole[0]
                after, limit = None, 1  # it was deleted meanwhile
            elif after is None:
                return None

    alatest = async_twin(latest)

    @run_steps
    def count(self, /, *, cap: int = COUNT_CAP, tx: Any = None, **filter: Any) -> Steps[int]:
        """Return how many jobs match, counted up to `cap`."""
        wanted = make_filter(**filter)
        if wanted == Filter(status=wanted.status):
            statuses = sorted(wanted.status) or list(Status)
            found = yield from read_step(lambda: read_scripts.counts(statuses, cap))
            return min(sum(found.values()), cap)
        total, after = 0, None
        while total < cap:
            page = yield from self._page(wanted, after, None, 1000)
            total, after = total + len(page.jobs), page.next
            if after is None:
                break
        return min(total, cap)

    acount = async_twin(count)

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

    @run_steps
    def cancel(self, id: str | UUID, *, tx: Any = None) -> Steps[Job]:
        """Cancel a job. A running job is asked to stop (`job.cancel_requested`), and is cancelled when
        its run has ended."""
        return self._changes.one("cancel", id)

    acancel = async_twin(cancel)

    @run_steps
    def retry(self, id: str | UUID, *, tx: Any = None) -> Steps[Job]:
        """Run a job again from the beginning: its attempts start at 0, and its error is cleared.
        Refused while it runs, or if another unfinished job has its key."""
        return self._changes.one("retry", id)

    aretry = async_twin(retry)

    @run_steps
    def delete(self, id: str | UUID, *, tx: Any = None) -> Steps[Job]:
        """Delete a job in any status, and return it as it was. If it is running, its run ends without a
        record."""
        return self._changes.one("delete", id)

    adelete = async_twin(delete)

    @run_steps
    def edit(
        self,
        id: str | UUID,
        *,
        priority: int | None = None,
        run_at: datetime | None = None,
        delay: Duration | None = None,
        queue: str | None = None,
        tx: Any = None,
    ) -> Steps[Job]:
        """Give a waiting job another priority, another time (a moment, or a time from now) or another
        queue. Refused once it runs or is finished."""
        return self._changes.edit(id, make_edit(priority, run_at, delay, queue, self._aging))

    aedit = async_twin(edit)

    @run_steps
    def cancel_all(
        self, /, *, everything: bool = False, progress: Notify = None, tx: Any = None, **filter: Any
    ) -> Steps[Changed]:
        """Cancel all jobs that match, in batches: each is a short transaction of its own, so that other
        writers do not wait for a million rows. `progress` is called after each batch, with the sum so
        far. Recurring jobs are skipped, unless they are running."""
        return self._all("cancel", filter, everything, progress)

    acancel_all = async_twin(cancel_all)

    @run_steps
    def retry_all(
        self, /, *, everything: bool = False, progress: Notify = None, tx: Any = None, **filter: Any
    ) -> Steps[Changed]:
        """Run all jobs that match again from the beginning, in batches as `cancel_all`. Skipped are
        running and blocked jobs, recurring ones (unless the filter names their entity or key), and jobs
        whose key another unfinished job has."""
        return self._all("retry", filter, everything, progress)

    aretry_all = async_twin(retry_all)

    @run_steps
    def delete_all(
        self, /, *, everything: bool = False, progress: Notify = None, tx: Any = None, **filter: Any
    ) -> Steps[Changed]:
        """Delete all jobs that match, in any status, in batches as `cancel_all`. Recurring jobs are
        skipped, unless the filter names their entity or key."""
        return self._all("delete", filter, everything, progress)

    adelete_all = async_twin(delete_all)

    def _all(
        self, verb: Verb, given: Mapping[str, Any], everything: bool, progress: Notify
    ) -> Steps[Changed]:
        wanted = dict(given)
        most = _limit(wanted.pop("limit", None))
        if not wanted and not everything:
            raise InvalidInput(
                f"{verb}_all() without a filter would concern every job: give one, such as "
                "status='failed' or entity=('movie', 7), or everything=True"
            )
        return self._changes.all(verb, make_filter(**wanted), most, progress)


def _limit(limit: int | None) -> int | None:
    return None if limit is None else validation.integer(limit, "limit", 0)
