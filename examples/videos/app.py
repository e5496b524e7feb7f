"""Uploaded films become what browsers play: by a job that outlives the server, one film at a time.

The server is in server.py; here is everything that has to do with jobs.
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
    """Make the tables, where there are none."""
    app.migrate()
    with media.transaction(app.url) as tx:
        tx.executescript(media.TABLES)


def tell_media(end: RunEnd) -> None:
    """The media row and the job's end are written together: they never disagree."""
    if not end.final:
        return  # it is tried again: until then nothing has changed for who looks at the media
    job = end.job
    with media.transaction(app.url) as tx:
        if end.error is None:
            media.ready(tx, job.payload["media_id"], job.payload["target_path"])
        else:
            media.failed(tx, job.payload["media_id"])
        end.finish(tx=tx)


def delete_source(job: Job) -> None:
    """Nobody came for a failed film in 30 days. If its source cannot be deleted, this raises, and the
    job stays: it is the only one that knows of the blob."""
    if job.status == "failed":
        blobs.delete(job.payload["source_path"])


@app.task(
    process=True,  # so that a timeout, a cancel or a killed server ends ffmpeg, too
    concurrency=1,  # ffmpeg keeps every core busy by itself
    max_attempts=3,
    timeout="5m",
    on_success=tell_media,
    on_failure=tell_media,
    retention={"completed": "7d", "failed": "30d"},
    on_prune=delete_source,
)
def video_transcode(ctx: Context, media_id: str, source_path: str, target_path: str) -> int:
    """Download, transcode, upload. May be run again from the start at any moment."""
    film, ready = ctx.workdir / "input.tmp", ctx.workdir / "output.mp4"
    ctx.log.info("downloading %s", source_path)  # kept with the job
    blobs.get(source_path, film)
    ctx.log.info("transcoding media %s", media_id)
    ffmpeg.transcode(film, ready, lambda percent: ctx.progress(percent, "transcoding"))
    ctx.log.info("uploading to %s", target_path)
    blobs.put(target_path, ready, "video/mp4")
    return ready.stat().st_size


def add_video(id: str, name: str, original_path: str) -> Job:
    """The row and its job: both, or neither. The worker wakes when they are committed."""
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
