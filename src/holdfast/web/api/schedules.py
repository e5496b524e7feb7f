"""Recurring jobs: one row each, which is a job like any other."""

from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import Query, Request

from holdfast.errors import InvalidInput, InvalidTransition
from holdfast.jobs.job import Attempt, Job
from holdfast.jobs.job_json import iso
from holdfast.schedules.next_run import from_json, in_words, regular
from holdfast.web.api.parameters import Id, Me, Web
from holdfast.web.api.presenting import listed, shown
from holdfast.web.models import WholeJob
from holdfast.web.replies import Json
from holdfast.web.responses import Reschedule, Schedules
from holdfast.web.routing import Routes
from holdfast.web.security.permissions import Permission

routes = Routes("schedules")
_FORETOLD = 5
_REMEMBERED = 20


@routes.get("/schedules", may=Permission.JOBS_READ, answer=Schedules)
def list_schedules(
    web: Web,
    after: Annotated[UUID | None, Query(description="`next` of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Json:
    """Recurring jobs by task and key, each with its next runs and its last ones."""
    start = None
    if after is not None:
        last = web.app.jobs.get(after)
        start = (last.type, last.key or "")
    rows = web.app.schedules.page(start, limit)
    return Json(
        {
            "schedules": [_told(web, job) for job in rows],
            "next": rows[-1].id if len(rows) == limit else None,
        }
    )


def _told(web: Any, job: Job) -> dict[str, Any]:
    schedule = from_json(job.schedule or "{}")
    runs = web.app.jobs.attempts(job.id)[:_REMEMBERED]
    return listed(job) | {
        "words": in_words(schedule),
        "timezone": schedule.timezone,
        "next_runs": [iso(moment) for moment in foretold(job)],
        "history": [_run(run) for run in runs],
    }


def _run(run: Attempt) -> dict[str, Any]:
    took = None
    if run.started_at is not None:
        took = max(0.0, (run.finished_at - run.started_at).total_seconds())
    status = "completed" if run.error is None else "failed"
    return {
        "finished_at": iso(run.finished_at),
        "status": status,
        "seconds": took,
        "error": run.error,
    }


def foretold(job: Job) -> list[datetime]:
    """Its next runs, as far as its schedule tells; a run may decide otherwise."""
    if not job.enabled:
        return []
    schedule = from_json(job.schedule or "{}")
    moments = [job.run_at]
    due = job.due_at or job.run_at
    while len(moments) < _FORETOLD:
        following = regular(schedule, due, max(due, moments[-1]) + timedelta(microseconds=1))
        if following is None or following <= moments[-1]:
            break
        moments.append(following)
        due = following
    return moments


def _recurring(web: Any, id: UUID) -> tuple[str, str]:
    job: Job = web.app.jobs.get(id)
    if job.schedule is None or job.key is None:
        raise InvalidTransition(f"job {id} does not recur: it has no schedule")
    return job.type, job.key


@routes.post("/schedules/{id}/enable", may=Permission.SCHEDULES_OPERATE, answer=WholeJob)
def enable(web: Web, me: Me, id: Id) -> Json:
    """Let it run again; an overdue one does so at once."""
    return Json(shown(web.app.schedules.enable(*_recurring(web, id)), me, web.redact))


@routes.post("/schedules/{id}/disable", may=Permission.SCHEDULES_OPERATE, answer=WholeJob)
def disable(web: Web, me: Me, id: Id) -> Json:
    """Keep it from running; its next run is remembered."""
    return Json(shown(web.app.schedules.disable(*_recurring(web, id)), me, web.redact))


@routes.post("/schedules/{id}/run", may=Permission.SCHEDULES_OPERATE, answer=WholeJob)
def run_schedule(web: Web, me: Me, id: Id) -> Json:
    """A run at once."""
    return Json(shown(web.app.schedules.run_now(*_recurring(web, id)), me, web.redact))


@routes.patch("/schedules/{id}", may=Permission.SCHEDULES_OPERATE, answer=WholeJob)
def reschedule(web: Web, me: Me, id: Id, change: Reschedule, request: Request) -> Json:
    """Choose its next run: a moment, or a time from now."""
    if (change.run_at is None) == (change.delay is None):
        raise InvalidInput("give run_at or delay, one of them")
    request.state.audit = change.model_dump(mode="json", exclude_none=True)
    job = web.app.schedules.reschedule(
        *_recurring(web, id),
        **({"at": change.run_at} if change.run_at is not None else {"after": change.delay}),
    )
    return Json(shown(job, me, web.redact))
