"""Retry, cancel or delete many jobs: first count them, then change them in batches, with progress.

Changes run in the background: one request starts them, others follow them. The changes are in the
database; their progress is known to this process alone."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Request
from pydantic import BaseModel, Field, PrivateAttr

from holdfast.core.ids import new_id
from holdfast.errors import HoldfastError, InvalidInput, InvalidTransition, JobNotFound, KeyConflict
from holdfast.jobs import error_groups
from holdfast.jobs.changes import Changed
from holdfast.jobs.filters import make_filter
from holdfast.web.api.parameters import Id, JobFilter, Me, Web, walk
from holdfast.web.models import Input
from holdfast.web.problems import Refusal
from holdfast.web.replies import Json
from holdfast.web.routing import Routes
from holdfast.web.security.permissions import Identity, Permission

logger = logging.getLogger("holdfast.web")
routes = Routes("bulk")
COUNTED = 10_000  #: jobs, at most, that are counted before a change
PATIENCE = 0.2  # seconds, at most, that counting takes
_BATCH = 100
_KEPT = 200  # operations that are remembered
_THREADS = 2  # so that a few large operations do not keep the database busy alone
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


Progress = Callable[[Changed], None]


class Stopped(Exception):
    """The operation was asked to stop: raised between two batches."""


class Operation(BaseModel):
    id: str
    action: str
    state: Literal["running", "done", "stopped", "failed"]
    seen: int
    changed: int
    skipped: dict[str, int]
    matched: int | None
    error: str | None
    _stop: threading.Event = PrivateAttr(default_factory=threading.Event)
    _ended: threading.Event = PrivateAttr(default_factory=threading.Event)

    def run(self, work: Callable[[Progress], Changed]) -> None:
        try:
            self._note(work(self.tell))
            self.state = "done"
        except Stopped:
            self.state = "stopped"
        except HoldfastError as problem:
            self.state, self.error = "failed", str(problem)
        except Exception:
            logger.exception("%s of many jobs failed", self.action)
            self.state, self.error = "failed", "the server's log has the reason"
        finally:
            self._ended.set()

    def tell(self, done: Changed) -> None:
        """Take note of the progress. Raises Stopped if the operation was asked to stop."""
        self._note(done)
        if self._stop.is_set():
            raise Stopped

    def _note(self, done: Changed) -> None:
        self.seen, self.changed, self.skipped = done.matched, done.changed, dict(done.skipped)

    def stop(self) -> None:
        self._stop.set()

    def wait(self, patience: float) -> None:
        self._ended.wait(patience)


class Operations:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, Operation] = {}  # the oldest first
        self._threads: ThreadPoolExecutor | None = None

    def start(self, operation: Operation, work: Callable[[Progress], Changed]) -> None:
        """Run it in a thread, and return after 0.3 s at most: a short operation is done by then."""
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="holdfast-bulk")
            self._known[operation.id] = operation
            while len(self._known) > _KEPT:
                del self._known[next(iter(self._known))]
            self._threads.submit(operation.run, work)
        operation.wait(0.3)

    def find(self, id: UUID) -> Operation:
        with self._lock:
            operation = self._known.get(str(id))
        if operation is None:
            raise Refusal(404, f"no operation has the id {id}: this server forgets the oldest")
        return operation

    def close(self) -> None:
        """Stop every operation after its present batch."""
        with self._lock:
            for operation in self._known.values():
                operation.stop()
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)


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
    operation = Operation(
        id=new_id(),
        action=wanted.action,
        state="running",
        seen=0,
        changed=0,
        skipped={},
        matched=None if capped else number,
        error=None,
    )
    web.operations.start(operation, lambda tell: _work(web, me, wanted, tell))
    return Json(operation.model_dump(), status_code=202)


@routes.get("/bulk/{id}", may=Permission.JOBS_READ, answer=Operation)
def get_operation(web: Web, id: Id) -> Json:
    """The progress of a bulk operation."""
    return Json(web.operations.find(id).model_dump())


@routes.delete("/bulk/{id}", may=Permission.JOBS_OPERATE, answer=Operation)
def stop_operation(web: Web, id: Id) -> Json:
    """Stop a bulk operation after its present batch; what is done stays done."""
    operation = web.operations.find(id)
    operation.stop()
    return Json(operation.model_dump())


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


def _work(web: Any, me: Identity, wanted: Bulk, tell: Progress) -> Changed:
    jobs = web.app.jobs
    if wanted.filter is None or wanted.filter.error_group is not None:
        return _one_by_one(getattr(jobs, wanted.action), _ids(web, wanted, wanted.limit), tell)
    given = wanted.filter.wanted(web.redact, me)
    change = getattr(jobs, f"{wanted.action}_all")
    done: Changed = change(everything=not given, progress=tell, limit=wanted.limit, **given)
    return done


def _one_by_one(change: Any, ids: list[str], tell: Progress) -> Changed:
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
