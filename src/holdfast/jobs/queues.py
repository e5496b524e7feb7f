"""`app.queues`: pause, limit and purge queues."""

from datetime import datetime
from typing import Any

from holdfast.core import validation
from holdfast.core.duration import Duration, seconds
from holdfast.engine.records import Filter, QueueInfo
from holdfast.engine.steps import Runner, Steps, async_twin, read_step, run_steps, write_step
from holdfast.errors import InvalidInput
from holdfast.jobs import commands
from holdfast.jobs import read as read_scripts
from holdfast.jobs.changes import Changes
from holdfast.jobs.job import WAITING
from holdfast.limits import scripts as limit_scripts
from holdfast.limits.client import check_limit

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
        most, pace = check_limit(concurrency, rate)
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
