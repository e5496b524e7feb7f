"""The application, tried out: each scene does something to it and tells what it saw.

`python -m examples.videos` says which sentences that proves; tests/examples/test_videos.py asks more.
"""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.videos import clips
from examples.videos.studio import Studio
from holdfast import Attempt, Job

Told = dict[str, Any]
HOUR = 3600.0


@dataclass(frozen=True)
class Uploads:
    image: Told  #: as its upload was answered
    small: Path  #: what browsers get of it
    answered: Told  #: the first film, as its upload was answered
    job: Job  #: its row at that moment
    media: Told  #: when it was ready
    ended: list[Job]  #: of all films, in the order of their uploads
    lines: list[str]  #: what the first one wrote into its log
    served: Path  #: what browsers get of the first film
    content_type: str
    original: bytes  #: the blob beside it
    left: set[Path]  #: scratch folders


def upload(studio: Studio) -> Uploads:
    """An image, and three films at once."""
    picture = clips.image(studio.stage.folder / "wide.png", "2000x101")
    image = studio.upload(picture, "image/png")
    small = _download(studio, image["id"], "small.jpg")[0]
    answered = studio.upload(studio.clip)
    job = studio.jobs.jobs.get(answered["job"]["id"])
    films = [answered, studio.upload(studio.clip), studio.upload(studio.clip)]
    told = [studio.finished(film["id"]) for film in films]
    served, content_type = _download(studio, answered["id"], "served.mp4")
    return Uploads(
        image=image,
        small=small,
        answered=answered,
        job=job,
        media=told[0],
        ended=[studio.jobs.jobs.get(film["job"]["id"]) for film in films],
        lines=studio.log_of(answered["job"]["id"], 3),
        served=served,
        content_type=content_type,
        original=(studio.blobs / told[0]["original_path"]).read_bytes(),
        left=set(studio.workdirs()),
    )


def one_at_a_time(jobs: list[Job]) -> bool:
    """Each began after the one before had ended, in the order of their uploads."""
    times = [moment for job in jobs for moment in (job.started_at, job.completed_at)]
    return times == sorted(moment for moment in times if moment is not None)


def _download(studio: Studio, id: str, name: str) -> tuple[Path, str]:
    answer = studio.client.get(f"/media/{id}/file").raise_for_status()
    path = studio.stage.folder / name
    path.write_bytes(answer.content)
    return path, answer.headers["content-type"]


def refuse(studio: Studio) -> dict[str, int]:
    """What is answered to uploads and requests that make no sense."""
    client = studio.client
    studio.jobs.queues.pause("default")
    waiting = studio.upload(studio.clip)["id"]
    text = {"Content-Type": "text/plain"}
    image = {"Content-Type": "image/png"}
    answers = {
        "text": client.post("/media?name=a.txt", content=b"text", headers=text),
        "no image": client.post("/media?name=a.png", content=b"no image", headers=image),
        "not there": client.get("/media/nobody"),
        "not ready": client.get(f"/media/{waiting}/file"),
    }
    client.delete(f"/media/{waiting}").raise_for_status()
    studio.jobs.queues.resume("default")
    return {name: answer.status_code for name, answer in answers.items()}


@dataclass(frozen=True)
class Failures:
    broken: Told  #: media whose film cannot be read, when its job had failed
    runs: list[Attempt]  #: its runs
    missing: Told  #: media whose source blob was gone
    closed: dict[str, int]  #: what who has no token, or too small a one, is answered
    listed: Told  #: what the operator sees of failed jobs
    page: str  #: the dashboard
    retried: Told  #: the job, as the retry was answered
    unknown: int  #: what a retry of no job is answered
    mended: Told  #: the media, when its job had run again


def fail(studio: Studio) -> Failures:
    """A film that cannot be read, one that is gone, and an operator who looks after them."""
    rubbish = studio.stage.folder / "rubbish.mov"
    rubbish.write_bytes(b"no film" * 1000)
    broken = studio.finished(studio.upload(rubbish)["id"])
    missing = _lose_source(studio)
    operator, viewer = studio.token("operator"), studio.token("viewer")
    retry = f"/admin/api/v1/jobs/{broken['job']['id']}/retry"
    client = studio.client
    closed = {
        "list": client.get("/admin/api/v1/jobs").status_code,
        "retry": client.post(retry).status_code,
        "retry by a viewer": client.post(retry, headers=viewer).status_code,
    }
    runs = studio.jobs.jobs.attempts(broken["job"]["id"])
    listed = client.get("/admin/api/v1/jobs", params={"status": "failed"}, headers=viewer).json()
    (studio.blobs / broken["original_path"]).write_bytes(studio.clip.read_bytes())
    retried = client.post(retry, headers=operator).raise_for_status().json()
    absent = retry.replace(broken["job"]["id"], "00000000-0000-7000-8000-000000000000")
    return Failures(
        broken=broken,
        runs=runs,
        missing=missing,
        closed=closed,
        listed=listed,
        page=client.get("/admin/").raise_for_status().text,
        retried=retried,
        unknown=client.post(absent, headers=operator).status_code,
        mended=studio.finished(broken["id"]),
    )


def _lose_source(studio: Studio) -> Told:
    """Its blob is deleted before its job begins."""
    studio.jobs.queues.pause("default")
    media = studio.upload(studio.clip)
    (studio.blobs / media["original_path"]).unlink()
    studio.jobs.queues.resume("default")
    return studio.finished(media["id"])


@dataclass(frozen=True)
class Kill:
    command: str  #: how ffmpeg was called
    ffmpeg_gone: bool
    after: list[tuple[str, int]]  #: status and attempts of the two jobs, while no server ran
    pending: int  #: how many films waited, then
    orphan: Path  #: the scratch folder that the killed run left
    media: list[Told]  #: the two films in the end
    job: Job  #: of the first
    progress: list[float]  #: how far its second run was, whenever somebody looked
    log: str  #: of the second server


def kill(studio: Studio) -> Kill:
    """kill -9 of the server while ffmpeg transcodes a film and another waits."""
    films = [studio.upload(studio.film), studio.upload(studio.clip)]
    pid, command = _frozen(studio, films[0])
    studio.kill()
    gone = studio.is_gone(pid)
    jobs = [studio.jobs.jobs.get(film["job"]["id"]) for film in films]
    pending = studio.jobs.jobs.count(status="pending", type="video_transcode")
    [orphan] = (path for path in studio.workdirs() if jobs[0].id in path.name)
    studio.open()
    progress: list[float] = []
    media = [studio.finished(films[0]["id"], progress), studio.finished(films[1]["id"])]
    return Kill(
        command=command,
        ffmpeg_gone=gone,
        after=[(job.status, job.attempts) for job in jobs],
        pending=pending,
        orphan=orphan,
        media=media,
        job=studio.jobs.jobs.get(films[0]["job"]["id"]),
        progress=progress,
        log=studio.stage.logs(),
    )


def _frozen(studio: Studio, media: Told) -> tuple[int, str]:
    found = studio.freeze(media["job"]["id"])
    assert found is not None, f"the transcode had ended already: {media}"
    return found


@dataclass(frozen=True)
class Sweep:
    old: bool  #: is a folder of a killed run there, 6 hours later?
    young: bool  #: and another, an hour before that?
    log: str  #: of the server that found them


def sweep(studio: Studio, orphan: Path) -> Sweep:
    """What a killed run left behind, found by a server that starts six hours later."""
    younger = orphan.with_name(f"{orphan.name}0")  # of another claim of the same job
    younger.mkdir()
    studio.stop()
    for path, hours in ((orphan, 6.1), (younger, 5)):
        moment = time.time() - hours * HOUR
        os.utime(path, (moment, moment))
    studio.open()
    studio.stage.until("the orphan is swept", lambda: not orphan.exists())
    told = "abandoned work directories removed"
    studio.stage.until("the sweep is told of", lambda: told in studio.stage.logs())
    return Sweep(old=orphan.exists(), young=younger.exists(), log=studio.stage.logs())


@dataclass(frozen=True)
class Timeout:
    job: Job
    media: Told
    ffmpeg_gone: bool


def hang(studio: Studio, media: Told) -> Timeout:
    """The original is still there: it is transcoded again, and this time ffmpeg hangs."""
    work = {
        "media_id": media["id"],
        "source_path": media["original_path"],
        "target_path": media["web_path"],
    }
    for timeout in (2, 4, 8, 16, 32):  # on a busy machine it takes a while until ffmpeg runs at all
        job = studio.jobs.enqueue(
            "video_transcode",
            work,
            entity=("media", media["id"]),
            timeout=timeout,
            max_attempts=1,
        )
        if found := studio.freeze(job.id):
            break
    else:
        raise AssertionError("ffmpeg did not run within 32 s")
    told = studio.finished(media["id"])
    return Timeout(
        job=studio.jobs.jobs.get(job.id), media=told, ffmpeg_gone=studio.is_gone(found[0])
    )


@dataclass(frozen=True)
class Deletion:
    before: list[int]  #: how many jobs there were of media that is ready, and of media in work
    after: list[int]
    answers: list[int]  #: what who looks for the media is answered then
    ffmpeg_gone: bool
    blobs: list[str]  #: of the two


def delete(studio: Studio, ready: Told) -> Deletion:
    """Media whose job has ended, and media whose film is being transcoded."""
    working = studio.upload(studio.film)
    pid, _ = _frozen(studio, working)
    ids = [ready["id"], working["id"]]

    def jobs() -> list[int]:
        return [studio.jobs.jobs.count(entity=("media", id)) for id in ids]

    before = jobs()
    for id in ids:
        studio.client.delete(f"/media/{id}").raise_for_status()
    after = jobs()
    return Deletion(
        before=before,
        after=after,
        answers=[studio.client.get(f"/media/{id}").status_code for id in ids],
        ffmpeg_gone=studio.is_gone(pid),
        blobs=[str(path) for id in ids for path in studio.blobs.rglob(f"{id}*")],
    )


def wait_months(studio: Studio) -> dict[str, Told]:
    """A week and a month, by a clock that is moved; in a folder and a process of its own."""
    studio.environment["VIDEOS_HOME"] = str(studio.stage.folder / "months")
    found: dict[str, Told] = json.loads(studio.command("examples.videos.months", str(studio.clip)))
    return found
