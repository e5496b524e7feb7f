"""`app.queues` and `app.limits`: pause, limit and purge queues, and change limits."""

from datetime import datetime
from typing import Any

from holdfast.core import validation
from holdfast.core.duration import Duration, seconds
from holdfast.engine.records import Filter, LimitInfo, QueueInfo
from holdfast.engine.steps import Runner, Steps, async_twin, read_step, run_steps, write_step
from holdfast.errors import InvalidInput, UnknownLimit
from holdfast.jobs import commands
from holdfast.jobs import read as read_scripts
from holdfast.jobs.changes import Changes
from holdfast.jobs.job import WAITING
from holdfast.limits import scripts as limit_scripts
from holdfast.limits.limit import QUEUE, Rate, parse_rate

CAP = 10_000


class Queues:
    """Queues by name. Methods that change something take a caller's transaction: `tx=`."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._dialect = runner.engine.dialect

    @run_steps
    def pause(
        self,
        name: str,
        *,
        resume_at: datetime | None = None,
        resume_in: Duration | None = None,
        tx: Any = None,
    ) -> Steps[None]:
        """Stop claims of a queue's jobs, until it is resumed, or until the given time. Running jobs go
        on."""
        queue = validation.name(name, "queue")
        if resume_at is not None and resume_in is not None:
            raise InvalidInput("resume_at= and resume_in= were both given: give one of them")
        until = None if resume_at is None else validation.moment(resume_at, "resume_at")
        during = None if resume_in is None else seconds(resume_in, what="resume_in")
        return write_step(
            lambda: commands.pause(self._dialect, queue, True, until=until, during=during)
        )

    apause = async_twin(pause)

    @run_steps
    def resume(self, name: str, *, tx: Any = None) -> Steps[None]:
        """Let the jobs of a queue be claimed again."""
        queue = validation.name(name, "queue")
        return write_step(lambda: commands.pause(self._dialect, queue, False))

    aresume = async_twin(resume)

    @run_steps
    def limit(
        self, name: str, concurrency: int | None = None, *, rate: str | None = None, tx: Any = None
    ) -> Steps[None]:
        """Limit how many jobs of a queue run at once, or start in a period, over all workers. With
        neither number, remove the limit."""
        queue = validation.name(name, "queue")
        most, pace = _numbers(concurrency, rate)
        return write_step(lambda: limit_scripts.limit_queue(self._dialect, queue, most, pace))

    alimit = async_twin(limit)

    @run_steps
    def purge(self, name: str) -> Steps[int]:
        """Delete the waiting jobs of a queue, except recurring ones, and return their number. Running
        jobs go on. Jobs are deleted in batches, each a transaction of its own."""
        wanted = Filter(status=WAITING, queue=validation.name(name, "queue"))
        deleted = yield from Changes(self._dialect).all("delete", wanted, None, None)
        return deleted.changed

    apurge = async_twin(purge)

    @run_steps
    def list(self) -> Steps[list[QueueInfo]]:
        """Return the queues that hold pending jobs or were ever paused."""
        return read_step(lambda: read_scripts.queues(self._dialect, CAP))

    alist = async_twin(list)


class Limits:
    """The limits of tasks and queues. The code declares them, and an operator may change them."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._dialect = runner.engine.dialect

    @run_steps
    def list(self) -> Steps[list[LimitInfo]]:
        """Return the limits, with the numbers of jobs that run under each and wait for it."""
        return read_step(lambda: limit_scripts.listing(CAP))

    alist = async_twin(list)

    @run_steps
    def set(
        self, name: str, concurrency: int | None = None, *, rate: str | None = None, tx: Any = None
    ) -> Steps[None]:
        """Use these numbers instead of the code's, from the next claim on. Running jobs go on."""
        most, pace = _numbers(concurrency, rate)
        if most is None and pace is None:
            raise InvalidInput(
                "give a concurrency, a rate, or both; reset() goes back to the code's"
            )
        return self._change(name, most, pace)

    aset = async_twin(set)

    @run_steps
    def reset(self, name: str, *, tx: Any = None) -> Steps[None]:
        """Use the code's numbers again."""
        return self._change(name, None, None)

    areset = async_twin(reset)

    def _change(self, name: str, most: int | None, pace: Rate | None) -> Steps[None]:
        if name.startswith(QUEUE):
            queue = validation.name(name.removeprefix(QUEUE), "queue")
            yield from write_step(
                lambda: limit_scripts.limit_queue(self._dialect, queue, most, pace)
            )
            return
        limits = yield from read_step(lambda: limit_scripts.listing(CAP))
        found = {limit.name: limit for limit in limits}
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
