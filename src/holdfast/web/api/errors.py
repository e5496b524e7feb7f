"""Failures, grouped by their kind."""

from datetime import datetime
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel

from holdfast.jobs.error_groups import BROKEN, read_errors
from holdfast.jobs.job import Status
from holdfast.web.api.parameters import Web
from holdfast.web.models import Name
from holdfast.web.replies import Json
from holdfast.web.routing import Routes
from holdfast.web.security.permissions import Permission

routes = Routes("errors")


class ErrorGroup(BaseModel):
    id: str
    exception: str
    message: str
    frame: str | None
    types: list[str]
    statuses: dict[str, int]
    count: int
    first_at: datetime
    last_at: datetime
    sample_ids: list[str]
    sample_error: str
    sparkline: list[int]


class ErrorGroups(BaseModel):
    groups: list[ErrorGroup]
    looked_at: int
    complete: bool
    since: datetime | None


@routes.get("/errors", may=Permission.JOBS_READ, answer=ErrorGroups)
def list_errors(
    web: Web,
    type: Annotated[Name | None, Query(description="A task's name")] = None,
    status: Annotated[list[Status] | None, Query()] = None,
) -> Json:
    """The newest failures by exception, message and place, the most frequent first."""
    statuses = BROKEN if status is None else status
    return Json(read_errors(web.app.engine, statuses=statuses, type=type))
