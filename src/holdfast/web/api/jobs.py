"""Jobs: enqueue, search, read, change and export them; their attempts and log lines."""

import csv
import io
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Header, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import StreamingResponse

from holdfast.core import validation
from holdfast.errors import InvalidInput
from holdfast.jobs.filters import make_filter
from holdfast.jobs.job import Status
from holdfast.jobs.job_json import LISTED, attempt_fields
from holdfast.monitoring.snapshot import CAP
from holdfast.web.api.parameters import Id, JobFilter, JobQuery, Limit, Me, Web, read_page, walk
from holdfast.web.models import Duration, EntityId, Input, Integer, Job, Moment, Name, WholeJob
from holdfast.web.problems import Refusal
from holdfast.web.replies import Json, listed, shown
from holdfast.web.routing import Routes
from holdfast.web.security.permissions import Identity, Permission

routes = Routes("jobs")
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=validation.LONGEST_KEY,
        pattern=r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$",
        description="At most one job of the task has this value for as long as its row exists. A repeat"
        " is answered with the first job, whatever its status and whatever this payload: 200 instead"
        " of 201, `created` false. Printable ASCII",
        examples=["order-7"],
    ),
]
LogCursor = Annotated[
    str | None, Query(max_length=30, description="`next` of the answer before", examples=["1.20"])
]
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class MadeJob(WholeJob):
    created: bool = Field(
        description="False: a job was there already, by its key or Idempotency-Key"
    )


class JobPage(BaseModel):
    jobs: list[Job]
    next: str | None = Field(description="Give it as `after` for the next page")
    stats: dict[str, int] = Field(description="Jobs in each status, each counted up to `cap`")
    cap: int


class NewJob(Input):
    type: Name
    payload: dict[str, Any] = Field({})
    priority: Integer | None = None
    queue: Name | None = None
    key: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    on_conflict: Literal["existing", "replace", "raise", "debounce"] = "existing"
    delay: Duration | None = None
    run_at: Moment | None = None
    expires: Duration | None = None
    max_attempts: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    timeout: Duration | None = None
    entity: tuple[Name, EntityId] | None = None
    entity_type: Name | None = None
    entity_id: EntityId | None = None


class JobEdit(Input):
    priority: Integer | None = None
    run_at: Moment | None = None
    delay: Duration | None = None
    queue: Name | None = None


class Duplicate(Input):
    payload: dict[str, Any] | None = None


class Attempt(BaseModel):
    attempt: int
    status: str
    worker_id: str | None
    started_at: datetime | None
    finished_at: datetime
    error: str | None
    trace: str | None


class LogLine(BaseModel):
    claim_no: int
    attempt: int
    line_no: int
    at: datetime
    level: str = Field(examples=["info", "warning", "error", "critical"])
    text: str


class LogLines(BaseModel):
    lines: list[LogLine]
    next: str | None = Field(
        description="Cursor of the last line: as `after`, it gives the lines that follow, now or later"
    )


class Why(BaseModel):
    reasons: list[str]


class Parent(BaseModel):
    id: str
    type: str | None
    node: str | None
    status: str | None
    outcome: str | None
    policy: str


@routes.get("/jobs", may=Permission.JOBS_READ, answer=JobPage)
def list_jobs(web: Web, me: Me, query: Annotated[JobQuery, Query()]) -> Json:
    """A page of the jobs that match, the newest first, and the number of jobs in each status."""
    page = read_page(web.app, query.wanted(web.redact, me), query.after, query.limit)
    counts = web.app.engine.counts(cap=CAP)
    return Json(
        {
            "jobs": [listed(job) for job in page.jobs],
            "next": page.next,
            "stats": {status.value: counts.get(status, 0) for status in Status},
            "cap": CAP,
        }
    )


@routes.post(
    "/jobs",
    may=Permission.JOBS_ENQUEUE,
    answer=MadeJob,
    status=201,
    also={
        200: {
            "model": MadeJob,
            "description": "A live job of its key, or the first of its Idempotency-Key, was found",
        }
    },
)
def enqueue(
    web: Web, me: Me, new: NewJob, request: Request, idempotency_key: IdempotencyKey = None
) -> Json:
    """Enqueue a job of a task that is registered here."""
    _check_scope(me, new.type)  # first, since the next error names all tasks
    task = web.app.find_task(new.type)
    options = new.model_dump(exclude_unset=True, exclude={"type", "payload"})
    options |= _entity(new, options) | {"idempotency_key": idempotency_key}
    options = {name: value for name, value in options.items() if value is not None}
    _check_scope(me, new.type, options.get("queue") or task.defaults.queue or "default")
    job = web.app.enqueue(new.type, new.payload, **options)
    request.state.audit = {"type": job.type, "job": job.id}
    fields = shown(job, me, web.redact) | {"created": job.created}
    return Json(fields, status_code=201 if job.created else 200)


def _entity(new: NewJob, options: dict[str, Any]) -> dict[str, Any]:
    """Return the option `entity`: from the field `entity`, from `entity_type` and `entity_id`, or from
    these two in the payload."""
    kind, id = options.pop("entity_type", None), options.pop("entity_id", None)
    if kind is None and id is None and new.entity is None:
        found = new.payload.get("entity_type"), new.payload.get("entity_id")
        try:
            validation.entity(found)
        except InvalidInput:  # the task uses these names for something else
            return {}
        kind, id = found
    elif new.entity is not None:
        return {"entity": new.entity}
    if kind is None or id is None:
        raise InvalidInput("entity_type and entity_id belong together: give both, or neither")
    return {"entity": (kind, id)}


def _check_scope(me: Identity, type: str, queue: str | None = None) -> None:
    if me.tasks and type not in me.tasks:
        raise Refusal(403, f"{me.who} may enqueue {', '.join(sorted(me.tasks))} only, not {type!r}")
    if queue is not None and me.queues and queue not in me.queues:
        raise Refusal(403, f"{me.who} may use {', '.join(sorted(me.queues))} only, not {queue!r}")


@routes.get("/jobs/{id}", may=Permission.JOBS_READ, answer=WholeJob)
def get_job(web: Web, me: Me, id: Id) -> Json:
    """A job with its payload and result."""
    return Json(shown(web.app.jobs.get(id), me, web.redact))


@routes.get("/jobs/{id}/attempts", may=Permission.JOBS_READ, answer={"attempts": list[Attempt]})
def get_attempts(web: Web, me: Me, id: Id) -> Json:
    """The failed attempts of a job, the newest first."""
    web.app.jobs.get(id)
    runs = [attempt_fields(run) for run in web.app.jobs.attempts(id)]
    if not me.may(Permission.JOBS_PAYLOAD):
        runs = [run | {"trace": None} for run in runs]
    return Json({"attempts": runs})


@routes.get("/jobs/{id}/why", may=Permission.JOBS_READ, answer=Why)
def why(web: Web, id: Id) -> Json:
    """The reasons why a job is not finished yet, in sentences."""
    return Json({"reasons": web.app.jobs.why(id)})


@routes.get("/jobs/{id}/parents", may=Permission.JOBS_READ, answer={"parents": list[Parent]})
def parents(web: Web, id: Id) -> Json:
    """The jobs that a job of a workflow waits for, or waited for."""
    web.app.jobs.get(id)
    found = web.app.workflows.parents(id)
    names = Parent.model_fields
    return Json({"parents": [{name: getattr(one, name) for name in names} for one in found]})


@routes.delete("/jobs/{id}", may=Permission.JOBS_OPERATE, answer=WholeJob)
def cancel(web: Web, me: Me, id: Id) -> Json:
    """Cancel a job; a running job is asked to stop."""
    return Json(shown(web.app.jobs.cancel(id), me, web.redact))


@routes.post("/jobs/{id}/retry", may=Permission.JOBS_OPERATE, answer=WholeJob)
def retry(web: Web, me: Me, id: Id) -> Json:
    """Run a job again from the beginning."""
    return Json(shown(web.app.jobs.retry(id), me, web.redact))


@routes.post("/jobs/{id}/delete", may=Permission.JOBS_DELETE, answer=WholeJob)
def delete(web: Web, me: Me, id: Id) -> Json:
    """Delete a job, even a running one, and return it as it was."""
    return Json(shown(web.app.jobs.delete(id), me, web.redact))


@routes.patch("/jobs/{id}", may=Permission.JOBS_OPERATE, answer=WholeJob)
def edit(web: Web, me: Me, id: Id, change: JobEdit, request: Request) -> Json:
    """Change the priority, time or queue of a waiting job."""
    given = change.model_dump(exclude_none=True)
    if not given:
        raise InvalidInput("nothing to change: give priority, run_at, delay or queue")
    request.state.audit = {"change": change.model_dump(mode="json", exclude_none=True)}
    return Json(shown(web.app.jobs.edit(id, **given), me, web.redact))


@routes.post("/jobs/{id}/run", may=Permission.JOBS_OPERATE, answer=WholeJob)
def run_now(web: Web, me: Me, id: Id) -> Json:
    """Make a scheduled job due now."""
    job = web.app.jobs.get(id)
    if job.schedule is not None:
        return Json(shown(web.app.schedules.run_now(job.type, job.key), me, web.redact))
    return Json(shown(web.app.jobs.edit(id, delay=0), me, web.redact))


@routes.post("/jobs/{id}/duplicate", may=Permission.JOBS_OPERATE, answer=MadeJob, status=201)
def duplicate(web: Web, me: Me, id: Id, request: Request, change: Duplicate | None = None) -> Json:
    """Enqueue a copy of a job, without its key, with the same payload or another one."""
    job = web.app.jobs.get(id)
    _check_scope(me, job.type, job.queue)
    made = web.app.enqueue(
        job.type,
        job.payload if change is None or change.payload is None else change.payload,
        queue=job.queue,
        priority=job.priority,
        max_attempts=job.max_attempts,
        **({} if job.entity is None else {"entity": job.entity}),
    )
    request.state.audit = {"job": made.id}
    return Json(shown(made, me, web.redact) | {"created": made.created}, status_code=201)


@routes.post("/jobs/{id}/release", may=Permission.JOBS_OPERATE, answer=WholeJob)
def release(web: Web, me: Me, id: Id) -> Json:
    """Let a job run that is held because a job it waits for failed."""
    web.app.workflows.release(id)
    return Json(shown(web.app.jobs.get(id), me, web.redact))


class ExportQuery(JobFilter):
    format: Literal["csv", "jsonl"] = "jsonl"
    limit: int = Field(100_000, ge=1, le=1_000_000)


@routes.get(
    "/export",
    may=Permission.JOBS_READ,
    answer=None,
    kinds=("application/x-ndjson", "text/csv"),
)
def export(web: Web, me: Me, query: Annotated[ExportQuery, Query()]) -> StreamingResponse:
    """All jobs that match, as a file of CSV or JSON Lines."""
    filter = make_filter(**query.wanted(web.redact, me))
    pages = (map(listed, jobs) for jobs in walk(web.app, filter, query.limit))
    lines = _csv(pages) if query.format == "csv" else _json_lines(pages)
    kind = "text/csv; charset=utf-8" if query.format == "csv" else "application/x-ndjson"
    name = f'attachment; filename="jobs.{query.format}"'
    return StreamingResponse(lines, media_type=kind, headers={"Content-Disposition": name})


def _json_lines(pages: Iterator[Any]) -> Iterator[str]:
    for page in pages:
        yield "".join(json.dumps(job, separators=(",", ":")) + "\n" for job in page)


def _csv(pages: Iterator[Any]) -> Iterator[str]:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(LISTED)
    for page in pages:
        for job in page:
            writer.writerow([_cell(job[name]) for name in LISTED])
        yield text.getvalue()
        text.seek(0)
        text.truncate()
    yield text.getvalue()


def _cell(value: Any) -> Any:
    """Quote text that a spreadsheet would take for a formula."""
    if isinstance(value, str):
        safe = value.encode("utf-8", "replace").decode()
        return f"'{safe}" if safe.startswith(_FORMULA) else safe
    return value


@routes.get("/jobs/{id}/logs", may=Permission.JOBS_PAYLOAD, answer=LogLines)
def get_logs(web: Web, id: Id, after: LogCursor = None, limit: Limit = 500) -> Json:
    """Lines of a job's log, in order. (Free text: redacted keys are not hidden in it.)"""
    web.app.jobs.get(id)
    found = web.app.jobs.logs(id, after=after, limit=limit)
    lines = [{name: getattr(line, name) for name in LogLine.model_fields} for line in found]
    return Json({"lines": lines, "next": found[-1].cursor if found else after})
