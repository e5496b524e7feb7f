"""What a worker makes known when it starts: the limits of its tasks, and the schedules that are written
at them. Those that are gone from the code are disabled; what an operator has disabled stays so."""

import json
import logging
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from holdfast.app import Holdfast
from holdfast.engine.engine import Engine
from holdfast.engine.script import Script
from holdfast.jobs import read as read_scripts
from holdfast.jobs import retention
from holdfast.jobs.job import Job
from holdfast.schedules import scripts as schedule_scripts
from holdfast.schedules.next_run import CODE, Schedule, first_run
from holdfast.tasks.task import Task

logger = logging.getLogger("holdfast.worker")

GONE = "gone from the code"


def declare(app: Holdfast) -> None:
    rules = [task.rule for task in app.tasks.values() if task.rule is not None]
    app.engine.declare([row for rule in rules for row in rule.declared])
    _forget_limits(app)
    declare_hooks(app)
    for task in app.tasks.values():
        if task.schedule is not None:
            app.engine.run(lambda task=task: _written(app.engine, task, app), write=True)  # type: ignore[misc]
    for job in _abandoned(app):
        app.engine.run(
            lambda job=job: schedule_scripts.set_enabled(app.engine.dialect, job, False, GONE),  # type: ignore[misc]
            write=True,
        )
        logger.warning(
            "the schedule of task %s is gone from the code: its job %s is disabled",
            job.type,
            job.id,
        )


def hooked(app: Holdfast) -> list[str]:
    """The tasks whose finished jobs may go only after their `on_prune` was called."""
    return sorted(task.name for task in app.tasks.values() if task.conduct.on_prune is not None)


def declare_hooks(app: Holdfast) -> None:
    """A hook that is gone from our code is forgotten when no living worker has it, either."""
    ours = hooked(app)
    gone = set(app.engine.run(retention.hooks, write=False)) & app.tasks.keys() - set(ours)
    if gone:
        gone -= _told_elsewhere(app.engine, "hooks")
    for type in sorted(gone):
        logger.warning("the on_prune of task %s is gone from the code: it is not called", type)
    app.engine.maintenance.declare_hooks(ours, gone)


def _forget_limits(app: Holdfast) -> None:
    """Those of our tasks that no task has any more; what waits for them is let go."""
    declared = {row.name for task in app.tasks.values() if task.rule for row in task.rule.declared}
    for limit in app.limits.list():
        ours = limit.tasks and set(limit.tasks) <= app.tasks.keys()
        if ours and limit.name not in declared:
            app.limits.forget(limit.name)
            logger.warning("the limit %s is gone from the code: it holds no more", limit.name)


def _written(engine: Engine, task: Task[Any, Any], app: Holdfast) -> Script[None]:
    """The row of a schedule at a task, made or brought up to date."""
    dialect, plan = engine.dialect, task.schedule
    if plan is None:
        return
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
        at = _next(plan, found, app.clock.now())
        yield from schedule_scripts.move(dialect, task.name, CODE, at, 0.0)
        logger.info("the schedule of task %s was changed, next at %s", task.name, at.isoformat())


def _next(plan: Schedule, job: Job, now: datetime) -> datetime:
    """The first run of a schedule that was changed."""
    if plan.every is not None and job.last_run_at is not None:
        last = min(job.last_run_at, now)  # the clock may have been set back since
        return max(now, last + timedelta(seconds=plan.every))
    return first_run(plan, now)


def _abandoned(app: Holdfast) -> Iterable[Job]:
    """Schedules that no code has any more: neither ours nor that of a living worker that knows tasks
    which we do not."""
    engine = app.engine
    written = {name for name, task in app.tasks.items() if task.schedule is not None}
    unwritten = set(engine.run(schedule_scripts.types, write=False)) - written
    if unwritten - app.tasks.keys():
        unwritten -= _told_elsewhere(engine, "tasks") - app.tasks.keys()
    for type in sorted(unwritten):
        job = engine.run(partial(schedule_scripts.find, engine.dialect, type, CODE), write=True)
        if job is not None and job.enabled and job.schedule is not None:
            yield job


def _told_elsewhere(engine: Engine, what: str) -> set[str]:
    """By living workers."""
    workers = engine.run(lambda: read_scripts.workers(engine.dialect), write=False)
    infos: list[Mapping[str, Any]] = [json.loads(w.info) for w in workers if w.died_at is None]
    return {name for info in infos for name in info.get(what, ())}
