"""Brings the rows of the limits, schedules and hooks in the code up to date when a worker starts.

Schedules that are gone from the code are disabled; what an operator has disabled stays disabled.
"""

import json
import logging
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from holdfast.app import Holdfast
from holdfast.engine.dialect import Dialect
from holdfast.engine.engine import Engine
from holdfast.engine.script import Script
from holdfast.jobs import pruning
from holdfast.jobs.job import Job
from holdfast.schedules import scripts as schedule_scripts
from holdfast.schedules.next_run import CODE, Schedule, first_run
from holdfast.tasks.task import Task

logger = logging.getLogger("holdfast.worker")

GONE = "gone from the code"


def declare(app: Holdfast) -> None:
    engine = app.engine
    rules = [task.rule for task in app.tasks.values() if task.rule is not None]
    engine.declare([row for rule in rules for row in rule.declared])
    _forget_limits(app)
    declare_hooks(app)
    for task in app.tasks.values():
        if task.schedule is not None:
            engine.write(_sync_schedule, task, task.schedule, app.clock.now())
    for job in _abandoned(app):
        engine.write(schedule_scripts.set_enabled, job, False, GONE)
        logger.warning(
            "the schedule of task %s is gone from the code: its job %s is disabled",
            *(job.type, job.id),
        )


def hooked(app: Holdfast) -> list[str]:
    """Return the tasks whose finished jobs are deleted only after their `on_prune` was called."""
    return sorted(task.name for task in app.tasks.values() if task.conduct.on_prune is not None)


def declare_hooks(app: Holdfast) -> None:
    """Declare the `on_prune` hooks of our code. A hook that is no longer in our code is forgotten if no
    live worker has it either."""
    ours = hooked(app)
    gone = set(app.engine.run(pruning.hooks, write=False)) & app.tasks.keys() - set(ours)
    if gone:
        gone -= _published_elsewhere(app.engine, "hooks")
    for type in sorted(gone):
        logger.warning("the on_prune of task %s is gone from the code: it is not called", type)
    app.engine.maintenance.declare_hooks(ours, gone)


def _forget_limits(app: Holdfast) -> None:
    """Delete limits that none of our tasks has any more, and release the jobs that wait for them."""
    declared = {row.name for task in app.tasks.values() if task.rule for row in task.rule.declared}
    for limit in app.limits.list():
        ours = limit.tasks and set(limit.tasks) <= app.tasks.keys()
        if ours and limit.name not in declared:
            app.limits.forget(limit.name)
            logger.warning("the limit %s is gone from the code: it holds no more", limit.name)


def _sync_schedule(
    dialect: Dialect, task: Task[Any, Any], plan: Schedule, now: datetime
) -> Script[None]:
    """Insert the row of a task's schedule, or bring it up to date."""
    found = yield from schedule_scripts.find(dialect, task.name, CODE)
    new = task.using(key=CODE).recurring((), {})
    if found is None:
        job = yield from schedule_scripts.schedule(dialect, new)
        logger.info("task %s recurs from now on, next at %s", task.name, job.run_at.isoformat())
        return
    changed = found.schedule != new.schedule
    back = found.disabled_because == GONE
    yield from schedule_scripts.schedule(dialect, new, enables=back)
    if back:
        yield from schedule_scripts.set_enabled(dialect, found, True)
    if changed:
        at = _next(plan, found, now)
        yield from schedule_scripts.move(dialect, task.name, CODE, at, 0.0)
        logger.info("the schedule of task %s was changed, next at %s", task.name, at.isoformat())


def _next(plan: Schedule, job: Job, now: datetime) -> datetime:
    """Return the first run of a schedule that was changed."""
    if plan.every is not None and job.last_run_at is not None:
        last = min(job.last_run_at, now)  # the clock may have been set back since
        return max(now, last + timedelta(seconds=plan.every))
    return first_run(plan, now)


def _abandoned(app: Holdfast) -> Iterable[Job]:
    """Yield recurring jobs whose schedule is in no code: neither in ours, nor in the code of a live
    worker that has tasks which ours has not."""
    engine = app.engine
    ours = {name for name, task in app.tasks.items() if task.schedule is not None}
    others = set(engine.run(schedule_scripts.types, write=False)) - ours
    if others - app.tasks.keys():
        others -= _published_elsewhere(engine, "tasks") - app.tasks.keys()
    for type in sorted(others):
        job = engine.write(schedule_scripts.find, type, CODE)
        if job is not None and job.enabled and job.schedule is not None:
            yield job


def _published_elsewhere(engine: Engine, what: str) -> set[str]:
    """Return the values that live workers report under a name in their info."""
    workers = [worker for worker in engine.workers() if worker.died_at is None]
    infos: list[Mapping[str, Any]] = [json.loads(worker.info) for worker in workers]
    return {name for info in infos for name in info.get(what, ())}
