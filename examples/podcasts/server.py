"""The web server: takes imports, shows their progress, and runs the jobs itself.

uvicorn examples.podcasts.server:api        # as many as you like, on the same file
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, HttpUrl

from examples.podcasts import store
from examples.podcasts.app import app, podcast_import
from holdfast import Job
from holdfast.web import dashboard


@asynccontextmanager
async def lifespan(server: FastAPI) -> AsyncIterator[None]:
    app.migrate()
    store.prepare()
    async with app.worker():  # handlers run on the server's own event loop
        yield


api = FastAPI(title="Podcasts", lifespan=lifespan)
api.mount("/admin/jobs", dashboard(app))


class ImportRequest(BaseModel):
    url: HttpUrl


@api.post("/podcasts/import", status_code=202)
def import_podcast(body: ImportRequest) -> dict[str, Any]:
    """Insert the podcast and its job in one transaction. A repeated request returns the same job."""
    with store.transaction() as connection:
        podcast_id = store.find_or_add(connection, str(body.url))
        job = podcast_import.using(
            key=podcast_id, entity=("podcast", podcast_id), tx=connection
        ).enqueue(podcast_id=podcast_id)
    return {"id": podcast_id, "job": shown(job)}


@api.get("/podcasts/{podcast_id}")
def show_podcast(podcast_id: str) -> dict[str, Any]:
    found = store.find(podcast_id)
    if found is None:
        raise HTTPException(404, f"there is no podcast {podcast_id}")
    job = app.jobs.latest(entity=("podcast", podcast_id), type="podcast_import")
    return {**dict(found), "job": None if job is None else shown(job)}


def shown(job: Job) -> dict[str, Any]:
    """Return the fields of a job that clients see."""
    return {
        "id": job.id,
        "type": job.type,
        "status": job.status,
        "payload": job.payload,
        "retries": max(0, job.attempts - 1),
        "error": job.error,
        "progress": job.progress,
        "message": job.message,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "completed_at": job.completed_at,
    }
