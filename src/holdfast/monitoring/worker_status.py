"""The status of each worker, from its row: what it last reported, and how long ago."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast.engine.engine import Engine
from holdfast.engine.records import WorkerInfo

SILENCE = 15.0  # seconds without a sign of life, after which a worker does not count
GONE = frozenset({"left", "dead"})  #: states of those that will not come back
BEATS = 3  # as many may be missed, by one that was told to beat less often


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerJob:
    id: str
    type: str
    stuck: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableTask:
    """A task whose payloads a worker could not read in the last two minutes."""

    task: str
    error: str  #: names the field
    seconds: float  #: since the first of them


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A worker, as it tells of itself. What it does not tell is None or empty."""

    id: str
    state: str  #: live, draining, silent, left or dead
    host: str | None
    pid: int | None
    queues: list[str]
    tasks: list[str] | None  #: the names that it knows
    slots: int | None
    running: int | None
    jobs: list[WorkerJob]  #: some of those that it runs
    started_at: datetime
    beat_at: datetime
    beat_age: float  #: seconds
    left_at: datetime | None
    died_at: datetime | None
    version: str | None = None  #: of Holdfast
    app_version: str | None = None
    memory: int | None = None  #: bytes
    silent_for: float | None = (
        None  #: seconds that it did not answer its supervisor, if it is too long
    )
    overdue: list[str] = field(default_factory=list)  #: jobs past their timeout, by its supervisor
    unreadable: list[UnreadableTask] = field(default_factory=list)
    cannot_write_for: float | None = None  #: seconds that the database has refused its writes

    @property
    def alive(self) -> bool:
        return self.state in ("live", "draining")

    @property
    def stuck(self) -> list[str]:
        """Jobs past their timeout that do not end, by its own word or its supervisor's."""
        return [*(job.id for job in self.jobs if job.stuck), *self.overdue]

    def serves(self, queue: str) -> bool:
        return self.state == "live" and (not self.queues or queue in self.queues)

    def knows(self, type: str) -> bool:
        return self.tasks is None or type in self.tasks


def view(worker: WorkerInfo, now: datetime) -> WorkerView:
    """What a worker's row says, at this moment."""
    told = json.loads(worker.info)
    age = max(0.0, (now - worker.beat_at).total_seconds())
    return WorkerView(
        id=worker.id,
        state=_state(worker, age, told),
        host=told.get("host"),
        pid=told.get("pid"),
        queues=list(told.get("queues", [])),
        tasks=told.get("tasks"),
        slots=told.get("slots"),
        running=told.get("running"),
        jobs=[
            WorkerJob(id=job["id"], type=job["type"], stuck=bool(job.get("stuck")))
            for job in told.get("jobs", [])
        ],
        started_at=worker.started_at,
        beat_at=worker.beat_at,
        beat_age=age,
        left_at=worker.left_at,
        died_at=worker.died_at,
        version=told.get("version"),
        app_version=told.get("app_version"),
        memory=told.get("memory"),
        silent_for=told.get("silent_for"),
        overdue=list(told.get("overdue", [])),
        unreadable=[
            UnreadableTask(task=one["task"], error=one["error"], seconds=one["seconds"])
            for one in told.get("unreadable", [])
        ],
        cannot_write_for=told.get("cannot_write_for"),
    )


def _state(worker: WorkerInfo, age: float, told: Mapping[str, Any]) -> str:
    if worker.died_at is not None:
        return "left" if worker.left_at is not None else "dead"
    if worker.left_at is not None:
        return "left"
    if age > max(SILENCE, BEATS * (told.get("heartbeat") or 0.0)):
        return "silent"
    return "draining" if told.get("draining") else "live"


def read_workers(engine: Engine) -> list[WorkerView]:
    """Every worker that is remembered, dead ones too."""
    now = engine.now()
    return [view(worker, now) for worker in engine.workers()]
