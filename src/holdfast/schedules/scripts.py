"""Scripts of recurring jobs. A recurring job is one row, found by its task and key; a script locks it
before it decides anything about it."""

import inspect
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from holdfast.engine.dialect import MICRO, Dialect, wake
from holdfast.engine.script import Run, Script
from holdfast.errors import DatabaseBusy, InvalidInput, JobNotFound, KeyConflict
from holdfast.jobs.commands import insert, new_row
from holdfast.jobs.job import Job, NewJob
from holdfast.jobs.read import get
from holdfast.jobs.rows import columns_to_job
from holdfast.schedules.next_run import CODE

_TRIES = 20

# The condition of `sync`: a function, or SQL with its parameters.
Condition = Callable[[], Any] | tuple[str, Mapping[str, Any]]


def find(dialect: Dialect, type: str, key: str) -> Script[Job | None]:
    """Return a recurring job, locked for this transaction; None if there is none."""
    reply = yield Run("find_schedule", {"type": type, "key": key})
    return columns_to_job(dialect, reply.rows[0]) if reply.rows else None


def find_or_raise(dialect: Dialect, type: str, key: str) -> Script[Job]:
    """Return a recurring job, locked for this transaction. Raises JobNotFound."""
    found = yield from find(dialect, type, key)
    if found is None or found.schedule is None:
        if key == CODE:
            raise JobNotFound(
                f"task {type!r} has no recurring job written at it: a worker makes it at its start "
                "if the task has every= or cron=, schedule() makes others"
            )
        raise JobNotFound(
            f"task {type!r} has no recurring job with the key {key!r}: schedule() makes it"
        )
    return found


def schedule(dialect: Dialect, new: NewJob, *, enables: bool = True) -> Script[Job]:
    """Insert a recurring job; if it exists, give it the new arguments and schedule, and enable it. Its
    next run stays."""
    for _ in range(_TRIES):
        found = yield from find(dialect, new.type, str(new.key))
        if found is None:
            [job] = yield from insert(dialect, [new], hint=[new.queue])
            if job.created:
                return job
            continue  # another transaction has inserted it
        if found.schedule is None:
            raise KeyConflict(
                f"job {found.id} ({found.status}) of task {new.type!r} holds the key {new.key!r}, and "
                "is not a recurring one: choose another key, or delete it"
            )
        row = new_row(dialect, new, dialect.now())
        yield Run("renew_schedule", {}, [row | {"holder": found.id, "enables": enables}])
        yield from wake([new.queue])
        return (yield from get(dialect, [found.id]))[0]
    raise DatabaseBusy(f"the key {new.key!r} of task {new.type!r} changes hands all the time")


def enable(dialect: Dialect, type: str, key: str, enabled: bool) -> Script[Job]:
    """Enable or disable a recurring job."""
    job = yield from find_or_raise(dialect, type, key)
    return (yield from set_enabled(dialect, job, enabled))


def set_enabled(
    dialect: Dialect, job: Job, enabled: bool, because: str | None = None
) -> Script[Job]:
    """Do the same with a job that is locked already. `because`: the reason, if no operator disables
    it."""
    params = {"now": dialect.now(), "id": job.id, "enabled": enabled, "because": because}
    yield Run("enable_schedule", params)
    if enabled:
        yield from wake([job.queue])  # it may be overdue
    return (yield from get(dialect, [job.id]))[0]


def move(dialect: Dialect, type: str, key: str, at: datetime | None, after: float) -> Script[Job]:
    """Choose the next run: at a time, or after some seconds."""
    job = yield from find_or_raise(dialect, type, key)
    params = {
        "now": dialect.now(),
        "id": job.id,
        "run_at": None if at is None else dialect.time(at),
        "delay": round(after * MICRO),
    }
    yield Run("move_schedule", params)
    yield from wake([job.queue])
    return (yield from get(dialect, [job.id]))[0]


def remove(dialect: Dialect, type: str, key: str) -> Script[Job]:
    """Delete a recurring job, and return it as it was."""
    job = yield from get_whole(dialect, type, key)
    yield Run("delete", {}, [{"job_id": job.id}])
    return job


def get_whole(dialect: Dialect, type: str, key: str) -> Script[Job]:
    """Return a recurring job with its arguments. Raises JobNotFound."""
    job = yield from find_or_raise(dialect, type, key)
    return (yield from get(dialect, [job.id]))[0]


def sync(dialect: Dialect, type: str, key: str, condition: Condition) -> Script[Job]:
    """Enable a recurring job if the condition holds, else disable it. The row is locked before the
    condition is evaluated: of two transactions that change what it depends on, the later one sees what
    the earlier one did."""
    job = yield from find_or_raise(dialect, type, key)
    enabled = yield from _holds(condition)
    if enabled == job.enabled:
        return (yield from get(dialect, [job.id]))[0]
    return (yield from set_enabled(dialect, job, enabled))


def _holds(condition: Condition) -> Script[bool]:
    if isinstance(condition, tuple):
        sql, params = condition
        rows = (yield Run(f"{sql} ", dict(params))).rows
        return bool(rows and rows[0][0])
    return ask(condition)


def ask(condition: Callable[[], Any]) -> bool:
    """Call the function of an application, and return its answer."""
    answer = condition()
    if inspect.isawaitable(answer):
        raise InvalidInput(
            "sync(enabled=...): an async function needs 'await ....async_()' and a tx="
        )
    return bool(answer)


def types() -> Script[list[str]]:
    """Return the tasks that have recurring jobs."""
    return [type for (type,) in (yield Run("recurring_types", {})).rows]


def listing(dialect: Dialect, after: tuple[str, str], limit: int) -> Script[list[Job]]:
    """Return some recurring jobs, by task and key: those behind `after`."""
    params = {"type": after[0], "key": after[1], "limit": limit}
    return [columns_to_job(dialect, row) for row in (yield Run("schedules", params)).rows]


def disabled(limit: int = 100) -> Script[list[tuple[str, str, str]]]:
    """Return the recurring jobs that were disabled, but not by an operator: task, key and reason."""
    reply = yield Run("disabled_schedules", {"limit": limit})
    return [(type, key, because) for type, key, because in reply.rows]
