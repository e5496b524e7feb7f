"""Queues and limits: their state, and what operators change."""

import math
from collections import Counter
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from fastapi import Request
from pydantic import BaseModel, Field

from holdfast.engine.engine import Engine
from holdfast.engine.records import Filter
from holdfast.jobs.job import Status
from holdfast.limits.limit import QUEUE
from holdfast.monitoring import metrics
from holdfast.monitoring.snapshot import CAP, Snapshot
from holdfast.monitoring.stats import read_stats
from holdfast.web.api.parameters import PathName, Web
from holdfast.web.models import Done, Duration, Figures, Input, Moment, Point
from holdfast.web.problems import Refusal
from holdfast.web.replies import Json
from holdfast.web.routing import Routes
from holdfast.web.security.permissions import Permission

routes = Routes("queues")
_RECENT = 5  # minutes from whose rate the time until a queue is empty is estimated
_MOST = 100  # queues that get a line of their own figures
_DONE = {"done": True}


class Queue(BaseModel):
    name: str
    pending: int
    cap: int
    running: int
    oldest: float | None
    paused_at: datetime | None
    resume_at: datetime | None
    concurrency: int | None
    rate: str | None
    per_minute: float
    drain: float | None = Field(description="Seconds until nothing waits, at the present rate")
    figures: Figures
    workers: int
    series: list[Point]


class Pause(Input):
    for_: Duration | None = Field(None, alias="for")
    until: Moment | None = None


class LimitNumbers(Input):
    concurrency: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    rate: Annotated[str, Field(max_length=40, examples=["100/m"])] | None = None


class Purge(Input):
    confirm: str = Field(description="The queue's name, typed again")


class Limit(BaseModel):
    name: str
    concurrency: int | None
    rate: str | None
    keyed: bool
    fair: bool
    tasks: list[str]
    set: bool = Field(description="An operator has set other numbers than the code's")
    running: int
    waiting: int
    cap: int


@routes.get("/queues", may=Permission.JOBS_READ, answer={"queues": list[Queue]})
def list_queues(web: Web) -> Json:
    """Queues: backlog, running jobs, throughput, pauses and limits."""
    engine: Engine = web.app.engine
    snapshot = Snapshot(engine)
    now, stats = snapshot.now, read_stats(snapshot, "1h")
    start = metrics.since(now, 3600)
    workers = snapshot.alive
    limits = {limit.name: limit for limit in engine.limits(cap=CAP)}
    page = engine.search(Filter(status=frozenset({Status.RUNNING})), limit=1000)
    running = Counter(job.queue for job in page.jobs)
    depths = {queue.name: queue for queue in stats.queues}
    served = {queue for worker in workers for queue in worker.queues}
    found: list[dict[str, Any]] = []
    for name in sorted({*depths, *stats.waiting, *stats.by_queue, *running, *served})[:_MOST]:
        queue, limit = depths.get(name), limits.get(QUEUE + name)
        depth = 0 if queue is None else queue.depth
        points = metrics.whole_series(engine.series(start, queue=name), start, now)
        per_minute = _recent_rate(points)
        found.append(
            {
                "name": name,
                "pending": depth,
                "cap": CAP,
                "running": running[name],
                "oldest": stats.waiting.get(name),
                "paused_at": queue and queue.paused_at,
                "resume_at": queue and queue.resume_at,
                "concurrency": limit and limit.concurrency,
                "rate": limit and limit.rate,
                "per_minute": per_minute,
                "drain": _seconds_left(depth, per_minute),
                "figures": stats.by_queue.get(name) or metrics.Figures(),
                "workers": sum(worker.serves(name) for worker in workers),
                "series": points,
            }
        )
    return Json({"queues": found})


def _recent_rate(points: list[metrics.Point]) -> float:
    """Return how many jobs finished a minute, in the last whole minutes."""
    recent = points[-1 - _RECENT : -1]
    return sum(point.finished for point in recent) / max(1, len(recent))


def _seconds_left(depth: int, per_minute: float) -> float | None:
    """Return the seconds until nothing waits; None if the backlog does not shrink, or is not known."""
    if depth == 0:
        return 0.0
    if per_minute <= 0 or depth >= CAP:
        return None
    return math.ceil(60 * depth / per_minute)


@routes.post("/queues/{name:path}/pause", may=Permission.QUEUES_OPERATE, answer=Done)
def pause(web: Web, name: PathName, request: Request, how: Pause | None = None) -> Json:
    """Let no job of a queue be claimed, until it is resumed or the pause ends by itself."""
    wanted = how or Pause()
    request.state.audit = wanted.model_dump(mode="json", by_alias=True, exclude_none=True)
    web.app.queues.pause(name, resume_at=wanted.until, resume_in=wanted.for_)
    return Json(_DONE)


@routes.post("/queues/{name:path}/resume", may=Permission.QUEUES_OPERATE, answer=Done)
def resume(web: Web, name: PathName) -> Json:
    """End the pause of a queue."""
    web.app.queues.resume(name)
    return Json(_DONE)


@routes.put("/queues/{name:path}/limit", may=Permission.LIMITS_OPERATE, answer=Done)
def limit_queue(web: Web, name: PathName, limit: LimitNumbers, request: Request) -> Json:
    """Limit how many jobs of a queue run at the same time or start in a period; neither: no limit."""
    request.state.audit = numbers = limit.model_dump()
    web.app.queues.limit(name, **numbers)
    return Json(_DONE)


@routes.post("/queues/{name:path}/purge", may=Permission.QUEUES_PURGE, answer={"deleted": int})
def purge(web: Web, name: PathName, sure: Purge, request: Request) -> Json:
    """Delete every waiting job of a queue, except recurring ones."""
    if sure.confirm != name:
        raise Refusal(422, f"confirm={sure.confirm[:100]!r}: write the queue's name, {name!r}")
    request.state.audit = deleted = {"deleted": web.app.queues.purge(name)}
    return Json(deleted)


@routes.get("/limits", may=Permission.JOBS_READ, answer={"limits": list[Limit]})
def list_limits(web: Web) -> Json:
    """Limits, with the jobs that run under each and those that wait for it."""
    found = [asdict(limit) | {"cap": CAP} for limit in web.app.engine.limits(cap=CAP)]
    for limit in found:
        limit["set"] = limit.pop("changed")
    return Json({"limits": found})


@routes.put("/limits/{name:path}", may=Permission.LIMITS_OPERATE, answer=Done)
def set_limit(web: Web, name: PathName, limit: LimitNumbers, request: Request) -> Json:
    """Override the numbers of a limit, from the next claim on."""
    request.state.audit = numbers = limit.model_dump()
    web.app.limits.set(name, **numbers)
    return Json(_DONE)


@routes.delete("/limits/{name:path}", may=Permission.LIMITS_OPERATE, answer=Done)
def reset_limit(web: Web, name: PathName) -> Json:
    """Reset a limit to the numbers in the code."""
    web.app.limits.reset(name)
    return Json(_DONE)
