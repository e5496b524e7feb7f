"""`app.queues` and `app.limits`: pause, limit and purge queues, and change limits."""

import builtins
from datetime import datetime
from typing import Any

from holdfast.core import validation
from holdfast.core.duration import Duration, seconds
from holdfast.engine.records import Filter, LimitInfo, QueueInfo
from holdfast.engine.script import Script
from holdfast.engine.steps import Runner, Steps, read_step, write_step
from holdfast.errors import InvalidInput, UnknownLimit
from holdfast.jobs import commands
from holdfast.jobs import read as read_scripts
from holdfast.jobs.job import WAITING
from holdfast.limits import scripts as limit_scripts
from holdfast.limits.limit import QUEUE, Rate, parse_rate

CAP = 10_000
_PURGED = 500  # jobs that one transaction removes
Listed = list[QueueInfo]


class Queues:
    """Queues by name. Methods that change something take a caller's transaction: `tx=`."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._dialect = runner.engine.dialect

    def pause(
        self,
        name: str,
        *,
        resume_at: datetime | None = None,
        resume_in: Duration | None = None,
        tx: Any = None,
    ) -> None:
        """Stop claims of a queue's jobs, until it is resumed, or until the given time. Running jobs go
        on."""
        self._runner.go(self._pause(name, True, resume_at, resume_in), tx)

    async def apause(
        self,
        name: str,
        *,
        resume_at: datetime | None = None,
        resume_in: Duration | None = None,
        tx: Any = None,
    ) -> None:
        await self._runner.ago(self._pause(name, True, resume_at, resume_in), tx)

    def resume(self, name: str, *, tx: Any = None) -> None:
        """Let the jobs of a queue be claimed again."""
        self._runner.go(self._pause(name, False), tx)

    async def aresume(self, name: str, *, tx: Any = None) -> None:
        await self._runner.ago(self._pause(name, False), tx)

    def _pause(
        self,
        name: str,
        paused: bool,
        resume_at: datetime | None = None,
        resume_in: Duration | None = None,
    ) -> Steps[None]:
        queue = validation.name(name, "queue")
        if resume_at is not None and resume_in is not None:
            raise InvalidInput("resume_at= and resume_in= were both given: give one of them")
        until = None if resume_at is None else validation.moment(resume_at, "resume_at")
        during = None if resume_in is None else seconds(resume_in, what="resume_in")
        return write_step(
            lambda: commands.pause(self._dialect, queue, paused, until=until, during=during)
        )

    def limit(
        self, name: str, concurrency: int | None = None, *, rate: str | None = None, tx: Any = None
    ) -> None:
        """Limit how many jobs of a queue run at once, or start in a period, over all workers. With
        neither number, remove the limit."""
        self._runner.go(self._limit(name, concurrency, rate), tx)

    async def alimit(
        self, name: str, concurrency: int | None = None, *, rate: str | None = None, tx: Any = None
    ) -> None:
        await self._runner.ago(self._limit(name, concurrency, rate), tx)

    def _limit(self, name: str, concurrency: int | None, rate: str | None) -> Steps[None]:
        queue = validation.name(name, "queue")
        most, pace = _numbers(concurrency, rate)
        return write_step(lambda: limit_scripts.limit_queue(self._dialect, queue, most, pace))

    def purge(self, name: str) -> int:
        """Delete the waiting jobs of a queue, except recurring ones, and return their number. Running
        jobs go on. Jobs are deleted in batches, each a transaction of its own."""
        return self._runner.go(self._purge(name))

    async def apurge(self, name: str) -> int:
        return await self._runner.ago(self._purge(name))

    def _purge(self, name: str) -> Steps[int]:
        wanted = Filter(status=WAITING, queue=validation.name(name, "queue"))
        total = 0
        after: str | None = None
        while True:

            def script(after: str | None = after) -> Script[tuple[int, str | None]]:
                page = yield from read_scripts.search(self._dialect, wanted, after, _PURGED)
                ids = [job.id for job in page.jobs if job.schedule is None]
                gone = yield from commands.delete(self._dialect, ids)
                return len(gone), page.next

            gone, after = yield from write_step(script)
            total += gone
            if after is None:
                return total

    def list(self) -> Listed:
        """Return the queues that hold pending jobs or were ever paused."""
        return self._runner.go(self._list())

    async def alist(self) -> Listed:
        return await self._runner.ago(self._list())

    def _list(self) -> Steps[Listed]:
        return read_step(lambda: read_scripts.queues(self._dialect, CAP))


class Limits:
    """The limits of tasks and queues. The code declares them, and an operator may change them."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._dialect = runner.engine.dialect

    def list(self) -> list[LimitInfo]:
        """Return the limits, with the numbers of jobs that run under each and wait for it."""
        return self._runner.go(self._list())

    async def alist(self) -> builtins.list[LimitInfo]:
        return await self._runner.ago(self._list())

    def _list(self) -> Steps[builtins.list[LimitInfo]]:
        return read_step(lambda: limit_scripts.listing(CAP))

    def set(
        self, name: str, concurrency: int | None = None, *, rate: str | None = None, tx: Any = None
    ) -> None:
        """Use these numbers instead of the code's, from the next claim on. Running jobs go on."""
        self._runner.go(self._set(name, concurrency, rate), tx)

    async def aset(
        self, name: str, concurrency: int | None = None, *, rate: str | None = None, tx: Any = None
    ) -> None:
        await self._runner.ago(self._set(name, concurrency, rate), tx)

    def reset(self, name: str, *, tx: Any = None) -> None:
        """Use the code's numbers again."""
        self._runner.go(self._change(name, None, None), tx)

    async def areset(self, name: str, *, tx: Any = None) -> None:
        await self._runner.ago(self._change(name, None, None), tx)

    def _set(self, name: str, concurrency: int | None, rate: str | None) -> Steps[None]:
        most, pace = _numbers(concurrency, rate)
        if most is None and pace is None:
            raise InvalidInput(
                "give a concurrency, a rate, or both; reset() goes back to the code's"
            )
        yield from self._change(name, most, pace)

    def _change(self, name: str, most: int | None, pace: Rate | None) -> Steps[None]:
        if name.startswith(QUEUE):
            queue = validation.name(name.removeprefix(QUEUE), "queue")
            yield from write_step(
                lambda: limit_scripts.limit_queue(self._dialect, queue, most, pace)
            )
            return
        found = {limit.name: limit for limit in (yield from self._list())}
        known = found.get(name)
        if known is None:
            raise UnknownLimit(
                f"there is no limit named {name!r}; there are {', '.join(sorted(found)) or 'none'}. "
                "A worker makes its limits known when it starts"
            )
        if most is not None and known.concurrency is None:
            raise InvalidInput(
                f"the limit {name!r} has no concurrency in the code: only its rate can be changed"
            )
        yield from write_step(lambda: limit_scripts.change(self._dialect, name, most, pace))

    def forget(self, name: str) -> bool:
        """Delete a limit that the code no longer declares; return False if it does not exist."""
        return self._runner.engine.run(lambda: limit_scripts.forget(name), write=True)


def _numbers(concurrency: int | None, rate: str | None) -> tuple[int | None, Rate | None]:
    most = (
        None
        if concurrency is None
        else validation.integer(concurrency, "concurrency", 0, 2**31 - 1)
    )
    return most, None if rate is None else parse_rate(rate)
