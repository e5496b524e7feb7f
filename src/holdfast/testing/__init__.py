"""For the tests of applications: run jobs without a worker, and check what was enqueued.

drain(app)                       run the due jobs in this thread, through the real database
prune(app)                       delete the jobs whose retention is over, and call their hooks
enqueued(app, send, to="ann")    the waiting jobs with these arguments
with temporary(app): ...         use another, empty database until the block ends
with Inline(app): ...            use no database: an enqueue runs its job
FakeClock()                      a clock that the test moves
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from unittest import mock

from holdfast.app import Holdfast
from holdfast.core.clock import Clock, FakeClock
from holdfast.errors import InvalidArguments, InvalidInput, JobFailed
from holdfast.jobs.job import WAITING, Job
from holdfast.tasks.task import Task
from holdfast.testing.draining import adrain, drain
from holdfast.testing.inline import Inline
from holdfast.worker.housekeeping.pruning import Work, pruner_of

__all__ = ["FakeClock", "Inline", "JobFailed", "adrain", "drain", "enqueued", "prune", "temporary"]


def enqueued(app: Holdfast, task: Task[Any, Any] | str, /, **arguments: Any) -> list[Job]:
    """Return the waiting jobs of a task (pending, scheduled, retrying or blocked) that have at least
    these arguments, the oldest first."""
    name = task if isinstance(task, str) else task.name
    known = app.tasks.get(name)
    if known is not None:
        _check_names(known, arguments)
    waiting = app.jobs.search(type=name, status=sorted(WAITING))
    jobs = app.engine.get([job.id for job in waiting])
    return [job for job in reversed(jobs) if _fits(job, known, arguments)]


def _check_names(task: Task[Any, Any], arguments: Mapping[str, Any]) -> None:
    """Raise InvalidInput for names that the task does not have: no job would match, and the test would
    prove nothing."""
    parameters = task.arguments.signature.parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return
    if unknown := set(arguments) - {one.name for one in parameters}:
        raise InvalidInput(f"task {task.name!r} has no argument {', '.join(sorted(unknown))}")


def _fits(job: Job, task: Task[Any, Any] | None, arguments: Mapping[str, Any]) -> bool:
    """Return whether a job has these arguments, as JSON values or as the handler gets them."""
    found = [job.payload]
    if task is not None:
        with suppress(InvalidArguments):
            found.append(task.arguments.decode(job.body.payload if job.body else "{}"))
    return all(
        any(name in values and values[name] == value for values in found)
        for name, value in arguments.items()
    )


def prune(app: Holdfast) -> int:
    """Delete all finished jobs whose retention is over, and return their number. `on_prune` hooks are
    called and the archive is written. A job whose hook raised is kept: `job.prune_error` says why."""
    total = Work(more=True)
    with pruner_of(app) as pruner:
        wanted = pruner.wanted(everywhere=True)
        while total.more:
            total += pruner.look(wanted)
    return total.gone


@contextmanager
def temporary(
    app: Holdfast, url: str | None = None, *, schema: str = "holdfast", clock: Clock | None = None
) -> Iterator[Holdfast]:
    """Give an application another database until the block ends; its own database is not opened.
    Without a `url`, the other database is an empty one of SQLite. With a `url`, the tables are made in
    that database and stay there."""
    with ExitStack() as stack:
        if url is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-"))
            url = f"sqlite:///{folder}/jobs.db"
        other = Holdfast(url, schema=schema, auto_migrate=True, clock=clock)
        stack.enter_context(other)
        changes = {
            "url": other.url,
            "engine": other.engine,
            "runner": other.runner,
            "jobs": app.jobs.on(other.runner),
            "queues": other.queues,
            "limits": other.limits,
            "schedules": other.schedules,
            "workflows": app.workflows.on(other.runner),
        }
        for name, value in changes.items():
            stack.enter_context(mock.patch.object(app, name, value))
        yield app
