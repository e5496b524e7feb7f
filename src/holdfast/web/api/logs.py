"""What the runs of a job wrote."""

from typing import Annotated

from fastapi import Query

from holdfast.jobs.job_json import plain
from holdfast.web.api.parameters import Id, Limit, Web
from holdfast.web.models import LogLines
from holdfast.web.replies import Json
from holdfast.web.routing import Routes
from holdfast.web.security.permissions import Permission

routes = Routes("jobs")
_FIELDS = ("claim_no", "attempt", "line_no", "at", "level", "text")
Cursor = Annotated[
    str | None, Query(max_length=30, description="`next` of the answer before", examples=["1.20"])
]


@routes.get("/jobs/{id}/logs", may=Permission.JOBS_PAYLOAD, answer=LogLines)
def get_logs(web: Web, id: Id, after: Cursor = None, limit: Limit = 500) -> Json:
    """Lines of a job's log, in order. (Free text: what keys hide elsewhere is not hidden here.)"""
    web.app.jobs.get(id)
    found = web.app.jobs.logs(id, after=after, limit=limit)
    lines = [{name: plain(getattr(line, name)) for name in _FIELDS} for line in found]
    return Json({"lines": lines, "next": found[-1].cursor if found else after})
