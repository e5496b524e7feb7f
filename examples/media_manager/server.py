"""The server: routes beside Holdfast's own REST, dashboard and events, and a worker inside.

Holdfast is mounted at the root, so that GET and DELETE /api/v1/jobs, retry, /health and /metrics are
its own. POST /api/v1/jobs is ours, since here priorities go from 1, the first, to 10.
"""

import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import FileResponse, JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from examples.media_manager import store
from examples.media_manager.app import (
    app,
    db,
    players,
    provider,
    scan_library,
    schedule_scan,
    settings,
)
from examples.media_manager.settings import Level, inherited, to_priority
from holdfast import InvalidInput, Job
from holdfast.web import dashboard, follow_link

PAGE = Path(__file__).parent / "page"
FILES = {"": "library.html", "library.js": "library.js", "library.css": "library.css"}
POLICY = "; ".join(
    (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'",
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    )
)


def authenticate(request: Any) -> tuple[str, str] | None:
    """Return the caller of a request: for Holdfast's routes and for ours. A page of another site cannot
    send this header, so it cannot act in the name of a user."""
    given = request.headers.get("x-api-key", "")
    right = hmac.compare_digest(given.encode(), settings.api_key.encode())
    return ("owner", "operator") if right else None


def owner(request: Request) -> None:
    if authenticate(request) is None:
        raise HTTPException(401, "send the header X-Api-Key: apiKey of the settings")


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    settings.cache.mkdir(parents=True, exist_ok=True)
    db.create()
    async with app.worker(concurrency=settings.worker.concurrency):
        yield
    jobs.state.web.close()
    provider.close()
    players.close()
    db.close()
    app.close()


server = FastAPI(lifespan=lifespan, title="Media manager", docs_url=None, redoc_url=None)
jobs = dashboard(app, authorize=authenticate, title="Media manager")
mine = [Depends(owner)]


class NewJob(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: str
    priority: Annotated[int, Field(ge=1, le=10)] | None = None
    payload: dict[str, Any] = {}


@server.post("/api/v1/jobs", status_code=201, dependencies=mine)
def create_job(new: NewJob) -> dict[str, Any]:
    """Enqueue a job; without a priority, manual jobs go first."""
    if new.type not in app.tasks:
        raise InvalidInput(f"no task {new.type!r}: there are {', '.join(sorted(app.tasks))}")
    level = new.priority or inherited(bool(new.payload.get("manual")))
    entity = new.payload.get("entity_type"), new.payload.get("entity_id")
    about = {} if None in entity else {"entity": entity}
    job = app.enqueue(new.type, new.payload, priority=to_priority(level), **about)
    return described(job, level)


def described(job: Job, level: int) -> dict[str, Any]:
    """Return a job with the path at which a browser may follow it for an hour (`wss://HOST` + path)."""
    fields = ("id", "type", "status", "payload", "entity_type", "entity_id", "created")
    follow = follow_link(app, job, result=True)
    return {name: getattr(job, name) for name in fields} | {"priority": level, "follow": follow}


class Library(BaseModel):
    path: str


@server.post("/api/v1/libraries", status_code=201, dependencies=mine)
def add_library(new: Library) -> dict[str, Any]:
    """Insert the library and its scans in one transaction."""
    if not Path(new.path).is_dir():
        raise InvalidInput(f"path {new.path!r} is no folder of this machine")
    with db.begin() as tx:
        library = store.add_library(tx, new.path)
        schedule_scan(tx, library)
    return {"id": library, "path": new.path}


@server.post("/webhooks/libraries/{id}", status_code=202, dependencies=mine)
def webhook(id: int) -> dict[str, Any]:
    """Scan a library that has new files. A hundred calls in a row are one scan."""
    with db.begin() as tx:
        store.find_library(tx, id)
    job = scan_library.using(
        key=f"webhook:{id}", priority=to_priority(Level.WEBHOOK), entity=("library", id)
    ).enqueue("library", id)
    return described(job, Level.WEBHOOK)


@server.get("/api/v1/media", dependencies=mine)
def list_media() -> list[dict[str, Any]]:
    with db.begin() as tx:
        return store.list_media(tx)


@server.delete("/api/v1/media/{id}", status_code=204, dependencies=mine)
def delete_media(id: int) -> None:
    with db.begin() as tx:
        store.delete_media(tx, id)


@server.get("/library/{name:path}", include_in_schema=False)
def page(name: str) -> FileResponse:
    """Return the page, which is public: it asks for the key."""
    if name not in FILES:
        raise HTTPException(404)
    headers = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"}
    return FileResponse(PAGE / FILES[name], headers=headers)


def explain(_: Request, problem: Exception) -> JSONResponse:
    [status] = [code for kind, code in STATUS.items() if isinstance(problem, kind)]
    return JSONResponse({"detail": str(problem)}, status)


STATUS: dict[type[Exception], int] = {
    InvalidInput: 422,
    store.EntityGone: 404,
    store.AlreadyExists: 409,
}
for kind in STATUS:
    server.add_exception_handler(kind, explain)
server.mount("/", jobs)  # last: all other paths are Holdfast's


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(server, host="127.0.0.1", port=8600, ws_per_message_deflate=False)
