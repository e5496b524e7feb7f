"""Uploaded films are transcoded for browsers by a job that survives the server, one film at a time.

The server is in server.py; this module has everything about jobs.
"""

import os
from pathlib import Path

from examples.videos import ffmpeg, media
from examples.videos.blobs import Blobs
from examples.videos.media import PROCESSING, Media
from holdfast import Context, Holdfast, Job, RunEnd

HOME = Path(os.environ.get("VIDEOS_HOME", "videos-data")).absolute()

app = Holdfast(f"sqlite:///{HOME / 'videos.db'}", workdir=HOME / "scratch")
blobs = Blobs(HOME / "blobs")


def prepare() -> None:
    """Make the tables if they do not exist."""
    app.migrate()
    with media.transaction(app.url) as tx:
        tx.executescript(media.TABLES)


def update_media(end: RunEnd) -> None:
    """Hook: write the media row and the job's end in one transaction, so that they never disagree."""
    if not end.final:
        return  # it is retried; until then the media does not change
    job = end.job
    with media.transaction(app.url) as tx:
        if end.error is None:
            media.ready(tx, job.payload["media_id"], job.payload["target_path"])
        else:
            media.failed(tx, job.payload["media_id"])
        end.finish(tx=tx)


def delete_source(job: Job) -> None:
    """Delete the source of a film that failed 30 days ago. If that fails, this raises, and the job
    stays: it is the only record of the blob."""
    if job.status == "failed":
        blobs.delete(job.payload["source_path"])


@app.task(
    process=True,  # so that a timeout, a cancel or a killed server ends ffmpeg, too
    concurrency=1,  # ffmpeg keeps every core busy by itself
    max_attempts=3,
    timeout="5m",
    on_success=update_media,
    on_failure=update_media,
    retention={"completed": "7d", "failed": "30d"},
    on_prune=delete_source,
)
def video_transcode(ctx: Context, media_id: str, source_path: str, target_path: str) -> int:
    """Download, transcode, upload. May be run again from the start at any time."""
    film, ready = ctx.workdir / "input.tmp", ctx.workdir / "output.mp4"
    ctx.log.info("downloading %s", source_path)  # kept with the job
    blobs.get(source_path, film)
    ctx.log.info("transcoding media %s", media_id)
    ffmpeg.transcode(film, ready, lambda percent: ctx.progress(percent, "transcoding"))
    ctx.log.info("uploading to %s", target_path)
    blobs.put(target_path, ready, "video/mp4")
    return ready.stat().st_size


def add_video(id: str, name: str, original_path: str) -> Job:
    """Insert the row and its job in one transaction. The worker wakes when it is committed."""
    with media.transaction(app.url) as tx:
        media.add(
            tx,
            Media(
                id=id,
                name=name,
                original_path=original_path,
                web_path=None,
                processing=PROCESSING,
            ),
        )
        return video_transcode.using(entity=("media", id), tx=tx).enqueue(
            media_id=id, source_path=original_path, target_path=f"web/{id}.mp4"
        )
