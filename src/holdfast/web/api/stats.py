"""Figures: what there is now, what was done lately."""

from typing import Annotated

from fastapi import Query

from holdfast.monitoring.metrics import since, whole_series
from holdfast.monitoring.stats import length_of
from holdfast.web.api.parameters import Web, Window
from holdfast.web.api.presenting import as_json
from holdfast.web.models import Name, Series
from holdfast.web.replies import Json
from holdfast.web.responses import Health, Stats
from holdfast.web.routing import Routes
from holdfast.web.security.permissions import Permission

routes = Routes("figures")


@routes.get("/stats", may=Permission.JOBS_READ, answer=Stats)
def stats(web: Web, window: Window = "1h") -> Json:
    """What there is now, counted up to a cap, and what was done in the window."""
    return Json(as_json(web.app.stats(window=window)))


@routes.get("/health", may=Permission.JOBS_READ, answer=Health)
def checks(web: Web) -> Json:
    """Is work being done, and what needs somebody? (A monitor asks at the root, by the status.)"""
    return Json(as_json(web.app.health()))


@routes.get("/series", may=Permission.JOBS_READ, answer=Series)
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
    return Json(as_json({"series": points}))
