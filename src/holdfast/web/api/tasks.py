"""Tasks: what can be enqueued, and how it fares."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.engine import LimitInfo
from holdfast.errors import UnknownTask
from holdfast.fleet import WorkerView, read_workers
from holdfast.metrics import FIRST, GROWTH, Figures, Histogram, Point, since, whole_series
from holdfast.recurrence import in_words
from holdfast.stats import CAP, Stats
from holdfast.task import Task
from holdfast.web.answers import Tasks, WholeTask
from holdfast.web.api.asking import Named, Web, Window
from holdfast.web.api.showing import as_json
from holdfast.web.permissions import Permission
from holdfast.web.replies import Json
from holdfast.web.routing import Routes

routes = Routes("tasks")
_LATELY = 3600  # seconds of which the list tells each minute
_MOST = 100  # tasks that get a line of their own figures


@routes.get("/tasks", may=Permission.JOBS_READ, answer=Tasks)
def list_tasks(web: Web, window: Window = "1h") -> Json:
    """Every task that is registered here, known to a live worker, or has ended a run lately."""
    stats = web.app.stats(window=window)
    workers = [worker for worker in read_workers(web.app.engine) if worker.alive]
    limits = {limit.name: limit for limit in web.app.engine.limits(cap=CAP)}
    now = web.app.engine.now()
    start = since(now, _LATELY)
    found: list[dict[str, Any]] = []
    for name in _names(web, stats, workers):
        told = _told(web, name, stats, workers, limits)
        points: list[Point] = []
        if name in stats.by_task and len(found) < _MOST:
            points = whole_series(web.app.engine.series(start, type=name), start, now)
        found.append(told | {"lately": [point.finished for point in points]})
    return Json(as_json({"tasks": found}))


@routes.get("/tasks/{name:path}", may=Permission.JOBS_READ, answer=WholeTask)
def get_task(web: Web, name: Named, window: Window = "1h") -> Json:
    """One, minute by minute, and how its times are spread."""
    stats = web.app.stats(window=window)
    engine = web.app.engine
    workers = [worker for worker in read_workers(engine) if worker.alive]
    if name not in _names(web, stats, workers):
        raise UnknownTask(f"no task {name!r} is registered, known to a worker, or ran lately")
    limits = {limit.name: limit for limit in engine.limits(cap=CAP)}
    now = engine.now()
    start = since(now, stats.window)
    waits, runs = Histogram(), Histogram()
    for total in engine.totals(start):
        if total.type == name:
            waits.merge(total.waits)
            runs.merge(total.runs)
    told = _told(web, name, stats, workers, limits) | {
        "series": whole_series(engine.series(start, type=name), start, now),
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


def _names(web: Any, stats: Stats, workers: Sequence[WorkerView]) -> list[str]:
    known = {name for worker in workers for name in worker.tasks or ()}
    return sorted({*web.app.tasks, *known, *stats.by_task})


def _told(
    web: Any,
    name: str,
    stats: Stats,
    workers: Sequence[WorkerView],
    limits: Mapping[str, LimitInfo],
) -> dict[str, Any]:
    task: Task[Any, Any] | None = web.app.tasks.get(name)
    limit = limits.get(name)
    told: dict[str, Any] = {
        "name": name,
        "concurrency": None if limit is None else limit.concurrency,
        "rate": None if limit is None else limit.rate,
        "registered": task is not None,
        "workers": sum(worker.knows(name) for worker in workers),
        "figures": stats.by_task.get(name) or Figures(),
    }
    if task is None:
        unknown = ("queue", "priority", "max_attempts", "timeout", "schedule", "doc", "schema")
        return told | dict.fromkeys(unknown)
    return told | {
        "queue": task.defaults.queue or "default",
        "priority": task.defaults.priority or 0,
        "max_attempts": task.defaults.max_attempts,
        "timeout": task.conduct.timeout,
        "schedule": None if task.schedule is None else in_words(task.schedule),
        "doc": inspect.getdoc(task.handler),
        "schema": task.arguments.json_schema(),
    }
