"""Runs handlers: `async def` on an event loop, `def` in threads. Reports how each run ended, and never
touches the engine."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Protocol

from holdfast.core.codec import encode_error
from holdfast.jobs.outcome import (
    CRASHES,
    Ended,
    GivenBack,
    Late,
    Raised,
    Returned,
    Unreadable,
    judge,
    quarantined,
)
from holdfast.schedules.next_run import from_json, is_missed
from holdfast.tasks.middleware import Middleware, wrap_arun, wrap_run
from holdfast.worker.running.execution import Execution
from holdfast.worker.running.thread_pool import Threads

logger = logging.getLogger("holdfast.worker")

Report = Callable[[Execution, Ended | None, Any], None]  #: how it ended, and the Python result


class JobRunner(Protocol):
    """Runs one kind of handler."""

    def start(self, executions: Sequence[Execution]) -> None: ...


def decided_early(execution: Execution) -> Raised | Late | GivenBack | None:
    """Return the end of a run that must not begin: it was stopped meanwhile (`concluded` says what
    follows), has a verdict to be recorded, is quarantined, or comes too late."""
    if execution.why is not None:
        return GivenBack()
    job = execution.job
    if job.verdict is not None:  # before lateness: this run has ended already, and began in time
        return Raised(job.verdict, None)
    if job.crashes >= CRASHES:
        return Raised(quarantined(job.crashes, job.error), None, permanent=True)
    begun = job.started_at or job.run_at
    if job.expires_at is not None and job.expires_at <= begun and job.attempts <= 1:
        return Late(f"Expired: it was to begin before {job.expires_at.isoformat()}")
    if job.schedule is not None and _is_missed(job.schedule, job.run_at, begun):
        return Late(None)
    return None


def prepared(execution: Execution) -> dict[str, Any] | Raised | Late | GivenBack | Unreadable:
    """Return its arguments, or why it does not run."""
    decided = decided_early(execution)
    if decided is not None:
        return decided
    execution.enter()  # a type of the application's may run its own code to decode an argument
    return arguments_of(execution)


def _is_missed(schedule: str, due: datetime, now: datetime) -> bool:
    try:
        return is_missed(from_json(schedule), due=due, now=now)
    except ValueError:
        return False  # its finish will report what is wrong with it


def arguments_of(execution: Execution) -> dict[str, Any] | Unreadable:
    """Return the handler's arguments, unless the payload does not fit this code: it may be that of a
    newer version, whose worker is about to start."""
    body = execution.job.body
    try:
        return execution.task.arguments.decode(body.payload if body is not None else "{}")
    except Exception as problem:  # InvalidArguments, or whatever a validator of the user raises
        return Unreadable(encode_error(problem).error)


def returned(execution: Execution, value: Any) -> Ended:
    """A result that cannot be stored fails the run, as if the handler had raised it."""
    if execution.has_context and execution.context.completion is not None:
        return Returned(execution.context.completion.result)
    try:
        text = None if value is None else execution.task.result.encode(value)
        follow = execution.task.following(execution.job, value)
    except Exception as problem:
        return judge(problem, execution.task.policy)
    enqueued = tuple(execution.context.enqueued) if execution.has_context else ()
    enqueued += tuple(follow)
    asked = execution.context.next_at if execution.has_context else None
    return Returned(text, enqueued, asked)


class AsyncRunner:
    """`async def` handlers, on one event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        ended: Report,
        middleware: Sequence[Middleware],
    ) -> None:
        self._loop = loop
        self._ended = ended
        self._middleware = middleware

    def start(self, executions: Sequence[Execution]) -> None:
        self._loop.call_soon_threadsafe(self._start, executions)

    def _start(self, executions: Sequence[Execution]) -> None:
        for execution in executions:
            task = self._loop.create_task(self._run(execution))
            execution.where = task  # which also keeps it: the loop itself does not
            execution.halt = partial(self._halt, execution, task)

    def _halt(self, execution: Execution, task: "asyncio.Task[None]") -> None:
        with suppress(RuntimeError):  # the loop is closed: nothing runs on it any more
            self._loop.call_soon_threadsafe(self._cancel, execution, task)

    def _cancel(self, execution: Execution, task: "asyncio.Task[None]") -> None:
        """Cancel it, unless it has not begun: it would never report its end then. It sees that it was
        stopped when it begins."""
        if execution.begun:
            task.cancel()

    async def _run(self, execution: Execution) -> None:
        execution.begun = True
        value: Any = None
        ended: Ended
        arguments = prepared(execution)
        if not isinstance(arguments, dict):
            ended = arguments
        else:
            try:
                value = await self._call(execution, arguments)
                ended = returned(execution, value)
            except BaseException as error:  # also SystemExit: a handler must not end the worker
                ended = judge(error, execution.task.policy)
        execution.ended = True
        self._ended(execution, execution.concluded(ended), value)

    def _call(self, execution: Execution, arguments: dict[str, Any]) -> Awaitable[Any]:
        """Return what to await. (Not a coroutine itself: that would be one more for each job.)"""
        task = execution.task
        handler = task.handler
        if self._middleware:
            context = execution.context
            first = (context,) if task.conduct.takes_context else ()
            call = wrap_arun(self._middleware, context, lambda: handler(*first, **arguments))
            return call()
        answer: Awaitable[Any]
        if task.conduct.takes_context:
            answer = handler(execution.context, **arguments)
        else:
            answer = handler(**arguments)
        return answer


async def run_on_loop(execution: Execution, middleware: Sequence[Middleware]) -> tuple[Any, Ended]:
    """Run an `async def` handler on this loop, and wait for its end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[Any, Ended]] = loop.create_future()

    def report(execution: Execution, ended: Ended | None, value: Any) -> None:
        done.set_result((value, ended or Returned(None)))

    AsyncRunner(loop, report, middleware).start([execution])
    return await done


class ThreadRunner:
    """`def` handlers, in threads. A thread cannot be killed: its context says that it is to stop."""

    def __init__(self, ended: Report, middleware: Sequence[Middleware], threads: Threads) -> None:
        self._ended = ended
        self._middleware = middleware
        self._threads = threads

    def start(self, executions: Sequence[Execution]) -> None:
        for execution in executions:
            self._threads.submit(partial(self._run, execution))

    def _run(self, execution: Execution) -> None:
        execution.where = threading.get_ident()
        value, ended = run_here(execution, self._middleware)
        execution.ended = True
        self._ended(execution, execution.concluded(ended), value)


def run_here(execution: Execution, middleware: Sequence[Middleware]) -> tuple[Any, Ended]:
    """Run a `def` handler in this thread."""
    arguments = prepared(execution)
    if not isinstance(arguments, dict):
        return None, arguments
    try:
        value = call_here(execution, arguments, middleware)
        return value, returned(execution, value)
    except BaseException as error:  # also SystemExit: a handler must not end the worker's thread
        return None, judge(error, execution.task.policy)


def call_here(
    execution: Execution, arguments: dict[str, Any], middleware: Sequence[Middleware]
) -> Any:
    task = execution.task
    first = (execution.context,) if task.conduct.takes_context else ()
    if not middleware:
        return task.handler(*first, **arguments)
    return wrap_run(middleware, execution.context, lambda: task.handler(*first, **arguments))()


class LoopThread:
    """An event loop in a thread of its own. It goes on whatever a task or a callback on it raises:
    asyncio lets SystemExit and KeyboardInterrupt end the loop, and every other run with it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="holdfast-loop", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            while not self._closing:
                try:
                    self.loop.run_forever()
                except BaseException:  # whatever awaits the task that raised it gets it, too
                    logger.exception("a task on the event loop ended with this; the loop goes on")
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    def close(self, timeout: float) -> bool:
        """False: a handler blocks it."""
        self._closing = True
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(timeout)
        return not self._thread.is_alive()
