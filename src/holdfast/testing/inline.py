"""`Inline`: an enqueue runs its job, without a database."""

import asyncio
import contextvars
import json
from collections.abc import Awaitable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NoReturn
from unittest import mock

from holdfast.app import Holdfast
from holdfast.errors import HoldfastError, JobFailed
from holdfast.jobs.job import Body, Job, NewJob, Status
from holdfast.jobs.outcome import Raised, Returned
from holdfast.tasks.context import Context
from holdfast.tasks.middleware import Middleware, wrap_arun, wrap_enqueue
from holdfast.tasks.options import Options
from holdfast.tasks.task import Task
from holdfast.testing.loops import await_on
from holdfast.worker.running.execution import Execution
from holdfast.worker.running.runners import call_here, returned
from holdfast.worker.running.slots import Lane
from holdfast.workflows.builder import Workflow

_caller: contextvars.ContextVar[asyncio.AbstractEventLoop | None] = contextvars.ContextVar(
    "the event loop that waits for an asynchronous enqueue", default=None
)


class Inline:
    """Inside the block an enqueue runs its job, in this process and without a database. Arguments and
    result are still converted to JSON and back, and the enqueue raises the handler's exception. Delays,
    keys and transactions are accepted and ignored; there are no retries and no hooks. Jobs that a run
    enqueues, and those of `then=`, run after it. Workflows and schedules need a database, and are
    refused. `jobs`: the jobs that ran."""

    def __init__(self, app: Holdfast) -> None:
        self.jobs: list[Job] = []
        self._app = app
        self._patches = ExitStack()

    def __enter__(self) -> "Inline":
        app = self._app
        for owner, name, instead in (
            (app, "insert", self._insert),
            (app, "ainsert", self._ainsert),
            (app.workflows, "start", _refuse_workflow),
            (app.workflows, "astart", _refuse_workflow),
            (app.schedules, "put", _refuse_schedule),
            (app.schedules, "aput", _refuse_schedule),
        ):
            self._patches.enter_context(mock.patch.object(owner, name, instead))
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()

    def _insert(self, jobs: Sequence[NewJob], options: Options) -> list[Job]:
        insert = wrap_enqueue(self._app.middleware, self._run_all)
        return insert(jobs) if jobs else []

    async def _ainsert(self, jobs: Sequence[NewJob], options: Options) -> list[Job]:
        token = _caller.set(asyncio.get_running_loop())
        try:
            return await asyncio.to_thread(self._insert, jobs, options)
        finally:
            _caller.reset(token)

    def _run_all(self, jobs: Sequence[NewJob]) -> list[Job]:
        return [self._run(job) for job in jobs]

    def _run(self, new: NewJob) -> Job:
        task = self._app.find_task(new.type)
        execution = _InlineExecution(_job_of(new, self._app.detached(task).job), task, self._app)
        arguments = task.arguments.decode(new.payload)
        try:
            if task.conduct.kind == "async":
                value = await_on(
                    _caller.get(), _calling(execution, arguments, self._app.middleware)
                )
            else:
                value = call_here(execution, arguments, self._app.middleware)
        finally:
            execution.context.clean()
        ended = returned(execution, value)
        if isinstance(ended, Raised):
            raise JobFailed(f"job {new.id} ({new.type}): {ended.error}")
        result, follow = ended[:2] if isinstance(ended, Returned) else (None, ())
        if execution.context.completion is not None:
            follow = execution.context.completion.enqueue
        done = replace(execution.job, status=Status.COMPLETED, body=Body(new.payload, result))
        self.jobs.append(done)
        self._run_all(follow)
        return done


def _refuse_workflow(flow: Workflow, jobs: Sequence[NewJob]) -> NoReturn:
    raise _needs_rows(f"the workflow {flow.name!r}")


def _refuse_schedule(new: NewJob, *, tx: Any = None) -> NoReturn:
    raise _needs_rows(f"the schedule of task {new.type!r}")


def _needs_rows(what: str) -> HoldfastError:
    return HoldfastError(
        f"{what} needs a database, and Inline has none: use drain(app), on a database of the test's "
        "own: with temporary(app)"
    )


class _InlineExecution(Execution):
    """A run of a job that is in no database."""

    __slots__ = ()

    def __init__(self, job: Job, task: Task[Any, Any], app: Holdfast) -> None:
        super().__init__(job, task, Lane(job.queue, [], 1), app.runner, app.settings.workdir)
        self._context = _InlineContext(job, task, self, app.runner)


class _InlineContext(Context):
    """A context whose `complete` checks the result and writes nothing: there is no database."""

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
        idempotency_key=new.idempotency_key,
        entity_type=new.entity_type,
        entity_id=None if new.entity_id is None else json.loads(new.entity_id),
        max_attempts=new.max_attempts,
        timeout=new.timeout,
        claim_no=1,
        body=Body(new.payload),
        created=True,
    )


def _calling(
    execution: Execution, arguments: dict[str, Any], middleware: Sequence[Middleware]
) -> Awaitable[Any]:
    task, context = execution.task, execution.context
    first = (context,) if task.conduct.takes_context else ()
    return wrap_arun(middleware, context, lambda: task.handler(*first, **arguments))()
