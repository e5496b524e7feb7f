"""Tasks: their options, and how their runs went."""

import inspect
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field

from holdfast.engine.engine import Engine
from holdfast.errors import UnknownTask
from holdfast.monitoring import metrics
from holdfast.monitoring.snapshot import CAP, Snapshot
from holdfast.monitoring.stats import grouped
from holdfast.schedules.next_run import in_words
from holdfast.tasks.task import Task as RegisteredTask
from holdfast.web.api.parameters import PathName, Web, Window
from holdfast.web.models import Figures, Point
from holdfast.web.replies import Json
from holdfast.web.routing import Routes
from holdfast.web.security.permissions import Permission

routes = Routes("tasks")
_LATELY = 3600  # seconds for which the list has a figure of each minute
_MOST = 100  # tasks that get a line of their own figures


class Task(BaseModel):
    name: str
    queue: str | None
    priority: int | None
    max_attempts: int | None
    timeout: float | None
    schedule: str | None
    concurrency: int | None
    rate: str | None
    doc: str | None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")]
    registered: bool
    workers: int
    figures: Figures


class ListedTask(Task):
    lately: list[int] = Field(description="Finished in each minute of the last hour; or empty")


class Bar(BaseModel):
    from_: Annotated[float, Field(alias="from")]
    to: float
    count: int


class Histograms(BaseModel):
    wait: list[Bar]
    run: list[Bar]


class WholeTask(Task):
    series: list[Point]
    histograms: Histograms


@routes.get("/tasks", may=Permission.JOBS_READ, answer={"tasks": list[ListedTask]})
def list_tasks(web: Web, window: Window = "1h") -> Json:
    """Every task that is registered here, known to a live worker, or ended a run in the window."""
    engine: Engine = web.app.engine
    report = _Report(web, window)
    start = metrics.since(report.now, _LATELY)
    found: list[dict[str, Any]] = []
    for name in report.names:
        points: list[metrics.Point] = []
        if name in report.figures and len(found) < _MOST:
            points = metrics.whole_series(engine.series(start, type=name), start, report.now)
        found.append(report.of(name) | {"lately": [point.finished for point in points]})
    return Json({"tasks": found})


@routes.get("/tasks/{name:path}", may=Permission.JOBS_READ, answer=WholeTask)
def get_task(web: Web, name: PathName, window: Window = "1h") -> Json:
    """A task, with its series of minutes and the distribution of its times."""
    report = _Report(web, window)
    if name not in report.names:
        raise UnknownTask(f"no task {name!r} is registered, known to a worker, or ran lately")
    totals = [total for total in report.totals if total.type == name]
    waits = metrics.merge(total.waits for total in totals)
    runs = metrics.merge(total.runs for total in totals)
    points = web.app.engine.series(report.start, type=name)
    found = report.of(name) | {
        "series": metrics.whole_series(points, report.start, report.now),
        "histograms": {"wait": _bars(waits), "run": _bars(runs)},
    }
    return Json(found)


def _bars(histogram: metrics.Histogram) -> list[dict[str, Any]]:
    return [
        {
            "from": metrics.FIRST * metrics.GROWTH ** (bucket - 1) if bucket else 0.0,
            "to": metrics.FIRST * metrics.GROWTH**bucket,
            "count": count,
        }
        for bucket, count in sorted(histogram.items())
    ]


class _Report:
    """The options and figures of all tasks, in a window."""

    def __init__(self, web: Any, window: str) -> None:
        engine: Engine = web.app.engine
        snapshot, length = Snapshot(engine), metrics.length_of(window)
        self.tasks: Mapping[str, RegisteredTask[Any, Any]] = web.app.tasks
        self.now = snapshot.now
        self.start = metrics.since(self.now, length)
        self.totals = engine.totals(self.start)
        self.figures = grouped(self.totals, "type", self.tasks, length)
        self.limits = {limit.name: limit for limit in engine.limits(cap=CAP)}
        self.workers = snapshot.alive
        known = {name for worker in self.workers for name in worker.tasks or ()}
        self.names = sorted({*self.tasks, *known, *self.figures})

    def of(self, name: str) -> dict[str, Any]:
        limit = self.limits.get(name)
        return {
            "name": name,
            "concurrency": limit and limit.concurrency,
            "rate": limit and limit.rate,
            "registered": name in self.tasks,
            "workers": sum(worker.knows(name) for worker in self.workers),
            "figures": self.figures.get(name) or metrics.Figures(),
            **_options(self.tasks.get(name)),
        }


def _options(task: RegisteredTask[Any, Any] | None) -> dict[str, Any]:
    """Return the options of a task that is registered here; all None for any other."""
    if task is None:
        unknown = ("queue", "priority", "max_attempts", "timeout", "schedule", "doc", "schema")
        return dict.fromkeys(unknown)
    return {
        "queue": task.defaults.queue or "default",
        "priority": task.defaults.priority or 0,
        "max_attempts": task.defaults.max_attempts,
        "timeout": task.conduct.timeout,
        "schedule": task.schedule and in_words(task.schedule),
        "doc": inspect.getdoc(task.handler),
        "schema": task.arguments.json_schema(),
    }
