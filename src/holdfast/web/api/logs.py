"""Log lines that the runs of a job wrote."""

from datetime import datetime
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field

from holdfast.jobs.job_json import plain
from holdfast.web.api.parameters import Id, Limit, Web
from holdfast.web.replies import Json
from holdfast.web.routing import Routes
from holdfast.web.security.permissions import Permission

routes = Routes("jobs")
Cursor = Annotated[
    str | None, Query(max_length=30, description="`next` of the answer before", examples=["1.20"])
]


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


@routes.get("/jobs/{id}/logs", may=Permission.JOBS_PAYLOAD, answer=LogLines)
def get_logs(web: Web, id: Id, after: Cursor = None, limit: Limit = 500) -> Json:
    """Lines of a job's log, in order. (Free text: redacted keys are not hidden in it.)"""
    web.app.jobs.get(id)
    found = web.app.jobs.logs(id, after=after, limit=limit)
    lines = [{name: plain(getattr(line, name)) for name in LogLine.model_fields} for line in found]
    return Json({"lines": lines, "next": found[-1].cursor if found else after})
