"""`app.jobs`: look at jobs, and change what happens to them. By id, by filter, or by entity."""

import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, overload
from uuid import UUID

from holdfast import names
from holdfast.aio import Runner, Step, Steps
from holdfast.engine import Filter, Page, inspection, verbs
from holdfast.engine.script import Script
from holdfast.errors import InvalidInput, InvalidTransition, JobNotFound, KeyConflict
from holdfast.health import why_it_waits
from holdfast.ids import parse_id
from holdfast.job import Attempt, Job, Status

PAGE = 100
BATCH = 500  # jobs that one transaction changes, of all that match a filter
COUNT_CAP = 100_000

_Verb = Callable[[Sequence[str]], Script[list[str]]]
_Changed = tuple[int, int, str | None]  # jobs seen, jobs changed, where to go on


class Jobs:
    """The filters are `status` (one or several), `type`, `prefix` (of the type), `queue`, `key`,
    `worker_id`, `entity`, `since` and `until` (by the time of creation). What is given must all hold;
    `limit` bounds how many are searched or changed. Every verb but `search` and `count` also runs in a
    caller's transaction: `tx=`."""

    def __init__(self, runner: Runner, retention: Mapping[Status, float]) -> None:
        self._runner = runner
        self._dialect = runner.engine.dialect
        self._retention = retention

    # looking

    def get(self, id: str | UUID, *, tx: Any = None) -> Job:
        """The whole job; raises JobNotFound."""
        return self._runner.go(self._get(id), tx)

    async def aget(self, id: str | UUID, *, tx: Any = None) -> Job:
        return await self._runner.ago(self._get(id), tx)

    def _get(self, id: str | UUID) -> Steps[Job]:
        known = parse_id(id)
        found = yield Step(lambda: inspection.get(self._dialect, [known]), write=False)
        return _only(found, known)

    def attempts(self, id: str | UUID) -> list[Attempt]:
        """The failed runs of a job with their tracebacks, the newest first."""
        return self._runner.go(self._attempts(id))

    async def aattempts(self, id: str | UUID) -> list[Attempt]:
        return await self._runner.ago(self._attempts(id))

    def _attempts(self, id: str | UUID) -> Steps[list[Attempt]]:
        known = parse_id(id)
        found: list[Attempt] = yield Step(
            lambda: inspection.attempts(self._dialect, known), write=False
        )
        return found

    def why(self, id: str | UUID) -> list[str]:
        """Why a job is not finished yet, in words: "limit tmdb-api: 4 of 4 running, 17th in line"."""
        return why_it_waits(self._runner.engine, self.get(id))

    async def awhy(self, id: str | UUID) -> list[str]:
        return await self._runner.hop(lambda: self.why(id))

    def search(self, *, limit: int | None = None, **filter: Any) -> Iterator[Job]:
        """All jobs that match, newest first, read page by page, without payloads and results."""
        wanted = make_filter(**filter)
        return self._pages(wanted, _limit(limit))

    def _pages(self, filter: Filter, limit: int | None) -> Iterator[Job]:
        after = None
        while limit is None or limit > 0:
            page = self._runner.go(self._page(filter, after, limit))
            yield from page.jobs
            if (after := page.next) is None:
                return
            limit = None if limit is None else limit - len(page.jobs)

    def asearch(self, *, limit: int | None = None, **filter: Any) -> AsyncIterator[Job]:
        wanted = make_filter(**filter)
        return self._apages(wanted, _limit(limit))

    async def _apages(self, filter: Filter, limit: int | None) -> AsyncIterator[Job]:
        after = None
        while limit is None or limit > 0:
            page = await self._runner.ago(self._page(filter, after, limit))
            for job in page.jobs:
                yield job
            if (after := page.next) is None:
                return
            limit = None if limit is None else limit - len(page.jobs)

    def _page(self, filter: Filter, after: str | None, limit: int | None) -> Steps[Page]:
        size = PAGE if limit is None else min(limit, PAGE)
        page: Page = yield Step(
            lambda: inspection.search(self._dialect, filter, after, size), write=False
        )
        return page

    def count(self, *, cap: int = COUNT_CAP, **filter: Any) -> int:
        """How many match, counted up to `cap`."""
        return self._runner.go(self._count(cap, make_filter(**filter)))

    async def acount(self, *, cap: int = COUNT_CAP, **filter: Any) -> int:
        return await self._runner.ago(self._count(cap, make_filter(**filter)))

    def _count(self, cap: int, filter: Filter) -> Steps[int]:
        total = 0
        if filter == Filter(status=filter.status):
            for status in sorted(filter.status) or list(Status):
                total += yield Step(partial(inspection.count, self._dialect, status, cap), False)
            return min(total, cap)
        after: str | None = None
        while total < cap:
            page: Page = yield Step(
                partial(inspection.search, self._dialect, filter, after, 1000), False
            )
            total, after = total + len(page.jobs), page.next
            if after is None:
                break
        return min(total, cap)

    # changing

    @overload
    def cancel(self, id: str | UUID, /, *, tx: Any = None) -> Job: ...

    @overload
    def cancel(self, id: None = None, /, *, tx: Any = None, **filter: Any) -> int: ...

    def cancel(self, id: Any = None, /, *, tx: Any = None, **filter: Any) -> Any:
        """Cancel a job, or all that match and how many it concerned. One that runs is asked to stop
        (`job.cancel_requested`) and is cancelled when it has."""
        return self._runner.go(self._change(id, filter, self._cancelling, _settle_cancel), tx)

    async def acancel(self, id: Any = None, /, *, tx: Any = None, **filter: Any) -> Any:
        return await self._runner.ago(
            self._change(id, filter, self._cancelling, _settle_cancel), tx
        )

    @overload
    def retry(self, id: str | UUID, /, *, tx: Any = None) -> Job: ...

    @overload
    def retry(self, id: None = None, /, *, tx: Any = None, **filter: Any) -> int: ...

    def retry(self, id: Any = None, /, *, tx: Any = None, **filter: Any) -> Any:
        """Run a job again from the beginning: its attempts start at nought, its error is cleared.
        Refused while it runs, or when another live job holds its key."""
        return self._runner.go(self._change(id, filter, self._retrying, _settle_retry), tx)

    async def aretry(self, id: Any = None, /, *, tx: Any = None, **filter: Any) -> Any:
        return await self._runner.ago(self._change(id, filter, self._retrying, _settle_retry), tx)

    @overload
    def delete(self, id: str | UUID, /, *, tx: Any = None) -> Job: ...

    @overload
    def delete(self, id: None = None, /, *, tx: Any = None, **filter: Any) -> int: ...

    def delete(self, id: Any = None, /, *, tx: Any = None, **filter: Any) -> Any:
        """Remove a job, whatever it is doing; the job as it was. A run of it ends quietly."""
        return self._runner.go(self._change(id, filter, self._deleting, _settle_delete), tx)

    async def adelete(self, id: Any = None, /, *, tx: Any = None, **filter: Any) -> Any:
        return await self._runner.ago(self._change(id, filter, self._deleting, _settle_delete), tx)

    def _cancelling(self, ids: Sequence[str]) -> Script[list[str]]:
        return verbs.cancel(self._dialect, ids, self._retention[Status.CANCELLED])

    def _retrying(self, ids: Sequence[str]) -> Script[list[str]]:
        return verbs.retry(self._dialect, ids)

    def _deleting(self, ids: Sequence[str]) -> Script[list[str]]:
        return verbs.delete(self._dialect, ids)

    def _change(
        self,
        id: str | UUID | None,
        filter: Mapping[str, Any],
        verb: _Verb,
        settle: Callable[[Job, Job | None, bool], Job],
    ) -> Steps[Any]:
        wanted = dict(filter)
        limit = _limit(wanted.pop("limit", None))
        if id is not None:
            if filter:
                raise InvalidInput("give a job's id or a filter, not both")
            return (yield from self._change_one(parse_id(id), verb, settle))
        if not wanted:
            raise InvalidInput(
                "give a job's id, or a filter such as status='failed' or entity=('movie', 7): "
                "without either it would concern every job"
            )
        return (yield from self._change_all(make_filter(**wanted), verb, limit))

    def _change_one(
        self, id: str, verb: _Verb, settle: Callable[[Job, Job | None, bool], Job]
    ) -> Steps[Job]:
        def script() -> Script[tuple[list[Job], list[str], list[Job]]]:
            before = yield from inspection.get(self._dialect, [id])
            changed = yield from verb([id])
            after = yield from inspection.get(self._dialect, [id])
            return before, changed, after

        before, changed, after = yield Step(script)
        return settle(_only(before, id), after[0] if after else None, bool(changed))

    def _change_all(self, filter: Filter, verb: _Verb, limit: int | None) -> Steps[int]:
        """In batches, each a transaction of its own, so that nobody waits for a million rows. Recurring
        jobs are spared, unless their entity or key is named: they are not what piles up."""
        spare = filter.entity is None and filter.key is None and verb != self._cancelling
        total = 0
        after: str | None = None
        while limit is None or limit > 0:
            size = BATCH if limit is None else min(BATCH, limit)

            def script(after: str | None = after, size: int = size) -> Script[_Changed]:
                page = yield from inspection.search(self._dialect, filter, after, size)
                wanted = [job.id for job in page.jobs if spare is False or job.schedule is None]
                changed = yield from verb(wanted)
                return len(page.jobs), len(changed), page.next

            seen: int
            changed: int
            seen, changed, after = yield Step(script)
            total += changed
            limit = None if limit is None else limit - seen
            if after is None:
                break
        return total


def make_filter(
    *,
    status: str | Iterable[str] | None = None,
    type: str | None = None,
    prefix: str | None = None,
    queue: str | None = None,
    key: str | None = None,
    worker_id: str | None = None,
    entity: tuple[str, Any] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Filter:
    """A filter from what callers give, checked."""
    wanted = [] if status is None else [status] if isinstance(status, str) else list(status)
    try:
        statuses = frozenset(Status(one) for one in wanted)
    except ValueError:
        raise InvalidInput(f"status={status!r}: the statuses are {', '.join(Status)}") from None
    return Filter(
        status=statuses,
        type=None if type is None else names.name(type, "type"),
        prefix=None if prefix is None else names.name(prefix, "prefix"),
        queue=None if queue is None else names.name(queue, "queue"),
        key=None if key is None else names.key(key),
        worker_id=worker_id,
        entity=None if entity is None else names.entity(entity),
        since=None if since is None else names.moment(since, "since"),
        until=None if until is None else names.moment(until, "until"),
    )


def _limit(limit: int | None) -> int | None:
    return None if limit is None else names.integer(limit, "limit", 0)


def _only(found: Sequence[Job], id: str) -> Job:
    if not found:
        raise JobNotFound(f"no job has the id {id}: it was never made, or deleted, or pruned")
    return found[0]


def _settle_cancel(before: Job, after: Job | None, changed: bool) -> Job:
    if changed and after is not None:
        return after
    if before.status is Status.CANCELLED:
        return before
    if before.schedule is not None:
        raise InvalidTransition(
            f"job {before.id} recurs, and does not run now: app.schedules.disable() or delete() keeps "
            "it from running again"
        )
    raise InvalidTransition(f"job {before.id} is {before.status}: it is too late to cancel it")


def _settle_retry(before: Job, after: Job | None, changed: bool) -> Job:
    if changed and after is not None:
        return after
    if before.status in (Status.RUNNING, Status.BLOCKED):
        raise InvalidTransition(
            f"job {before.id} is {before.status}: cancel it first, or wait until it has ended"
        )
    raise KeyConflict(
        f"job {before.id} cannot run again: another live job of task {before.type!r} holds its key "
        f"{json.dumps(before.key)}"
    )


def _settle_delete(before: Job, after: Job | None, changed: bool) -> Job:
    return before
