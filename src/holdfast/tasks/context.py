"""The context of a run: the first parameter of a handler, if it is annotated `Context`.

A context does not write to the database: it passes progress to its worker, and jobs that it enqueues
are inserted with the finish. Only `complete` writes, on the caller's transaction.
"""

import json
import logging
import math
import shutil
import tempfile
import threading
import weakref
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from holdfast.core.codec import clean
from holdfast.core.duration import Duration
from holdfast.core.ids import new_id
from holdfast.core.log_format import RunLog
from holdfast.engine.dialect import wake
from holdfast.engine.records import Report
from holdfast.engine.script import Script
from holdfast.engine.steps import Runner, Steps, read_step
from holdfast.errors import InvalidInput, LostClaim
from holdfast.jobs import finish as finish_scripts
from holdfast.jobs import outcome, rescue
from holdfast.jobs.job import Job, NewJob, Status
from holdfast.jobs.outcome import Applied, Finish
from holdfast.schedules.client import next_run
from holdfast.tasks.task import Task
from holdfast.tasks.using import BaseTask
from holdfast.workflows import scripts as workflow_scripts
from holdfast.workflows.builder import Running

MAX_MESSAGE = 1000
logger = logging.getLogger("holdfast.job")

News = tuple[float | None, str | None]  #: progress and message


class Port(Protocol):
    """The side of the worker that a context talks to."""

    def progress(self, percent: float, message: str | None) -> None: ...

    def log(self, level: str, text: str) -> None:
        """Store a line with the job."""

    def wrote(self, finish: Finish) -> None:
        """Record that the handler has written the completion on its own transaction, which may not be
        committed."""

    def workdir(self) -> Path: ...

    def now(self) -> datetime | None:
        """Return the time of the database's clock, as far as it is known."""


class Context:
    """One run of one job."""

    def __init__(self, job: Job, task: Task[Any, Any], port: Port, runner: Runner | None) -> None:
        self.job = job  #: as it was when this run began
        self._task = task
        self._port = port
        self._runner = runner
        self._stop = threading.Event()
        self._news: News | None = None
        self._workdir: Path | None = None
        self._log: logging.LoggerAdapter[logging.Logger] | None = None
        #: a moment, or seconds from the end of the run
        self.next_at: datetime | float | None = None
        self._results: dict[str, Any] | None = None
        self.enqueued: list[NewJob] = []  #: inserted with the finish, or not at all
        self.saw_stop = False  #: the handler has read that it must stop
        self.completion: Finish | None = None  #: written on the handler's transaction

    def __repr__(self) -> str:
        return f"<Context {self.job.type} {self.job.id} attempt {self.attempt}>"

    @property
    def attempt(self) -> int:
        """1 in the first run."""
        return self.job.attempts

    @property
    def token(self) -> str:
        """The id and the claim number of this run: a fencing token for other systems. The number grows
        with each claim of the job."""
        return f"{self.job.id}:{self.job.claim_no}"

    @property
    def cancelled(self) -> bool:
        """Whether the run must stop: the job was cancelled, the timeout has passed, the claim is lost,
        or the worker is stopping. What a handler returns after it has read True here is not its
        result."""
        self.saw_stop = self._stop.is_set()
        return self.saw_stop

    def stop(self) -> None:
        """Tell the handler to stop; called by the worker."""
        self._stop.set()

    def wait(self, seconds: float) -> bool:
        """Sleep in a `def` handler. Return True as soon as the run must stop, else False at the end."""
        self._stop.wait(seconds)
        return self.cancelled

    def progress(self, percent: float, message: str | None = None) -> None:
        """Report the progress, from 0 to 100. It is written to the job at most a few times a second."""
        if type(percent) not in (int, float) or math.isnan(percent):
            raise InvalidInput(f"progress={percent!r}: give a number from 0 to 100")
        text = None if message is None else clean(str(message), MAX_MESSAGE)
        self._news = (min(max(float(percent), 0.0), 100.0), text)
        self._port.progress(*self._news)

    def enqueue(self, task: BaseTask[Any], /, *args: Any, **kwargs: Any) -> str:
        """Add a job together with the completion of this one, or not at all, and return its id.
        Priority and entity are those of this job, unless they are given."""
        if not isinstance(task, BaseTask):
            raise InvalidInput(f"ctx.enqueue was given {task!r}: give a task, or task.using(...)")
        job = task.follow(args, kwargs, self.job)
        self.enqueued.append(job)
        return job.id

    # workflows and recurring jobs

    @property
    def workflow(self) -> Running:
        """The workflow of this job: `ctx.workflow.add(...)`."""
        if self.job.workflow_id is None:
            raise InvalidInput("ctx.workflow: this job belongs to no workflow; see app.workflow()")
        return Running(self.job, self.enqueued.append)

    @property
    def results(self) -> dict[str, Any]:
        """The results of the jobs that this one waited for, by their names, in the order of `after=`;
        None for those that did not complete. Read at the first use; in `async def` use `aresults`."""
        if self._results is None:
            alone = self.job.workflow_id is None
            self._results = {} if alone else self._attached().go(_results(self.job.id))
        return self._results

    async def aresults(self) -> dict[str, Any]:
        if self._results is None:
            alone = self.job.workflow_id is None
            self._results = {} if alone else await self._attached().ago(_results(self.job.id))
        return self._results

    def next_run(self, *, at: datetime | None = None, after: Duration | None = None) -> None:
        """Choose when a recurring job runs next, if this run succeeds. The last call counts."""
        if self.job.schedule is None:
            raise InvalidInput(
                "ctx.next_run: this job does not recur; task.using(key=...).schedule() makes one that "
                "does, Snooze makes this one come back"
            )
        moment, delay = next_run(at, after)
        self.next_at = delay if moment is None else moment

    @property
    def workdir(self) -> Path:
        """A folder for this run alone, removed when it ends."""
        if self._workdir is None:
            self._workdir = self._port.workdir()
        return self._workdir

    def clean(self) -> None:
        """Remove the `workdir`, if there is one."""
        if self._workdir is not None:
            shutil.rmtree(self._workdir, ignore_errors=True)

    @property
    def log(self) -> "logging.LoggerAdapter[logging.Logger]":
        """A logger whose records have `job_id`, `task` and `attempt`. Lines from INFO on are also
        stored with the job, whatever the configuration of `logging` is."""
        if self._log is None:
            extra = {"job_id": self.job.id, "task": self.job.type, "attempt": self.attempt}
            self._log = RunLog(logger, extra, self._port.log)
        return self._log

    # completion on the caller's transaction

    def complete(self, result: Any = None, *, tx: Any) -> None:
        """Write this job's completion and the jobs that it enqueued on your open transaction, so that
        they commit together with your rows. What the handler returns is then ignored."""
        runner = self._attached()
        finish = self._completed(result)
        runner.engine.adopt(tx).run(_write(runner, finish, self._news))
        self._wrote(finish)

    async def acomplete(self, result: Any = None, *, tx: Any) -> None:
        runner = self._attached()
        finish = self._completed(result)
        await (await runner.adopt(tx)).arun(_write(runner, finish, self._news))
        self._wrote(finish)

    def _wrote(self, finish: Finish) -> None:
        self.completion = finish
        self._port.wrote(finish)

    def _attached(self) -> Runner:
        if self._runner is None:
            raise InvalidInput("this Context is detached (the task was called as a function)")
        return self._runner

    def _completed(self, result: Any) -> Finish:
        text = None if result is None else self._task.result.encode(result)
        follow = self._task.following(self.job, result)
        ended = outcome.Returned(text, (*self.enqueued, *follow), self.next_at)
        return outcome.decide(self.job, ended, self._task.policy, self._port.now())


def _write(runner: Runner, finish: Finish, news: News | None) -> Script[None]:
    if news is not None:  # its last progress, which would be refused after the finish
        last = Report(finish.id, finish.claim_no, *news)
        yield from rescue.report(runner.engine.dialect, [last])
    applied = yield from finish_scripts.finish(runner.engine.dialect, [finish], tx=True)
    [what] = applied.values()
    if what is not Applied.APPLIED:
        raise LostClaim(
            f"job {finish.id} is no longer held by this run (claim {finish.claim_no}): it was given "
            "to another worker, cancelled or deleted; roll your transaction back"
        )
    yield from wake(job.queue for job in finish.enqueue)


def _results(id: str) -> Steps[dict[str, Any]]:
    found = yield from read_step(lambda: workflow_scripts.parents(id, results=True))
    results: dict[str, Any] = {}
    for parent in found:
        name = parent.node or parent.id
        same = sum(other.partition("#")[0] == name for other in results)
        text = parent.result
        results[f"{name}#{same + 1}" if same else name] = None if text is None else json.loads(text)
    return results


class RunEnd:
    """The parameter of a hook: how a run ended, and what will be written about it."""

    def __init__(
        self,
        job: Job,
        finish: Finish,
        runner: Runner,
        result: Any = None,
        news: News | None = None,
    ) -> None:
        self.job = job  #: as it was when the run began
        self.result = result  #: what the handler returned
        self.error = finish.error  #: "Type: message"; None if the run succeeded
        self.trace = finish.trace  #: the traceback
        over = (outcome.Outcome.COMPLETED, outcome.Outcome.FAILED)
        self.final = finish.outcome in over  #: no run follows
        self.next_run = None if finish.recur is None else finish.recur.run_at  #: of a recurring job
        self.retry_in = None if self.final or finish.recur else finish.delay  #: seconds, else
        failures = 0 if finish.error is None else job.consecutive_failures + 1
        self.consecutive_failures = failures  #: of a recurring job, this one included
        self.finished = False  #: the hook has written the end on its own transaction
        self._finish = finish
        self._news = news
        self._runner = runner

    def finish(self, *, tx: Any) -> None:
        """Write the end of the run on your open transaction, so that it commits with your rows."""
        self._runner.engine.adopt(tx).run(_write(self._runner, self._finish, self._news))
        self.finished = True

    async def afinish(self, *, tx: Any) -> None:
        await (await self._runner.adopt(tx)).arun(_write(self._runner, self._finish, self._news))
        self.finished = True


class Detached:
    """The port of a context for a task that is called as a plain function."""

    def progress(self, percent: float, message: str | None) -> None:
        logger.debug("progress %.0f %s", percent, message or "")

    def log(self, level: str, text: str) -> None:
        """Do nothing: there is no job with which the line could be stored."""

    def wrote(self, finish: Finish) -> None:
        """Do nothing: never called, since a detached context refuses to write."""

    def now(self) -> None:
        return None

    def workdir(self) -> Path:
        path = Path(tempfile.mkdtemp(prefix="holdfast-"))
        weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)  # no worker removes it
        return path


def detached(task: Task[Any, Any], now: datetime) -> Context:
    """Return a context for a plain call of a task: its job is in no database."""
    job = Job(
        id=new_id(),
        type=task.name,
        queue=task.defaults.queue or "default",
        status=Status.RUNNING,
        attempts=1,
        max_attempts=1,
        created_at=now,
        updated_at=now,
        run_at=now,
        started_at=now,
    )
    return Context(job, task, Detached(), None)
