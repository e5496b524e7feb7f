"""Workers, as they tell of themselves."""

from typing import Annotated, Any

from fastapi import Path

from holdfast.monitoring.worker_status import read_workers
from holdfast.web.api.parameters import Web
from holdfast.web.api.presenting import as_json
from holdfast.web.models import Done
from holdfast.web.problems import Refusal
from holdfast.web.replies import Json
from holdfast.web.responses import Stacks, Workers
from holdfast.web.routing import Routes
from holdfast.web.security.permissions import Permission

routes = Routes("workers")
WorkerId = Annotated[str, Path(max_length=300)]


@routes.get("/workers", may=Permission.JOBS_READ, answer=Workers)
def list_workers(web: Web) -> Json:
    """Every worker that is remembered, dead ones too."""
    return Json(as_json({"workers": read_workers(web.app.engine)}))


@routes.post("/workers/{id}/stacks", may=Permission.WORKERS_OPERATE, answer=Done, status=202)
def ask_stacks(web: Web, id: WorkerId) -> Json:
    """Let a worker tell where its runs stand; it does so with its next beat."""
    if not web.app.engine.ask_stacks(_text(id)):
        raise Refusal(404, f"no worker {id[:100]!r} lives")
    return Json({"done": True}, status_code=202)


@routes.get("/workers/{id}/stacks", may=Permission.JOBS_PAYLOAD, answer=Stacks)
def get_stacks(web: Web, id: WorkerId) -> Json:
    """Where its runs stood when it was last asked."""
    found: Any = web.app.engine.stacks(_text(id))
    if found is None:
        raise Refusal(404, f"no worker {id[:100]!r} is remembered")
    return Json(as_json(found))


def _text(id: str) -> str:
    """PostgreSQL knows no NUL in a text."""
    return id.replace("\x00", "")
