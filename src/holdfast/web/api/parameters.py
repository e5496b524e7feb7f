"""Parameters that several routes take (the caller, ids, names, filters), and reading pages of jobs."""

import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Path, Query
from pydantic import Field
from starlette.requests import Request

from holdfast.app import Holdfast
from holdfast.core import validation
from holdfast.engine.records import Filter, Page
from holdfast.errors import InvalidInput
from holdfast.jobs.filters import make_filter
from holdfast.jobs.job import Job, Status
from holdfast.jobs.query_language import parse
from holdfast.web.models import Input, Moment, Name
from holdfast.web.problems import Refusal
from holdfast.web.security.permissions import Identity, Permission
from holdfast.web.security.redaction import Redaction

PATIENCE = 0.1  # seconds that a search goes on for where few jobs match


def _web(request: Request) -> Any:
    return request.app.state.web


def _me(request: Request) -> Identity:
    me: Identity = request.state.me
    return me


Web = Annotated[Any, Depends(_web)]
Me = Annotated[Identity, Depends(_me)]
Id = Annotated[UUID, Path()]
PathName = Annotated[Name, Path()]
Limit = Annotated[int, Query(ge=1, le=1000)]
After = Annotated[UUID | None, Query(description="`next` of the page before")]
Window = Annotated[str, Query(max_length=20, description="From 1m to 24h", examples=["1h"])]


class JobFilter(Input):
    """Which jobs; all that is given must hold."""

    status: Annotated[list[Status], Field(default_factory=list)]
    type: Name | None = Field(None, description="A task's name, or its beginning")
    queue: Name | None = None
    key: Annotated[str, Field(min_length=1, max_length=500)] | None = None
    worker: Annotated[str, Field(max_length=300)] | None = None
    entity: Annotated[str, Field(max_length=500, examples=["movie:7"])] | None = None
    since: Moment | None = Field(None, description="Made at or after")
    until: Moment | None = Field(None, description="Made before")
    q: Annotated[str, Field(max_length=1000, examples=["type:mail status:failed"])] | None = None

    def wanted(self, redact: Redaction, me: Identity) -> dict[str, Any]:
        """Return the arguments of `make_filter`; empty if no filter was given. Refuse to search in
        values that the caller may not see: the result would reveal them."""
        given: dict[str, Any] = {
            "status": [one.value for one in self.status] or None,
            "prefix": self.type,
            "queue": self.queue,
            "key": self.key,
            "worker_id": self.worker,
            "entity": entity_of(self.entity),
            "since": self.since,
            "until": self.until,
        }
        found = {name: value for name, value in given.items() if value is not None}
        query = parse(self.q) if self.q else {}
        if "payload" in query and not me.may(Permission.JOBS_PAYLOAD):
            raise Refusal(
                403, f"{me.who} ({me.role}) may not search payloads: it needs jobs.payload"
            )
        keys = (key for path in query.get("payload", {}) for key in path.split("."))
        if any(map(redact.hides, keys)):
            raise InvalidInput("q: this part of the payload is redacted: it cannot be searched for")
        if twice := sorted(found.keys() & query.keys()):
            raise InvalidInput(f"{twice[0]} is given twice, by itself and in q=: give it once")
        return found | dict(query)


class JobQuery(JobFilter):
    """A filter, and which page."""

    after: UUID | None = Field(None, description="`next` of the page before")
    limit: int = Field(100, ge=1, le=1000)


def entity_of(text: str | None) -> tuple[str, int | str] | None:
    """Parse an entity such as 'movie:7'."""
    return None if text is None else validation.entity_of(text, f"entity={text!r}")


def read_page(app: Holdfast, wanted: Mapping[str, Any], after: UUID | None, limit: int) -> Page:
    """Search for a page of jobs for a short time: where few jobs match, the page may be short although
    more follow."""
    filter = make_filter(**wanted)
    deadline = time.monotonic() + PATIENCE
    found: list[Job] = []
    cursor = None if after is None else str(after)
    while True:
        page = app.engine.search(filter, after=cursor, limit=limit - len(found))
        found += page.jobs
        cursor = page.next
        if cursor is None or len(found) >= limit or time.monotonic() >= deadline:
            return Page(found, cursor)


def walk(app: Holdfast, filter: Filter, most: int) -> Iterator[list[Job]]:
    """Yield the first `most` jobs that match, page by page."""
    cursor = None
    while most > 0:
        page = app.engine.search(filter, after=cursor, limit=min(500, most))
        if page.jobs:
            yield page.jobs
        most -= len(page.jobs)
        if (cursor := page.next) is None:
            return
