"""`app.schedules`, and what `task.using(key=..., every=...)` does with it: recurring jobs, one row
each, which are enabled, disabled and moved, and end only when they are deleted."""

import asyncio
import builtins
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from typing import Any

from holdfast.core import validation
from holdfast.core.duration import Duration, seconds
from holdfast.engine.script import Script
from holdfast.engine.steps import Runner, Step, Steps
from holdfast.errors import DatabaseBusy, InvalidInput
from holdfast.jobs.job import Job, NewJob
from holdfast.schedules import scripts as schedule_scripts
from holdfast.schedules.next_run import CODE
from holdfast.schedules.scripts import Condition

PAGE = 500
_TRIES = 20


class Schedules:
    """By the name of a task and the key of the recurring job; without a key, the one that is written
    at the task. Every verb gives the row as it stands then, and takes a caller's transaction: `tx=`."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._dialect = runner.engine.dialect

    def put(self, new: NewJob, *, tx: Any = None) -> Job:
        """What `using(...).schedule()` calls."""
        return self._runner.go(self._put(new), tx)

    async def aput(self, new: NewJob, *, tx: Any = None) -> Job:
        return await self._runner.ago(self._put(new), tx)

    def _put(self, new: NewJob) -> Steps[Job]:
        job: Job = yield Step(lambda: schedule_scripts.schedule(self._dialect, new))
        return job

    def get(self, type: str, key: str = CODE, *, tx: Any = None) -> Job:
        """The row, with its next run; without a key, the one that is written at the task."""
        return self._runner.go(self._step(schedule_scripts.whole, type, key), tx)

    async def aget(self, type: str, key: str = CODE, *, tx: Any = None) -> Job:
        return await self._runner.ago(self._step(schedule_scripts.whole, type, key), tx)

    def enable(self, type: str, key: str = CODE, *, tx: Any = None) -> Job:
        """Let it run again; an overdue one does so at once."""
        return self._runner.go(self._step(schedule_scripts.enable, type, key, True), tx)

    async def aenable(self, type: str, key: str = CODE, *, tx: Any = None) -> Job:
        return await self._runner.ago(self._step(schedule_scripts.enable, type, key, True), tx)

    def disable(self, type: str, key: str = CODE, *, tx: Any = None) -> Job:
        """Keep it from running; its next run is remembered. A run that has begun ends as it would."""
        return self._runner.go(self._step(schedule_scripts.enable, type, key, False), tx)

    async def adisable(self, type: str, key: str = CODE, *, tx: Any = None) -> Job:
        return await self._runner.ago(self._step(schedule_scripts.enable, type, key, False), tx)

    def run_now(self, type: str, key: str = CODE, *, tx: Any = None) -> Job:
        """A run at once, also of a disabled one; if it runs already, again after that."""
        return self._runner.go(self._step(schedule_scripts.move, type, key, None, 0.0), tx)

    async def arun_now(self, type: str, key: str = CODE, *, tx: Any = None) -> Job:
        return await self._runner.ago(self._step(schedule_scripts.move, type, key, None, 0.0), tx)

    def reschedule(
        self,
        type: str,
        key: str = CODE,
        *,
        at: datetime | None = None,
        after: Duration | None = None,
        tx: Any = None,
    ) -> Job:
        """Choose its next run."""
        return self._runner.go(
            self._step(schedule_scripts.move, type, key, *next_run(at, after)), tx
        )

    async def areschedule(
        self,
        type: str,
        key: str = CODE,
        *,
        at: datetime | None = None,
        after: Duration | None = None,
        tx: Any = None,
    ) -> Job:
        step = self._step(schedule_scripts.move, type, key, *next_run(at, after))
        return await self._runner.ago(step, tx)

    def delete(self, type: str, key: str = CODE, *, tx: Any = None) -> Job:
        """The only end of it; the row as it was."""
        return self._runner.go(self._step(schedule_scripts.remove, type, key), tx)

    async def adelete(self, type: str, key: str = CODE, *, tx: Any = None) -> Job:
        return await self._runner.ago(self._step(schedule_scripts.remove, type, key), tx)

    def sync(self, type: str, key: str = CODE, *, enabled: Condition, tx: Any = None) -> Job:
        """Enabled exactly when `enabled` holds: a function, or a pair of SQL and its parameters, looked
        at after the row is locked. Without a `tx`, a function is called outside of any transaction:
        before the change and again after it was committed, until both answers agree."""
        return self._runner.go(self._sync(type, key, _checked(enabled), tx), tx)

    async def async_(
        self, type: str, key: str = CODE, *, enabled: Condition, tx: Any = None
    ) -> Job:
        """The same; with a `tx`, the function may be asynchronous."""
        if not asyncio.iscoroutinefunction(enabled):
            return await self._runner.ago(self._sync(type, key, _checked(enabled), tx), tx)
        if tx is None:
            raise InvalidInput("sync: an asynchronous function needs the tx= that holds the row")
        await self.aget(type, key, tx=tx)  # held until the transaction ends
        answer = bool(await enabled())
        return await self._runner.ago(
            self._step(schedule_scripts.sync, type, key, lambda: answer), tx
        )

    def _sync(self, type: str, key: str, enabled: Condition, tx: Any) -> Steps[Job]:
        """The application's code must not run while our own transaction keeps others from writing.
        Instead its answer is checked again after the commit: of two that change what it depends on,
        whoever writes last has seen what the other did."""
        if tx is not None or not callable(enabled):
            return (yield from self._step(schedule_scripts.sync, type, key, enabled))
        answer = schedule_scripts.ask(enabled)
        for _ in range(_TRIES):
            job = yield from self._step(schedule_scripts.sync, type, key, partial(bool, answer))
            before, answer = answer, schedule_scripts.ask(enabled)
            if answer == before:
                return job
        raise DatabaseBusy(
            f"sync of {type!r} ({key!r}): the answer of enabled= changes all the time"
        )

    def list(self) -> Iterator[Job]:
        """All of them, by task and key, read page by page."""
        after: tuple[str, str] | None = None
        while page := self.page(after):
            yield from page
            after = (page[-1].type, str(page[-1].key))

    def page(self, after: tuple[str, str] | None = None, limit: int = PAGE) -> builtins.list[Job]:
        """Some of them, by task and key: those after this task and key."""
        return self._runner.go(self._page(after or ("", ""), validation.integer(limit, "limit", 0)))

    async def apage(
        self, after: tuple[str, str] | None = None, limit: int = PAGE
    ) -> builtins.list[Job]:
        steps = self._page(after or ("", ""), validation.integer(limit, "limit", 0))
        return await self._runner.ago(steps)

    def _page(self, after: tuple[str, str], limit: int) -> Steps[Any]:
        return (
            yield Step(lambda: schedule_scripts.listing(self._dialect, after, limit), write=False)
        )

    def _step(
        self, verb: Callable[..., Script[Job]], type: str, key: str, *words: Any
    ) -> Steps[Job]:
        kind, named = validation.name(type, "type"), validation.key(key)
        job: Job = yield Step(lambda: verb(self._dialect, kind, named, *words))
        return job


def next_run(at: datetime | None, after: Duration | None) -> tuple[datetime | None, float]:
    """A moment, or a time from now: one of them."""
    if (at is None) == (after is None):
        raise InvalidInput("give the next run as at=datetime or after=duration, one of them")
    if at is not None:
        return validation.moment(at, "at"), 0.0
    return None, seconds(after if after is not None else 0.0, what="after")


def _checked(enabled: Any) -> Condition:
    if callable(enabled):
        return enabled  # type: ignore[no-any-return]
    if isinstance(enabled, str):
        return enabled, {}
    if isinstance(enabled, tuple) and len(enabled) == 2 and isinstance(enabled[0], str):
        return enabled[0], dict(enabled[1])
    raise InvalidInput(
        f"sync(enabled={enabled!r}): give a function, or a pair of SQL that answers yes or no and its "
        "parameters, which it names as ':id'"
    )
