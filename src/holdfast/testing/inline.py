"""Jobs that run where they are enqueued, without a database."""

import asyncio
import contextvars
import json
from collections.abc import Awaitable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any
from unittest import mock

from holdfast.app import Holdfast
from holdfast.context import Context
from holdfast.errors import JobFailed
from holdfast.job import Body, Job, NewJob, Status
from holdfast.middleware import Middleware, wrap_arun, wrap_enqueue
from holdfast.options import Options
from holdfast.outcome import Raised, Returned
from holdfast.task import Task
from holdfast.testing.loops import await_on
from holdfast.worker.execution import Execution
from holdfast.worker.runner import call_here, returned
from holdfast.worker.slots import Lane

_host: contextvars.ContextVar[asyncio.AbstractEventLoop | None] = contextvars.ContextVar(
    "the loop that waits for an asynchronous enqueue", default=None
)


class Inline:
    """Inside the block an enqueue runs its job at once, in this process and without a database; its
    arguments and its result are turned into JSON and back all the same. What the handler raises is
    raised by the enqueue. Delays, keys and transactions are accepted and mean nothing; there are no
    retries and no hooks. `jobs` are those that ran."""

    def __init__(self, app: Holdfast) -> None:
        self.jobs: list[Job] = []
        self._app = app
        self._patches = ExitStack()

    def __enter__(self) -> "Inline":
        self._patches.enter_context(mock.patch.object(self._app, "insert", self._insert))
        self._patches.enter_context(mock.patch.object(self._app, "ainsert", self._ainsert))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._patches.close()

    def _insert(self, jobs: Sequence[NewJob], options: Options) -> list[Job]:
        insert = wrap_enqueue(self._app.middleware, self._run_all)
        return insert(jobs) if jobs else []

    async def _ainsert(self, jobs: Sequence[NewJob], options: Options) -> list[Job]:
        token = _host.set(asyncio.get_running_loop())
        try:
            return await asyncio.to_thread(self._insert, jobs, options)
        finally:
            _host.reset(token)

    def _run_all(self, jobs: Sequence[NewJob]) -> list[Job]:
        return [self._run(job) for job in jobs]

    def _run(self, new: NewJob) -> Job:
        task = self._app.find_task(new.type)
        execution = _Unwritten(_job_of(new, self._app.detached(task).job), task, self._app)
        arguments = task.arguments.decode(new.payload)
        try:
            if task.conduct.kind == "async":
                value = await_on(_host.get(), _calling(execution, arguments, self._app.middleware))
            else:
                value = call_here(execution, arguments, self._app.middleware)
        finally:
            execution.context.clean()
        ended = returned(execution, value)
        if isinstance(ended, Raised):
            raise JobFailed(f"job {new.id} ({new.type}): {ended.error}")
        result = ended.result if isinstance(ended, Returned) else None
        done = replace(execution.job, status=Status.COMPLETED, body=Body(new.payload, result))
        self.jobs.append(done)
        self._run_all(execution.context.enqueued)
        return done


class _Unwritten(Execution):
    """A run that no database knows of."""

    __slots__ = ()

    def __init__(self, job: Job, task: Task[Any, Any], app: Holdfast) -> None:
        super().__init__(job, task, Lane(job.queue, [], 1), app.runner, app.settings.workdir)
        self._context = _UnwrittenContext(job, task, self, app.runner)


class _UnwrittenContext(Context):
    """Its `complete` checks the result and writes nothing: there is no row."""

    def complete(self, result: Any = None, *, tx: Any) -> None:
        self.completion = self._completed(result)

    async def acomplete(self, result: Any = None, *, tx: Any) -> None:
        self.completion = self._completed(result)


def _job_of(new: NewJob, pattern: Job) -> Job:
    return replace(
        pattern,
        id=new.id,
        queue=new.queue,
        priority=new.priority,
        rank=-new.priority,
        key=new.key,
        entity_type=new.entity_type,
        entity_id=None if new.entity_id is None else json.loads(new.entity_id),
        max_attempts=new.max_attempts,
        claim_no=1,
        timeout=new.timeout,
        body=Body(new.payload),
        created=True,
    )


def _calling(
    execution: Execution, arguments: dict[str, Any], middleware: Sequence[Middleware]
) -> Awaitable[Any]:
    task, context = execution.task, execution.context
    first = (context,) if task.conduct.takes_context else ()
    return wrap_arun(middleware, context, lambda: task.handler(*first, **arguments))()
