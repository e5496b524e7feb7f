"""What goes wrong, grouped by its kind."""

from typing import Annotated, Any

from fastapi import Query

from holdfast.failures import read_errors
from holdfast.job import Status
from holdfast.web.answers import ErrorGroups
from holdfast.web.api.asking import Web
from holdfast.web.api.showing import as_json
from holdfast.web.models import Name
from holdfast.web.permissions import Permission
from holdfast.web.replies import Json
from holdfast.web.routing import Routes

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
