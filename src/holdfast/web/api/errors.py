"""What goes wrong, grouped by its kind."""

from typing import Annotated, Any

from fastapi import Query

from holdfast.jobs.error_groups import read_errors
from holdfast.jobs.job import Status
from holdfast.web.api.parameters import Web
from holdfast.web.api.presenting import as_json
from holdfast.web.models import Name
from holdfast.web.replies import Json
from holdfast.web.responses import ErrorGroups
from holdfast.web.routing import Routes
from holdfast.web.security.permissions import Permission

routes = Routes("errors")
_BROKEN = (Status.FAILED, Status.RETRYING)


@routes.get("/errors", may=Permission.JOBS_READ, answer=ErrorGroups)
def list_errors(
    web: Web,
    type: Annotated[Name | None, Query(description="A task's name")] = None,
    status: Annotated[list[Status] | None, Query()] = None,
) -> Json:
    """The newest failures by exception, message and place, the most frequent first."""
    statuses = [one for one in _BROKEN if status is None or one in status]
    found: Any = read_errors(web.app.engine, statuses=statuses, type=type)
    return Json(as_json(found))
