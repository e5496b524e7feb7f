"""Tasks: what can be enqueued, and how it fares."""

import inspect
from collections.abc import Mapping
from typing import Any

from holdfast.engine.engine import Engine
from holdfast.errors import UnknownTask
from holdfast.monitoring.metrics import (
    FIRST,
    GROWTH,
    Figures,
    Histogram,
    Point,
    since,
    whole_series,
)
from holdfast.monitoring.snapshot import CAP, Snapshot
from holdfast.monitoring.stats import by_task, length_of
from holdfast.schedules.next_run import in_words
from holdfast.tasks.task import Task
from holdfast.web.api.parameters import Named, Web, Window
from holdfast.web.api.presenting import as_json
from holdfast.web.replies import Json
from holdfast.web.responses import Tasks, WholeTask
from holdfast.web.routing import Routes
from holdfast.web.security.permissions import Permission

routes = Routes("tasks")
_LATELY = 3600  # seconds of which the list tells each minute
_MOST = 100  # tasks that get a line of their own figures


@routes.get("/tasks", may=Permission.JOBS_READ, answer=Tasks)
def list_tasks(web: Web, window: Window = "1h") -> Json:
    """Every task that is registered here, known to a live worker, or has ended a run lately."""
    engine: Engine = web.app.engine
    fares = _Fares(web, window)
    start = since(fares.now, _LATELY)
    found: list[dict[str, Any]] = []
    for name in fares.names:
        told = fares.of(name)
        points: list[Point] = []
        if name in fares.figures and len(found) < _MOST:
            points = whole_series(engine.series(start, type=name), start, fares.now)
        found.append(told | {"lately": [point.finished for point in points]})
    return Json(as_json({"tasks": found}))


@routes.get("/tasks/{name:path}", may=Permission.JOBS_READ, answer=WholeTask)
def get_task(web: Web, name: Named, window: Window = "1h") -> Json:
    """One, minute by minute, and how its times are spread."""
    fares = _Fares(web, window)
    if name not in fares.names:
        raise UnknownTask(f"no task {name!r} is registered, known to a worker, or ran lately")
    waits, runs = Histogram(), Histogram()
    for total in fares.totals:
        if total.type == name:
            waits.merge(total.waits)
            runs.merge(total.runs)
    points = web.app.engine.series(fares.start, type=name)
    told = fares.of(name) | {
        "series": whole_series(points, fares.start, fares.now),
        "histograms": {"wait": bars(waits), "run": bars(runs)},
    }
    return Json(as_json(told))


def bars(histogram: Histogram) -> list[dict[str, Any]]:
    return [
        {
            "from": FIRST * GROWTH ** (bucket - 1) if bucket else 0.0,
            "to": FIRST * GROWTH**bucket,
            "count": count,
        }
        for bucket, count in sorted(histogram.buckets.items())
    ]


class _Fares:
    """How tasks fare, in a window."""

    def __init__(self, web: Any, window: str) -> None:
        engine: Engine = web.app.engine
        snapshot, length = Snapshot(engine), length_of(window)
        self.tasks: Mapping[str, Task[Any, Any]] = web.app.tasks
        self.now = snapshot.now
        self.start = since(self.now, length)
        self.totals = engine.totals(self.start)
        self.figures = by_task(self.totals, self.tasks, length)
        self.limits = {limit.name: limit for limit in engine.limits(cap=CAP)}
        self.workers = [worker for worker in snapshot.workers if worker.alive]
        known = {name for worker in self.workers for name in worker.tasks or ()}
        self.names = sorted({*self.tasks, *known, *self.figures})

    def of(self, name: str) -> dict[str, Any]:
        limit = self.limits.get(name)
        return {
            "name": name,
            "concurrency": None if limit is None else limit.concurrency,
            "rate": None if limit is None else limit.rate,
            "registered": name in self.tasks,
            "workers": sum(worker.knows(name) for worker in self.workers),
            "figures": self.figures.get(name) or Figures(),
            **_defaults(self.tasks.get(name)),
        }


def _defaults(task: Task[Any, Any] | None) -> dict[str, Any]:
    """As it is registered here; of one that is not, nothing is known."""
    if task is None:
        unknown = ("queue", "priority", "max_attempts", "timeout", "schedule", "doc", "schema")
        return dict.fromkeys(unknown)
    return {
        "queue": task.defaults.queue or "default",
        "priority": task.defaults.priority or 0,
        "max_attempts": task.defaults.max_attempts,
        "timeout": task.conduct.timeout,
        "schedule": None if task.schedule is None else in_words(task.schedule),
        "doc": inspect.getdoc(task.handler),
        "schema": task.arguments.json_schema(),
    }
