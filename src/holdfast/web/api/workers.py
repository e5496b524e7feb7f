"""Workers, as they report themselves."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import Path
from pydantic import BaseModel

from holdfast.monitoring.snapshot import Snapshot
from holdfast.monitoring.worker_status import UnreadableTask, WorkerJob
from holdfast.web.api.parameters import Web
from holdfast.web.models import Done
from holdfast.web.problems import Refusal
from holdfast.web.replies import Json
from holdfast.web.routing import Routes
from holdfast.web.security.permissions import Permission

routes = Routes("workers")
WorkerId = Annotated[str, Path(max_length=300)]


class Worker(BaseModel):
    id: str
    state: Literal["live", "draining", "silent", "left", "dead"]
    host: str | None
    pid: int | None
    queues: list[str]
    tasks: list[str] | None
    slots: int | None
    running: int | None
    jobs: list[WorkerJob]
    started_at: datetime
    beat_at: datetime
    beat_age: float
    left_at: datetime | None
    died_at: datetime | None
    version: str | None
    app_version: str | None
    memory: int | None = None
    silent_for: float | None = None
    overdue: list[str] = []
    unreadable: list[UnreadableTask] = []
    cannot_write_for: float | None = None


class Stacks(BaseModel):
    asked_at: datetime | None
    at: datetime | None
    text: str | None


@routes.get("/workers", may=Permission.JOBS_READ, answer={"workers": list[Worker]})
def list_workers(web: Web) -> Json:
    """Every worker that has a row, dead ones too."""
    return Json({"workers": Snapshot(web.app.engine).workers})


@routes.post("/workers/{id}/stacks", may=Permission.WORKERS_OPERATE, answer=Done, status=202)
def ask_stacks(web: Web, id: WorkerId) -> Json:
    """Ask a worker for the stacks of its runs; it writes them with its next heartbeat."""
    if not web.app.engine.ask_stacks(_storable(id)):
        raise Refusal(404, f"no worker {id[:100]!r} lives")
    return Json({"done": True}, status_code=202)


@routes.get("/workers/{id}/stacks", may=Permission.JOBS_PAYLOAD, answer=Stacks)
def get_stacks(web: Web, id: WorkerId) -> Json:
    """The stacks of a worker's runs when it was last asked for them."""
    found = web.app.engine.stacks(_storable(id))
    if found is None:
        raise Refusal(404, f"no worker {id[:100]!r} is remembered")
    return Json(found._asdict())


def _storable(id: str) -> str:
    """PostgreSQL accepts no NUL in a text."""
    return id.replace("\x00", "")
