"""Retry, cancel or delete many jobs: first count them, then change them in batches, with progress."""

import time
from collections import Counter
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Request
from pydantic import BaseModel, Field

from holdfast.errors import InvalidInput, InvalidTransition, JobNotFound, KeyConflict
from holdfast.jobs import error_groups
from holdfast.jobs.changes import Changed
from holdfast.jobs.filters import make_filter
from holdfast.web import operations
from holdfast.web.api.parameters import Id, JobFilter, Me, Web, walk
from holdfast.web.models import Input
from holdfast.web.problems import Refusal
from holdfast.web.replies import Json
from holdfast.web.routing import Routes
from holdfast.web.security.permissions import Identity, Permission

routes = Routes("bulk")
COUNTED = 10_000  #: jobs, at most, that are counted before a change
PATIENCE = 0.2  # seconds, at most, that counting takes
_BATCH = 100
_SKIPPED: dict[type[Exception], str] = {
    JobNotFound: "gone",
    KeyConflict: "key live again",
    InvalidTransition: "not in this status",
}


class BulkFilter(JobFilter):
    error_group: Annotated[str, Field(max_length=100)] | None = None


class Bulk(Input):
    """Exactly one of `ids` and `filter`."""

    action: Literal["retry", "cancel", "delete"]
    ids: Annotated[list[UUID], Field(max_length=10_000)] | None = None
    filter: BulkFilter | None = None
    dry_run: bool = Field(False, description="Only count what matches")
    limit: Annotated[int, Field(ge=1, le=1_000_000)] = 100_000


class Matched(BaseModel):
    matched: int
    capped: bool = Field(description="There are at least so many")


class Operation(BaseModel):
    id: str
    action: str
    state: Literal["running", "done", "stopped", "failed"]
    seen: int
    changed: int
    skipped: dict[str, int]
    matched: int | None
    error: str | None


@routes.post(
    "/bulk",
    may=Permission.JOBS_OPERATE,
    answer=Operation,
    status=202,
    also={200: {"model": Matched, "description": "What it would concern (dry_run)"}},
)
def bulk(web: Web, me: Me, wanted: Bulk, request: Request) -> Json:
    """Retry, cancel or delete many jobs."""
    if (wanted.ids is None) == (wanted.filter is None):
        raise InvalidInput("give ids or a filter, one of them")
    if wanted.action == "delete" and not me.may(Permission.JOBS_DELETE):
        raise Refusal(403, f"{me.who} ({me.role}) may not delete: it needs jobs.delete")
    number, capped = _matched(web, me, wanted)
    if wanted.dry_run:
        return Json({"matched": number, "capped": capped})
    request.state.audit = wanted.model_dump(mode="json", exclude_none=True, exclude={"ids"}) | {
        "ids": [str(id) for id in (wanted.ids or [])[:100]],
        "matched": number,
    }
    operation = operations.Operation(wanted.action, None if capped else number)
    web.operations.start(operation, lambda tell: _work(web, me, wanted, tell))
    return Json(operation.fields(), status_code=202)


@routes.get("/bulk/{id}", may=Permission.JOBS_READ, answer=Operation)
def get_operation(web: Web, id: Id) -> Json:
    """The progress of a bulk operation."""
    return Json(_find(web, id).fields())


@routes.delete("/bulk/{id}", may=Permission.JOBS_OPERATE, answer=Operation)
def stop_operation(web: Web, id: Id) -> Json:
    """Stop a bulk operation after its present batch; what is done stays done."""
    operation = _find(web, id)
    operation.stop.set()
    return Json(operation.fields())


def _find(web: Any, id: UUID) -> operations.Operation:
    operation: operations.Operation | None = web.operations.get(str(id))
    if operation is None:
        raise Refusal(404, f"no operation has the id {id}: this server forgets the oldest")
    return operation


def _matched(web: Any, me: Identity, wanted: Bulk) -> tuple[int, bool]:
    """Return how many jobs match, up to a bound and for a short time, and whether there may be more."""
    if wanted.filter is None or wanted.filter.error_group is not None:
        number = len(set(_ids(web, wanted, COUNTED)))
        return number, wanted.ids is None and number >= COUNTED
    number, deadline = 0, time.monotonic() + PATIENCE
    for jobs in walk(web.app, make_filter(**wanted.filter.wanted(web.redact, me)), COUNTED):
        number += len(jobs)
        if time.monotonic() > deadline:
            return number, True
    return number, number >= COUNTED


def _ids(web: Any, wanted: Bulk, most: int) -> list[str]:
    """Return the ids that were given, or those of the first `most` jobs of the error group."""
    if wanted.filter is None:
        return [str(id) for id in wanted.ids or ()]
    statuses = [status.value for status in wanted.filter.status] or ["failed", "retrying"]
    found: list[str] = []
    after: str | None = None
    while len(found) < most:
        ids, after = error_groups.members(
            web.app.engine,
            wanted.filter.error_group,
            statuses=statuses,
            after=after,
            limit=1000,
        )
        found += ids
        if after is None:
            break
    return found[:most]


def _work(web: Any, me: Identity, wanted: Bulk, tell: operations.Progress) -> Changed:
    jobs = web.app.jobs
    if wanted.filter is None or wanted.filter.error_group is not None:
        return _one_by_one(getattr(jobs, wanted.action), _ids(web, wanted, wanted.limit), tell)
    given = wanted.filter.wanted(web.redact, me)
    change = getattr(jobs, f"{wanted.action}_all")
    done: Changed = change(everything=not given, progress=tell, limit=wanted.limit, **given)
    return done


def _one_by_one(change: Any, ids: list[str], tell: operations.Progress) -> Changed:
    """Change each job by itself, so that one that cannot be changed is skipped and counted."""
    changed, skipped = 0, Counter[str]()
    done = Changed()
    for number, id in enumerate(dict.fromkeys(ids), 1):
        try:
            change(id)
            changed += 1
        except tuple(_SKIPPED) as problem:
            skipped[next(text for kind, text in _SKIPPED.items() if isinstance(problem, kind))] += 1
        done = Changed(matched=number, changed=changed, skipped=dict(skipped))
        if number % _BATCH == 0:
            tell(done)
    return done
