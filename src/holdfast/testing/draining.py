"""Runs due jobs as a worker does, without threads of its own."""

import asyncio
import os
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from holdfast.app import Holdfast
from holdfast.engine.records import Report, Seen
from holdfast.errors import HoldfastError, JobFailed
from holdfast.jobs.job import Job
from holdfast.jobs.outcome import Applied, Ended, Finish, Unreadable
from holdfast.tasks.context import Context
from holdfast.tasks.middleware import Middleware
from holdfast.testing.loops import awaited, running_loop
from holdfast.worker.housekeeping.event_reporter import EventReporter
from holdfast.worker.housekeeping.rollup_writer import RollupWriter
from holdfast.worker.running.execution import Execution
from holdfast.worker.running.hooks import Hooks, decided, hook_of
from holdfast.worker.running.runners import run_here, run_on_loop
from holdfast.worker.running.slots import Lane
from holdfast.worker.running.thread_pool import Threads
from holdfast.worker.running.unreadable_payloads import UnreadablePayloads

RUNS = 1000  #: of one drain, which raises after so many: its jobs seem to enqueue jobs for ever


def drain(app: Holdfast, *, raise_errors: bool = True, limit: int = RUNS) -> list[Job]:
    """Run all due jobs, and the jobs that they enqueue, in this thread until none is due. Return the
    jobs as each run left them. The exception of the first failed run is raised after its result is
    written.

    Jobs are claimed, run and written as by a worker, with hooks. Only timeouts are not enforced, and
    `process=True` handlers run in this process."""
    if running_loop() is not None:
        raise HoldfastError("drain() was called inside an event loop: use 'await adrain(app)'")
    with asyncio.Runner() as loop, _Drain(app, limit, _DrainHooks(app, loop)) as work:
        while (execution := work.take()) is not None:
            if execution.task.conduct.kind == "async":
                value, ended = loop.run(run_on_loop(execution, work.middleware))
            else:
                value, ended = run_here(execution, work.middleware)
            work.settle(execution, ended, value, raise_errors)
    return work.ran


async def adrain(app: Holdfast, *, raise_errors: bool = True, limit: int = RUNS) -> list[Job]:
    """Drain inside an event loop: `async def` handlers run on this loop, everything else in threads."""
    loop, hop = asyncio.get_running_loop(), app.runner.hop
    with _Drain(app, limit, _AsyncDrainHooks(app, loop)) as work:
        while (execution := await hop(work.take)) is not None:
            if execution.task.conduct.kind == "async":
                value, ended = await run_on_loop(execution, work.middleware)
            else:
                value, ended = await hop(partial(run_here, execution, work.middleware))
            await hop(partial(work.settle, execution, ended, value, raise_errors))
    return work.ran


class _ErrorRecorder(Middleware):
    """Keeps the exception of a run, of which a finish has only the text."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def run(self, ctx: Context, proceed: Callable[[], Any]) -> Any:
        with self._recording():
            return proceed()

    async def arun(self, ctx: Context, proceed: Callable[[], Awaitable[Any]]) -> Any:
        with self._recording():
            return await proceed()

    @contextmanager
    def _recording(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.error = error
            raise


class _Drain:
    """A worker without threads: `take` claims one job, the caller runs it, `settle` writes its end."""

    def __init__(self, app: Holdfast, limit: int, hooks: "_AsyncDrainHooks") -> None:
        self._app = app
        self._engine = app.engine
        self._limit = limit
        self._hooks = hooks
        self._rollups = RollupWriter(app.engine)
        self._reporter = EventReporter(
            app.listeners, Counter(), self._rollups, UnreadablePayloads()
        )
        self._recorder = _ErrorRecorder()
        self._id = f"drain-{os.getpid()}-{secrets.token_hex(4)}"
        self._rules = {name: task.rule for name, task in app.tasks.items() if task.rule}
        self.middleware = (self._recorder, *app.middleware)
        self.ran: list[Job] = []

    def __enter__(self) -> "_Drain":
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.leave(self._id)
        self._engine.sweep([Seen(self._id, None)], limit=RUNS)
        self._rollups.close()

    def take(self) -> Execution | None:
        self._engine.beat(self._id, "{}")
        self._engine.promote(RUNS)
        self._engine.maintenance.advance_workflows(RUNS)
        job = self._claim()
        if job is None:
            return None
        if len(self.ran) >= self._limit:
            raise HoldfastError(
                f"after {self._limit} runs there is still work to do: does a job enqueue itself?"
            )
        self._recorder.error = None
        self._reporter.started([job])
        settings = self._app.settings
        lane = Lane(job.queue, [], 1)
        return Execution(job, self._app.tasks[job.type], lane, self._app.runner, settings.workdir)

    def _claim(self) -> Job | None:
        types = list(self._app.tasks)
        queues = [queue.name for queue in self._engine.queues()]
        for queue in queues:
            if found := self._fetch(queue, types):
                return found[0]
        suspects = self._engine.claimer.claim_suspects(
            queues, 1, worker=self._id, types=types, rules=self._rules
        )
        return suspects[0] if suspects else None

    def _fetch(self, queue: str, types: list[str]) -> list[Job]:
        while True:
            jobs, more, _ = self._engine.claimer.fetch(
                queue, 1, worker=self._id, types=types, rules=self._rules
            )
            if jobs or not more:  # more: the first jobs of the queue were parked just now
                return jobs

    def settle(self, execution: Execution, ended: Ended, value: Any, raise_errors: bool) -> None:
        execution.ended = True
        if execution.has_context:
            execution.context.clean()
        finish = self._hooks.settled(execution, ended, value)
        self._write(execution, finish)
        error = self._recorder.error
        if finish.error is None or not (raise_errors or isinstance(error, KeyboardInterrupt)):
            return
        job = execution.job
        if error is None:
            raise JobFailed(f"job {job.id} ({job.type}): {finish.error}", job)
        error.add_note(f"raised by job {job.id} ({job.type}), attempt {job.attempts}")
        raise error

    def _write(self, execution: Execution, finish: Finish) -> None:
        if execution.news is not None:
            self._engine.report([Report(*execution.claim, *execution.news)])
        while (done := self._engine.finish([finish])[execution.claim]) is Applied.BUSY:
            time.sleep(0.01)
        if done is Applied.APPLIED:
            self._reporter.finished(execution, finish)
        self.ran += self._engine.get([execution.job.id]) or [execution.job]


class _CallingThread(Threads):
    """Runs work in the thread that submits it."""

    def submit(self, work: Callable[[], None]) -> None:
        work()


class _AsyncDrainHooks(Hooks):
    """Calls hooks in the calling thread, which must not be the loop's."""

    def __init__(self, app: Holdfast, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(app.runner, lambda: loop, _CallingThread("holdfast"), self._keep)
        self._kept: Finish | None = None

    def _keep(self, execution: Execution, finish: Finish) -> None:
        self._kept = finish

    def settled(self, execution: Execution, ended: Ended, value: Any) -> Finish:
        """Return the finish to write, after the hooks were called."""
        if isinstance(ended, Unreadable):  # no worker of another version could read it later
            ended = ended.failed()
        finish = self._kept = decided(execution, ended)
        if execution.has_context and execution.context.completion is not None:
            self.confirm(execution, ended, execution.context.completion)
        elif hook_of(execution, finish) is not None:
            self.run(execution, finish, value)
        return self._kept


class _DrainHooks(_AsyncDrainHooks):
    """Calls asynchronous hooks too, on a loop that runs only during the call."""

    def __init__(self, app: Holdfast, runner: asyncio.Runner) -> None:
        super().__init__(app, runner.get_loop())
        self._asyncio = runner

    def wait_for(self, answer: Awaitable[Any]) -> None:
        self._asyncio.run(awaited(answer))
