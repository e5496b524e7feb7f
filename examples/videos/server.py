"""The server: uploads, media, and the dashboard for operators. The worker runs inside.

uvicorn examples.videos.server:server
"""

import logging
import mimetypes
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4

from fastapi import FastAPI, HTTPException, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse

from examples.videos import ffmpeg, media
from examples.videos.app import HOME, add_video, app, blobs, prepare
from examples.videos.media import READY, Media
from holdfast.web import dashboard

admin = dashboard(app, title="Videos")  # closed: `holdfast tokens create` makes a key to it


@asynccontextmanager
async def lifespan(server: FastAPI) -> AsyncIterator[None]:
    logging.basicConfig(level=logging.INFO)  # what the worker ran, recovered and pruned
    HOME.mkdir(parents=True, exist_ok=True)
    prepare()
    async with app.worker():
        yield
        admin.state.web.close()  # or its open streams would delay the server's end


server = FastAPI(title="Videos", lifespan=lifespan)
server.mount("/admin", admin)


@server.post("/media", status_code=201)
async def upload(request: Request, name: str) -> dict[str, Any]:
    """Take the request's body as a file of its content type. An image is ready with the answer; a film
    is stored, and the answer has the job that transcodes it."""
    kind = request.headers.get("content-type", "")
    with tempfile.NamedTemporaryFile(dir=HOME, prefix="upload-") as file:
        async for chunk in request.stream():
            file.write(chunk)
        file.flush()
        return await run_in_threadpool(take, name, kind, Path(file.name))


def take(name: str, content_type: str, file: Path) -> dict[str, Any]:
    makers = {"image": add_image, "video": add_film}
    make = makers.get(content_type.partition("/")[0])
    if make is None:
        raise HTTPException(415, f"{content_type!r} is neither image/... nor video/...")
    id = uuid4().hex
    original = f"originals/{id}{mimetypes.guess_extension(content_type) or ''}"
    make(id, name, original, content_type, file)
    return show(id)


def add_image(id: str, name: str, original: str, content_type: str, file: Path) -> None:
    with tempfile.TemporaryDirectory(dir=HOME, prefix="image-") as scratch:
        small = Path(scratch) / "web.jpg"
        try:
            ffmpeg.shrink(file, small)
        except ffmpeg.CannotConvert as problem:
            raise HTTPException(422, f"{name}: {problem}") from None
        blobs.put(f"web/{id}.jpg", small, "image/jpeg")
    blobs.put(original, file, content_type)
    row = Media(
        id=id, name=name, original_path=original, web_path=f"web/{id}.jpg", processing=READY
    )
    with media.transaction(app.url) as tx:
        media.add(tx, row)


def add_film(id: str, name: str, original: str, content_type: str, file: Path) -> None:
    blobs.put(original, file, content_type)
    add_video(id, name, original)


def find(id: str) -> Media:
    with media.transaction(app.url) as tx:
        found = media.get(tx, id)
    if found is None:
        raise HTTPException(404, f"there is no media {id}")
    return found


@server.get("/media/{id}")
def show(id: str) -> dict[str, Any]:
    """Return the row and the state of its newest job."""
    job = app.jobs.latest(entity=("media", id))
    state = job and {
        name: getattr(job, name)
        for name in ("id", "status", "attempts", "max_attempts", "progress", "error")
    }
    return {**asdict(find(id)), "job": state}


@server.get("/media/{id}/file")
def file(id: str) -> FileResponse:
    """Return the file that browsers play or show."""
    row = find(id)
    found = blobs.find(row.web_path) if row.web_path else None
    if found is None:
        raise HTTPException(409, f"media {id} is not ready: GET /media/{id} shows its progress")
    path, content_type = found
    return FileResponse(path, media_type=content_type)


@server.delete("/media/{id}", status_code=204)
def delete(id: str) -> None:
    """Delete the row with its jobs, which ends a running job, and then the blobs."""
    row = find(id)
    with media.transaction(app.url) as tx:
        media.delete(tx, id)
    blobs.delete(row.original_path)
    blobs.delete(row.web_path or f"web/{id}.mp4")
