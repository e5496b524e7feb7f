"""One verb on many jobs: how many it would concern first, then in batches, with progress."""

import time
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Request
from pydantic import Field

from holdfast.core.ids import parse_id
from holdfast.engine.records import Filter
from holdfast.errors import HoldfastError, InvalidInput, InvalidTransition, JobNotFound, KeyConflict
from holdfast.jobs import error_groups
from holdfast.jobs.bulk_result import Changed
from holdfast.jobs.filters import make_filter
from holdfast.web.api.parameters import Id, JobFilter, Me, Web, walk
from holdfast.web.models import Asked, Matched
from holdfast.web.models import Operation as OperationModel
from holdfast.web.operations import Operation, Told
from holdfast.web.problems import Refusal
from holdfast.web.replies import Json
from holdfast.web.routing import Routes
from holdfast.web.security.permissions import Identity, Permission

routes = Routes("bulk")
COUNTED = 10_000  # that a look before counts up to,
PATIENCE = 0.2  # and seconds that it takes
_BATCH = 100


class BulkFilter(JobFilter):
    error_group: Annotated[str, Field(max_length=100)] | None = None


class Bulk(Asked):
    """Exactly one of `ids` and `filter`."""

    action: Literal["retry", "cancel", "delete"]
    ids: Annotated[list[UUID], Field(max_length=10_000)] | None = None
    filter: BulkFilter | None = None
    dry_run: bool = Field(False, description="Only count what matches")
    limit: Annotated[int, Field(ge=1, le=1_000_000)] = 100_000


@routes.post(
    "/bulk",
    may=Permission.JOBS_OPERATE,
    answer=OperationModel,
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
    operation = Operation(wanted.action, None if capped else number)
    web.operations.start(operation, lambda tell: _work(web, me, wanted, tell))
    return Json(operation.fields(), status_code=202)


@routes.get("/bulk/{id}", may=Permission.JOBS_READ, answer=OperationModel)
def get_operation(web: Web, id: Id) -> Json:
    """How far it is."""
    return Json(_known(web, id).fields())


@routes.delete("/bulk/{id}", may=Permission.JOBS_OPERATE, answer=OperationModel)
def stop_operation(web: Web, id: Id) -> Json:
    """Stop it after the present batch; what is done stays done."""
    operation = _known(web, id)
    operation.stop.set()
    return Json(operation.fields())


def _known(web: Any, id: UUID) -> Operation:
    operation: Operation | None = web.operations.get(str(id))
    if operation is None:
        raise Refusal(404, f"no operation has the id {id}: this server forgets the oldest")
    return operation


def _matched(web: Any, me: Identity, wanted: Bulk) -> tuple[int, bool]:
    """How many, and whether there may be more: counted to a bound, for a short time."""
    if wanted.ids is not None:
        return len(set(wanted.ids)), False
    assert wanted.filter is not None  # noqa: S101
    if wanted.filter.error_group is not None:
        ids = _group(web, wanted, COUNTED)
        return len(ids), len(ids) >= COUNTED
    number, deadline = 0, time.monotonic() + PATIENCE
    for jobs in walk(web.app, _filter(web, me, wanted), COUNTED):
        number += len(jobs)
        if time.monotonic() > deadline:
            return number, True
    return number, number >= COUNTED


def _filter(web: Any, me: Identity, wanted: Bulk) -> Filter:
    assert wanted.filter is not None  # noqa: S101
    return make_filter(**wanted.filter.wanted(web.redact, me))


def _group(web: Any, wanted: Bulk, most: int) -> list[str]:
    assert wanted.filter is not None  # noqa: S101
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


def _work(web: Any, me: Identity, wanted: Bulk, tell: Told) -> Changed:
    jobs = web.app.jobs
    if wanted.ids is not None:
        return _one_by_one(jobs, wanted.action, [str(id) for id in wanted.ids], tell)
    assert wanted.filter is not None  # noqa: S101
    if wanted.filter.error_group is not None:
        return _one_by_one(jobs, wanted.action, _group(web, wanted, wanted.limit), tell)
    given = wanted.filter.wanted(web.redact, me)
    verb = getattr(jobs, f"{wanted.action}_all")
    done: Changed = verb(everything=not given, progress=tell, limit=wanted.limit, **given)
    return done


def _one_by_one(jobs: Any, action: str, ids: list[str], tell: Told) -> Changed:
    """By id: each by itself, so that one that cannot be is a reason, not an end."""
    changed, skipped = 0, dict[str, int]()
    verb = getattr(jobs, action)
    unique = list(dict.fromkeys(parse_id(id) for id in ids))
    done = Changed()
    for number, id in enumerate(unique, 1):
        try:
            verb(id)
            changed += 1
        except (InvalidTransition, KeyConflict, JobNotFound) as problem:
            reason = _reason(problem)
            skipped[reason] = skipped.get(reason, 0) + 1
        done = Changed(matched=number, changed=changed, skipped=dict(skipped))
        if number % _BATCH == 0:
            tell(done)
    return done


def _reason(problem: HoldfastError) -> str:
    if isinstance(problem, JobNotFound):
        return "gone"
    return "key live again" if isinstance(problem, KeyConflict) else "not in this status"
