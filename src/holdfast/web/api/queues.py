"""Queues and limits."""

import math
from collections import Counter

from fastapi import Request

from holdfast.engine.engine import Engine
from holdfast.engine.records import Filter
from holdfast.jobs.job import Status
from holdfast.limits.limit import QUEUE
from holdfast.monitoring.metrics import Figures, Point, since, whole_series
from holdfast.monitoring.snapshot import CAP, Snapshot
from holdfast.monitoring.stats import read_stats
from holdfast.web.api.parameters import Named, Web
from holdfast.web.api.presenting import as_json
from holdfast.web.models import Deleted, Done, LimitNumbers, Limits, Pause, Purge, Queues
from holdfast.web.problems import Refusal
from holdfast.web.replies import Json
from holdfast.web.routing import Routes
from holdfast.web.security.permissions import Permission

routes = Routes("queues")
_LATELY = 5  # minutes whose rate tells how long a queue takes to drain
_MOST = 100  # queues that get a line of their own figures


@routes.get("/queues", may=Permission.JOBS_READ, answer=Queues)
def list_queues(web: Web) -> Json:
    """Queues: what waits, what runs, how quick they are, and what holds them back."""
    engine: Engine = web.app.engine
    snapshot = Snapshot(engine)
    now, stats = snapshot.now, read_stats(snapshot, "1h")
    start = since(now, 3600)
    workers = [worker for worker in snapshot.workers if worker.alive]
    limits = {limit.name: limit for limit in engine.limits(cap=CAP)}
    page = engine.search(Filter(status=frozenset({Status.RUNNING})), limit=1000)
    running = Counter(job.queue for job in page.jobs)
    depths = {queue.name: queue for queue in stats.queues}
    found = []
    served = {queue for worker in workers for queue in worker.queues}
    for name in sorted({*depths, *stats.waiting, *stats.by_queue, *running, *served})[:_MOST]:
        queue, limit = depths.get(name), limits.get(QUEUE + name)
        depth = 0 if queue is None else queue.depth
        points = whole_series(engine.series(start, queue=name), start, now)
        found.append(
            {
                "name": name,
                "pending": depth,
                "cap": CAP,
                "running": running[name],
                "oldest": stats.waiting.get(name),
                "paused_at": None if queue is None else queue.paused_at,
                "resume_at": None if queue is None else queue.resume_at,
                "concurrency": None if limit is None else limit.concurrency,
                "rate": None if limit is None else limit.rate,
                "per_minute": lately(points),
                "drain": drain(depth, lately(points)),
                "figures": stats.by_queue.get(name) or Figures(),
                "workers": sum(worker.serves(name) for worker in workers),
                "series": points,
            }
        )
    return Json(as_json({"queues": found}))


def lately(points: list[Point]) -> float:
    """Finished a minute, in the last whole minutes."""
    last = points[-1 - _LATELY : -1]
    return sum(point.finished for point in last) / max(1, len(last))


def drain(depth: int, per_minute: float) -> float | None:
    """Seconds until nothing waits; None: never, at this rate, or nobody knows."""
    if depth == 0:
        return 0.0
    if per_minute <= 0 or depth >= CAP:
        return None
    return math.ceil(60 * depth / per_minute)


@routes.post("/queues/{name:path}/pause", may=Permission.QUEUES_OPERATE, answer=Done)
def pause(web: Web, name: Named, request: Request, how: Pause | None = None) -> Json:
    """Nothing of it is claimed until it is resumed, or goes on by itself."""
    asked = how or Pause()
    request.state.audit = asked.model_dump(mode="json", by_alias=True, exclude_none=True)
    web.app.queues.pause(name, resume_at=asked.until, resume_in=asked.for_)
    return Json({"done": True})


@routes.post("/queues/{name:path}/resume", may=Permission.QUEUES_OPERATE, answer=Done)
def resume(web: Web, name: Named) -> Json:
    """Let it go on."""
    web.app.queues.resume(name)
    return Json({"done": True})


@routes.put("/queues/{name:path}/limit", may=Permission.LIMITS_OPERATE, answer=Done)
def limit_queue(web: Web, name: Named, limit: LimitNumbers, request: Request) -> Json:
    """At most so many of its jobs run at once, or start in a time; neither: no limit."""
    request.state.audit = limit.model_dump()
    web.app.queues.limit(name, concurrency=limit.concurrency, rate=limit.rate)
    return Json({"done": True})


@routes.post("/queues/{name:path}/purge", may=Permission.QUEUES_PURGE, answer=Deleted)
def purge(web: Web, name: Named, sure: Purge, request: Request) -> Json:
    """Delete every job of it that waits, recurring ones excepted."""
    if sure.confirm != name:
        raise Refusal(422, f"confirm={sure.confirm[:100]!r}: write the queue's name, {name!r}")
    deleted = web.app.queues.purge(name)
    request.state.audit = {"deleted": deleted}
    return Json({"deleted": deleted})


@routes.get("/limits", may=Permission.JOBS_READ, answer=Limits)
def list_limits(web: Web) -> Json:
    """Limits, with what runs under each and what waits for it."""
    found = [as_json(limit) | {"cap": CAP} for limit in web.app.engine.limits(cap=CAP)]
    for limit in found:
        limit["set"] = limit.pop("changed")
    return Json({"limits": found})


@routes.put("/limits/{name:path}", may=Permission.LIMITS_OPERATE, answer=Done)
def set_limit(web: Web, name: Named, limit: LimitNumbers, request: Request) -> Json:
    """Other numbers than the code's, from the next claim on."""
    request.state.audit = limit.model_dump()
    web.app.limits.set(name, concurrency=limit.concurrency, rate=limit.rate)
    return Json({"done": True})


@routes.delete("/limits/{name:path}", may=Permission.LIMITS_OPERATE, answer=Done)
def reset_limit(web: Web, name: Named) -> Json:
    """The code's numbers again."""
    web.app.limits.reset(name)
    return Json({"done": True})
