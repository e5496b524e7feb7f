"""Statistics and health: the present state, and what was done in a window."""

from datetime import datetime
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel

from holdfast.monitoring.metrics import length_of, since, whole_series
from holdfast.web.api.parameters import Web, Window
from holdfast.web.models import Figures, Name, Point
from holdfast.web.replies import Json
from holdfast.web.routing import Routes
from holdfast.web.security.permissions import Permission

routes = Routes("figures")


class QueueDepth(BaseModel):
    name: str
    depth: int
    paused_at: datetime | None
    resume_at: datetime | None


class Stats(BaseModel):
    jobs: dict[str, int]
    queues: list[QueueDepth]
    workers: int
    cap: int
    oldest_pending: float | None
    waiting: dict[str, float]
    window: float
    figures: Figures
    by_task: dict[str, Figures]
    by_queue: dict[str, Figures]
    series: list[Point]


class Check(BaseModel):
    name: str
    ok: bool
    warning: bool
    detail: str


class Health(BaseModel):
    ok: bool
    problems: list[str]
    warnings: list[str]
    checks: list[Check]
    jobs: dict[str, int]
    workers: int
    oldest_pending: float | None
    unknown_types: list[str]
    paused_queues: list[str]
    stuck_jobs: list[str]
    silent_workers: list[str]


@routes.get("/stats", may=Permission.JOBS_READ, answer=Stats)
def stats(web: Web, window: Window = "1h") -> Json:
    """The present state, counted up to a cap, and what was done in the window."""
    return Json(web.app.stats(window=window))


@routes.get("/health", may=Permission.JOBS_READ, answer=Health)
def checks(web: Web) -> Json:
    """Health checks: is work being done, and what needs attention? (Monitors ask /health instead.)"""
    return Json(web.app.health())


@routes.get("/series", may=Permission.JOBS_READ, answer={"series": list[Point]})
def series(
    web: Web,
    window: Window = "1h",
    type: Annotated[Name | None, Query()] = None,
    queue: Annotated[Name | None, Query()] = None,
) -> Json:
    """A point for each minute of the window."""
    engine = web.app.engine
    now = engine.now()
    start = since(now, length_of(window))
    points = whole_series(engine.series(start, type=type, queue=queue), start, now)
    return Json({"series": points})
