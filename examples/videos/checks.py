"""End-to-end checks of the application: each function does something and returns what it observed.

`python -m examples.videos` checks the main claims; tests/examples/test_videos.py checks more of them.
"""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.videos import sample_media
from examples.videos.testbed import VideoTestbed
from holdfast import Attempt, Job

MediaInfo = dict[str, Any]
HOUR = 3600.0


@dataclass(frozen=True)
class Uploads:
    image: MediaInfo  #: as its upload was answered
    small: Path  #: what browsers get of it
    answered: MediaInfo  #: the first film, as its upload was answered
    job: Job  #: its row at that moment
    media: MediaInfo  #: when it was ready
    ended: list[Job]  #: of all films, in the order of their uploads
    lines: list[str]  #: what the first one wrote into its log
    served: Path  #: what browsers get of the first film
    content_type: str
    original: bytes  #: the blob beside it
    left: set[Path]  #: scratch folders


def upload(testbed: VideoTestbed) -> Uploads:
    """Upload an image and three films."""
    picture = sample_media.image(testbed.harness.folder / "wide.png", "2000x101")
    image = testbed.upload(picture, "image/png")
    small = _download(testbed, image["id"], "small.jpg")[0]
    answered = testbed.upload(testbed.clip)
    job = testbed.jobs.jobs.get(answered["job"]["id"])
    films = [answered, testbed.upload(testbed.clip), testbed.upload(testbed.clip)]
    ready = [testbed.finished(film["id"]) for film in films]
    served, content_type = _download(testbed, answered["id"], "served.mp4")
    return Uploads(
        image=image,
        small=small,
        answered=answered,
        job=job,
        media=ready[0],
        ended=[testbed.jobs.jobs.get(film["job"]["id"]) for film in films],
        lines=testbed.log_of(answered["job"]["id"], 3),
        served=served,
        content_type=content_type,
        original=(testbed.blobs / ready[0]["original_path"]).read_bytes(),
        left=set(testbed.workdirs()),
    )


def one_at_a_time(jobs: list[Job]) -> bool:
    """Return whether each job began after the previous one had ended, in the order of uploads."""
    times = [time for job in jobs for time in (job.started_at, job.completed_at)]
    return times == sorted(time for time in times if time is not None)


def _download(testbed: VideoTestbed, id: str, name: str) -> tuple[Path, str]:
    answer = testbed.client.get(f"/media/{id}/file").raise_for_status()
    path = testbed.harness.folder / name
    path.write_bytes(answer.content)
    return path, answer.headers["content-type"]


def refuse(testbed: VideoTestbed) -> dict[str, int]:
    """Send invalid uploads and requests; returns the status codes."""
    client = testbed.client
    testbed.jobs.queues.pause("default")
    waiting = testbed.upload(testbed.clip)["id"]
    text = {"Content-Type": "text/plain"}
    image = {"Content-Type": "image/png"}
    answers = {
        "text": client.post("/media?name=a.txt", content=b"text", headers=text),
        "no image": client.post("/media?name=a.png", content=b"no image", headers=image),
        "not there": client.get("/media/nobody"),
        "not ready": client.get(f"/media/{waiting}/file"),
    }
    client.delete(f"/media/{waiting}").raise_for_status()
    testbed.jobs.queues.resume("default")
    return {name: answer.status_code for name, answer in answers.items()}


@dataclass(frozen=True)
class Failures:
    broken: MediaInfo  #: media whose film cannot be read, when its job had failed
    runs: list[Attempt]  #: its runs
    missing: MediaInfo  #: media whose source blob was gone
    closed: dict[str, int]  #: status codes without a token, or with too small a role
    listed: MediaInfo  #: what the operator sees of failed jobs
    page: str  #: the dashboard
    retried: MediaInfo  #: the job, as the retry was answered
    unknown: int  #: status code of a retry of an unknown job
    mended: MediaInfo  #: the media, when its job had run again


def fail(testbed: VideoTestbed) -> Failures:
    """A film that cannot be read, one that is missing, and an operator who retries."""
    rubbish = testbed.harness.folder / "rubbish.mov"
    rubbish.write_bytes(b"no film" * 1000)
    broken = testbed.finished(testbed.upload(rubbish)["id"])
    missing = _lose_source(testbed)
    operator, viewer = testbed.token("operator"), testbed.token("viewer")
    retry = f"/admin/api/v1/jobs/{broken['job']['id']}/retry"
    client = testbed.client
    closed = {
        "list": client.get("/admin/api/v1/jobs").status_code,
        "retry": client.post(retry).status_code,
        "retry by a viewer": client.post(retry, headers=viewer).status_code,
    }
    runs = testbed.jobs.jobs.attempts(broken["job"]["id"])
    listed = client.get("/admin/api/v1/jobs", params={"status": "failed"}, headers=viewer).json()
    (testbed.blobs / broken["original_path"]).write_bytes(testbed.clip.read_bytes())
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
        mended=testbed.finished(broken["id"]),
    )


def _lose_source(testbed: VideoTestbed) -> MediaInfo:
    """Delete the blob of a film before its job begins."""
    testbed.jobs.queues.pause("default")
    media = testbed.upload(testbed.clip)
    (testbed.blobs / media["original_path"]).unlink()
    testbed.jobs.queues.resume("default")
    return testbed.finished(media["id"])


@dataclass(frozen=True)
class Kill:
    command: str  #: how ffmpeg was called
    ffmpeg_gone: bool
    after: list[tuple[str, int]]  #: status and attempts of the two jobs, while no server ran
    pending: int  #: how many films waited, then
    orphan: Path  #: the scratch folder that the killed run left
    media: list[MediaInfo]  #: the two films in the end
    job: Job  #: of the first
    progress: list[float]  #: of its second run, each time that it was read
    log: str  #: of the second server


def kill(testbed: VideoTestbed) -> Kill:
    """kill -9 of the server while ffmpeg transcodes a film and another waits."""
    films = [testbed.upload(testbed.film), testbed.upload(testbed.clip)]
    pid, command = _frozen(testbed, films[0])
    testbed.kill()
    gone = testbed.is_gone(pid)
    jobs = [testbed.jobs.jobs.get(film["job"]["id"]) for film in films]
    pending = testbed.jobs.jobs.count(status="pending", type="video_transcode")
    [orphan] = (path for path in testbed.workdirs() if jobs[0].id in path.name)
    testbed.open()
    progress: list[float] = []
    media = [testbed.finished(films[0]["id"], progress), testbed.finished(films[1]["id"])]
    return Kill(
        command=command,
        ffmpeg_gone=gone,
        after=[(job.status, job.attempts) for job in jobs],
        pending=pending,
        orphan=orphan,
        media=media,
        job=testbed.jobs.jobs.get(films[0]["job"]["id"]),
        progress=progress,
        log=testbed.harness.logs(),
    )


def _frozen(testbed: VideoTestbed, media: MediaInfo) -> tuple[int, str]:
    found = testbed.freeze(media["job"]["id"])
    assert found is not None, f"the transcode had ended already: {media}"
    return found


@dataclass(frozen=True)
class Sweep:
    old: bool  #: the folder of a killed run still exists after 6 hours
    young: bool  #: and after 5 hours
    log: str  #: of the server that swept


def sweep(testbed: VideoTestbed, orphan: Path) -> Sweep:
    """Start a server six hours after a killed run; returns what it swept."""
    younger = orphan.with_name(f"{orphan.name}0")  # of another claim of the same job
    younger.mkdir()
    testbed.stop()
    for path, hours in ((orphan, 6.1), (younger, 5)):
        modified = time.time() - hours * HOUR
        os.utime(path, (modified, modified))
    testbed.open()
    testbed.harness.until("the orphan is swept", lambda: not orphan.exists())
    line = "abandoned work directories removed"
    testbed.harness.until("the sweep is logged", lambda: line in testbed.harness.logs())
    return Sweep(old=orphan.exists(), young=younger.exists(), log=testbed.harness.logs())


@dataclass(frozen=True)
class Timeout:
    job: Job
    media: MediaInfo
    ffmpeg_gone: bool


def hang(testbed: VideoTestbed, media: MediaInfo) -> Timeout:
    """The original is still there: it is transcoded again, and this time ffmpeg hangs."""
    work = {
        "media_id": media["id"],
        "source_path": media["original_path"],
        "target_path": media["web_path"],
    }
    for timeout in (2, 4, 8, 16, 32):  # a busy machine starts ffmpeg late
        job = testbed.jobs.enqueue(
            "video_transcode",
            work,
            entity=("media", media["id"]),
            timeout=timeout,
            max_attempts=1,
        )
        if found := testbed.freeze(job.id):
            break
    else:
        raise AssertionError("ffmpeg did not run within 32 s")
    ended = testbed.finished(media["id"])
    return Timeout(
        job=testbed.jobs.jobs.get(job.id), media=ended, ffmpeg_gone=testbed.is_gone(found[0])
    )


@dataclass(frozen=True)
class Deletion:
    before: list[int]  #: jobs of media that is ready, and of media being transcoded
    after: list[int]
    answers: list[int]  #: status codes of the media afterwards
    ffmpeg_gone: bool
    blobs: list[str]  #: of the two


def delete(testbed: VideoTestbed, ready: MediaInfo) -> Deletion:
    """Media whose job has ended, and media whose film is being transcoded."""
    working = testbed.upload(testbed.film)
    pid, _ = _frozen(testbed, working)
    ids = [ready["id"], working["id"]]

    def jobs() -> list[int]:
        return [testbed.jobs.jobs.count(entity=("media", id)) for id in ids]

    before = jobs()
    for id in ids:
        testbed.client.delete(f"/media/{id}").raise_for_status()
    after = jobs()
    return Deletion(
        before=before,
        after=after,
        answers=[testbed.client.get(f"/media/{id}").status_code for id in ids],
        ffmpeg_gone=testbed.is_gone(pid),
        blobs=[str(path) for id in ids for path in testbed.blobs.rglob(f"{id}*")],
    )


def check_retention(testbed: VideoTestbed) -> dict[str, MediaInfo]:
    """Observe a week and a month with a fake clock, in a folder and a process of its own."""
    testbed.environment["VIDEOS_HOME"] = str(testbed.harness.folder / "retention")
    found: dict[str, MediaInfo] = json.loads(
        testbed.command("examples.videos.retention_checks", str(testbed.clip))
    )
    return found
