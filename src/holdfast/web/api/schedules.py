"""Recurring jobs: each is one row, which is a job like any other."""

from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import Query, Request
from pydantic import BaseModel

from holdfast.errors import InvalidInput, InvalidTransition
from holdfast.jobs.job import Attempt
from holdfast.jobs.job import Job as JobRow
from holdfast.schedules.next_run import from_json, in_words, regular
from holdfast.web.api.parameters import After, Id, Me, Web
from holdfast.web.models import Duration, Input, Job, Moment, WholeJob
from holdfast.web.replies import Json, listed, shown
from holdfast.web.routing import Routes
from holdfast.web.security.permissions import Permission

routes = Routes("schedules")
_NEXT_RUNS = 5
_PAST_RUNS = 20


class Run(BaseModel):
    finished_at: datetime
    status: str
    seconds: float | None
    error: str | None


class Schedule(Job):
    words: str
    timezone: str | None
    next_runs: list[datetime]
    history: list[Run]


class Reschedule(Input):
    run_at: Moment | None = None
    delay: Duration | None = None


@routes.get(
    "/schedules", may=Permission.JOBS_READ, answer={"schedules": list[Schedule], "next": str | None}
)
def list_schedules(
    web: Web, after: After = None, limit: Annotated[int, Query(ge=1, le=200)] = 50
) -> Json:
    """Recurring jobs by task and key, each with its next runs and its last runs."""
    start = None
    if after is not None:
        last = web.app.jobs.get(after)
        start = (last.type, last.key or "")
    rows = web.app.schedules.page(start, limit)
    more = rows[-1].id if len(rows) == limit else None
    return Json({"schedules": [_described(web, job) for job in rows], "next": more})


def _described(web: Any, job: JobRow) -> dict[str, Any]:
    schedule = from_json(job.schedule or "{}")
    runs = web.app.jobs.attempts(job.id)[:_PAST_RUNS]
    return listed(job) | {
        "words": in_words(schedule),
        "timezone": schedule.timezone,
        "next_runs": _next_runs(job),
        "history": [_run(run) for run in runs],
    }


def _run(run: Attempt) -> dict[str, Any]:
    start = run.started_at
    seconds = None if start is None else max(0.0, (run.finished_at - start).total_seconds())
    return {
        "finished_at": run.finished_at,
        "status": "completed" if run.error is None else "failed",
        "seconds": seconds,
        "error": run.error,
    }


def _next_runs(job: JobRow) -> list[datetime]:
    """Return the next runs by the schedule; a run may still choose another time for its next one."""
    if not job.enabled:
        return []
    schedule = from_json(job.schedule or "{}")
    moments = [job.run_at]
    due = job.due_at or job.run_at
    while len(moments) < _NEXT_RUNS:
        following = regular(schedule, due, max(due, moments[-1]) + timedelta(microseconds=1))
        if following is None or following <= moments[-1]:
            break
        moments.append(following)
        due = following
    return moments


def _recurring(web: Any, id: UUID) -> tuple[str, str]:
    job: JobRow = web.app.jobs.get(id)
    if job.schedule is None or job.key is None:
        raise InvalidTransition(f"job {id} does not recur: it has no schedule")
    return job.type, job.key


@routes.post("/schedules/{id}/enable", may=Permission.SCHEDULES_OPERATE, answer=WholeJob)
def enable(web: Web, me: Me, id: Id) -> Json:
    """Let a recurring job run again; an overdue one runs immediately."""
    return Json(shown(web.app.schedules.enable(*_recurring(web, id)), me, web.redact))


@routes.post("/schedules/{id}/disable", may=Permission.SCHEDULES_OPERATE, answer=WholeJob)
def disable(web: Web, me: Me, id: Id) -> Json:
    """Keep a recurring job from running; the time of its next run is kept."""
    return Json(shown(web.app.schedules.disable(*_recurring(web, id)), me, web.redact))


@routes.post("/schedules/{id}/run", may=Permission.SCHEDULES_OPERATE, answer=WholeJob)
def run_schedule(web: Web, me: Me, id: Id) -> Json:
    """Run a recurring job now."""
    return Json(shown(web.app.schedules.run_now(*_recurring(web, id)), me, web.redact))


@routes.patch("/schedules/{id}", may=Permission.SCHEDULES_OPERATE, answer=WholeJob)
def reschedule(web: Web, me: Me, id: Id, change: Reschedule, request: Request) -> Json:
    """Choose the time of the next run, or the delay until it."""
    if (change.run_at is None) == (change.delay is None):
        raise InvalidInput("give run_at or delay, one of them")
    request.state.audit = change.model_dump(mode="json", exclude_none=True)
    job = web.app.schedules.reschedule(*_recurring(web, id), at=change.run_at, after=change.delay)
    return Json(shown(job, me, web.redact))
