"""The status of each worker, from its row: what it last reported, and how long ago."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from holdfast.engine.records import WorkerInfo

SILENCE = 15.0  # seconds without a heartbeat, after which a worker counts as silent
GONE = frozenset({"left", "dead"})  #: states of workers that will not come back
BEATS = 3  # heartbeats that may be missed, where they are set to be less frequent


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerJob:
    id: str
    type: str
    stuck: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableTask:
    """A task whose payloads a worker could not read in the last two minutes."""

    task: str
    error: str  #: names the field
    seconds: float  #: since the first of them


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A worker, as it reports itself. What it does not report is None or empty."""

    id: str
    state: str  #: live, draining, silent, left or dead
    host: str | None = None
    pid: int | None = None
    queues: list[str] = field(default_factory=list)
    tasks: list[str] | None = None  #: names of the tasks that it has registered
    slots: int | None = None
    running: int | None = None
    jobs: list[WorkerJob] = field(default_factory=list)  #: some of its running jobs
    started_at: datetime
    beat_at: datetime
    beat_age: float  #: seconds
    left_at: datetime | None
    died_at: datetime | None
    version: str | None = None  #: of Holdfast
    app_version: str | None = None
    memory: int | None = None  #: bytes
    silent_for: float | None = None  #: seconds without an answer to its supervisor, if too long
    overdue: list[str] = field(default_factory=list)  #: jobs past their timeout, by its supervisor
    unreadable: list[UnreadableTask] = field(default_factory=list)
    cannot_write_for: float | None = None  #: seconds that the database has refused its writes

    @property
    def alive(self) -> bool:
        return self.state in ("live", "draining")

    @property
    def stuck(self) -> list[str]:
        """Jobs past their timeout that do not end, as the worker or its supervisor reports."""
        return [*(job.id for job in self.jobs if job.stuck), *self.overdue]

    def serves(self, queue: str) -> bool:
        return self.state == "live" and (not self.queues or queue in self.queues)

    def knows(self, type: str) -> bool:
        return self.tasks is None or type in self.tasks


@cache  # made at the first use: it takes milliseconds, which an import should not
def _view_adapter() -> TypeAdapter[WorkerView]:
    return TypeAdapter(WorkerView)


def view(worker: WorkerInfo, now: datetime) -> WorkerView:
    """Return the status of a worker from its row."""
    info = json.loads(worker.info)
    age = max(0.0, (now - worker.beat_at).total_seconds())
    known = {**asdict(worker), "state": _state(worker, age, info), "beat_age": age}
    try:
        return _view_adapter().validate_python({**info, **known})
    except ValidationError:  # another release wrote the report, in another form
        return _view_adapter().validate_python(known)


def _state(worker: WorkerInfo, age: float, info: Mapping[str, Any]) -> str:
    if worker.left_at is not None:
        return "left"
    if worker.died_at is not None:
        return "dead"
    if age > max(SILENCE, BEATS * (info.get("heartbeat") or 0.0)):
        return "silent"
    return "draining" if info.get("draining") else "live"
