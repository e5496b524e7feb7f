"""`app.schedules`: recurring jobs, one row each. They are enabled, disabled and rescheduled, and end
only when they are deleted."""

import asyncio
import builtins
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from typing import Any

from holdfast.core import validation
from holdfast.core.duration import Duration, seconds
from holdfast.engine.script import Script
from holdfast.engine.steps import Runner, Steps, read_step, write_step
from holdfast.errors import DatabaseBusy, InvalidInput
from holdfast.jobs.job import Job, NewJob
from holdfast.schedules import scripts as schedule_scripts
from holdfast.schedules.next_run import CODE
from holdfast.schedules.scripts import Condition

PAGE = 500
_TRIES = 20


class Schedules:
    """Recurring jobs by the name of their task and their key; without a key, the one that the task's
    own schedule made. Every method returns the job as it is afterwards, and takes a caller's
    transaction: `tx=`."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._dialect = runner.engine.dialect

    def put(self, new: NewJob, *, tx: Any = None) -> Job:
        """Make a recurring job, or change the existing one: what `using(...).schedule()` calls."""
        step = write_step(partial(schedule_scripts.schedule, self._dialect, new))
        return self._runner.go(step, tx)

    async def aput(self, new: NewJob, *, tx: Any = None) -> Job:
        step = write_step(partial(schedule_scripts.schedule, self._dialect, new))
        return await self._runner.ago(step, tx)

    def get(self, type: str, key: str = CODE, *, tx: Any = None) -> Job:
        """Return a recurring job, with its next run. Raises JobNotFound."""
        return self._runner.go(self._step(schedule_scripts.get_whole, type, key), tx)

    async def aget(self, type: str, key: str = CODE, *, tx: Any = None) -> Job:
        return await self._runner.ago(self._step(schedule_scripts.get_whole, type, key), tx)

    def enable(self, type: str, key: str = CODE, *, tx: Any = None) -> Job:
        """Let a recurring job run again; if its next run is overdue, it runs now."""
        return self._runner.go(self._step(schedule_scripts.enable, type, key, True), tx)

    async def aenable(self, type: str, key: str = CODE, *, tx: Any = None) -> Job:
        return await self._runner.ago(self._step(schedule_scripts.enable, type, key, True), tx)

    def disable(self, type: str, key: str = CODE, *, tx: Any = None) -> Job:
        """Keep a recurring job from running; its next run is remembered. A run that has begun goes on
        to its end."""
        return self._runner.go(self._step(schedule_scripts.enable, type, key, False), tx)

    async def adisable(self, type: str, key: str = CODE, *, tx: Any = None) -> Job:
        return await self._runner.ago(self._step(schedule_scripts.enable, type, key, False), tx)

    def run_now(self, type: str, key: str = CODE, *, tx: Any = None) -> Job:
        """Run a recurring job now, also if it is disabled; if it is running, once more after that."""
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
        """Choose the next run: a time, or a duration from now."""
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
        """Delete a recurring job, and return it as it was. Nothing else ends it."""
        return self._runner.go(self._step(schedule_scripts.remove, type, key), tx)

    async def adelete(self, type: str, key: str = CODE, *, tx: Any = None) -> Job:
        return await self._runner.ago(self._step(schedule_scripts.remove, type, key), tx)

    def sync(self, type: str, key: str = CODE, *, enabled: Condition, tx: Any = None) -> Job:
        """Enable a recurring job if `enabled` holds, else disable it. `enabled` is a function, or a
        pair of SQL and its parameters; it is evaluated after the row is locked. Without a `tx`, a
        function is called outside of any transaction: before the change and again after its commit,
        until both answers agree."""
        return self._runner.go(self._sync(type, key, _checked(enabled), tx), tx)

    async def async_(
        self, type: str, key: str = CODE, *, enabled: Condition, tx: Any = None
    ) -> Job:
        """The same as `sync`; with a `tx`, the function may be asynchronous."""
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
        """The application's function must not run inside our own transaction, which keeps other writers
        waiting. Its answer is checked again after the commit instead: of two transactions that change
        what the answer depends on, the later one sees what the earlier one did."""
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
        """Return all recurring jobs, by task and key, read page by page."""
        after: tuple[str, str] | None = None
        while page := self.page(after):
            yield from page
            after = (page[-1].type, str(page[-1].key))

    def page(self, after: tuple[str, str] | None = None, limit: int = PAGE) -> builtins.list[Job]:
        """Return some recurring jobs, by task and key: those after this task and key."""
        return self._runner.go(self._page(after, limit))

    async def apage(
        self, after: tuple[str, str] | None = None, limit: int = PAGE
    ) -> builtins.list[Job]:
        return await self._runner.ago(self._page(after, limit))

    def _page(self, after: tuple[str, str] | None, limit: int) -> Steps[builtins.list[Job]]:
        most = validation.integer(limit, "limit", 0)
        return read_step(lambda: schedule_scripts.listing(self._dialect, after or ("", ""), most))

    def _step(
        self, script: Callable[..., Script[Job]], type: str, key: str, *args: Any
    ) -> Steps[Job]:
        known = validation.name(type, "type"), validation.key(key)
        return write_step(lambda: script(self._dialect, *known, *args))


def next_run(at: datetime | None, after: Duration | None) -> tuple[datetime | None, float]:
    """Check the next run that a caller chose. Returns a time and 0, or None and seconds from now."""
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
