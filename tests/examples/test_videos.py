"""Videos: uploads become what browsers play, by jobs that outlive the server. One long story, read by
many small tests."""

import importlib
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from examples.harness import Harness
from examples.videos import checks, ffmpeg, media, sample_media
from examples.videos.blobs import Blobs
from examples.videos.testbed import VideoTestbed
from holdfast import Status
from holdfast.testing import FakeClock, drain, temporary
from tools.programs import need

pytestmark = pytest.mark.timeout(300)  # the story, told on a busy machine


@dataclass(frozen=True)
class Story:
    clip: bytes
    uploads: checks.Uploads
    refusals: dict[str, int]
    failures: checks.Failures
    kill: checks.Kill
    sweep: checks.Sweep
    hang: checks.Timeout
    deletion: checks.Deletion
    months: dict[str, dict[str, Any]]
    first: dict[str, dict[str, Any]]  #: what is in the first film
    served: bytes  #: its bytes
    image: dict[str, Any]  #: what is in the image


@pytest.fixture(scope="module")
def story() -> Story:
    path = f"{Path(need('ffmpeg')).parent}{os.pathsep}{os.environ['PATH']}"
    with pytest.MonkeyPatch.context() as patch, Harness("videos") as harness:
        patch.setenv("PATH", path)  # where the application looks for it
        with VideoTestbed(harness) as testbed:
            return tell(testbed)


def tell(testbed: VideoTestbed) -> Story:
    testbed.open()
    uploads = checks.upload(testbed)
    refusals = checks.refuse(testbed)
    failures = checks.fail(testbed)
    kill = checks.kill(testbed)
    return Story(
        clip=testbed.clip.read_bytes(),
        uploads=uploads,
        refusals=refusals,
        failures=failures,
        kill=kill,
        sweep=checks.sweep(testbed, kill.orphan),
        hang=checks.hang(testbed, kill.media[1]),
        deletion=checks.delete(testbed, uploads.media),
        months=checks.check_retention(testbed),
        first=sample_media.streams(uploads.served),
        served=uploads.served.read_bytes(),
        image=sample_media.streams(uploads.small)["video"],
    )


# uploads


def test_an_image_is_ready_when_its_upload_is_answered(story: Story) -> None:
    assert (story.uploads.image["processing"], story.uploads.image["job"]) == (0, None)
    assert (story.image["codec_name"], story.image["width"], story.image["height"]) == (
        *("mjpeg", 1920),
        96,
    )


def test_an_upload_of_a_film_makes_its_job(story: Story) -> None:
    answered, job = story.uploads.answered, story.uploads.job
    assert (answered["processing"], answered["web_path"]) == (1, None)
    assert (job.type, job.entity_type, job.entity_id) == (
        *("video_transcode", "media"),
        answered["id"],
    )
    assert job.payload == {
        "media_id": answered["id"],
        "source_path": answered["original_path"],
        "target_path": f"web/{answered['id']}.mp4",
    }
    assert (job.max_attempts, job.error, job.created_at.tzinfo is not None) == (3, None, True)
    assert job.status in (Status.PENDING, Status.RUNNING)


def test_the_upload_starts_the_job_immediately(story: Story) -> None:
    """Its worker looks by itself once in five minutes: it was woken."""
    first = story.uploads.ended[0]
    assert first.started_at is not None
    assert (first.started_at - first.created_at).total_seconds() < 60


def test_the_newest_job_of_a_media_is_found(story: Story) -> None:
    assert story.uploads.media["job"]["id"] == story.uploads.job.id
    assert story.hang.media["job"]["id"] == story.hang.job.id  # a second one of the same media


def test_films_are_transcoded_one_at_a_time_oldest_first(story: Story) -> None:
    assert len(story.uploads.ended) == 3
    assert checks.one_at_a_time(story.uploads.ended)


def test_invalid_uploads_are_refused(story: Story) -> None:
    expected = {"text": 415, "no image": 422, "not there": 404, "not ready": 409}
    assert story.refusals == expected


# the film


def test_the_film_is_h264_and_aac_at_most_1920_wide_of_even_height(story: Story) -> None:
    video, audio = story.first["video"], story.first["audio"]
    assert (video["codec_name"], audio["codec_name"]) == ("h264", "aac")
    assert (video["width"], video["height"]) == (1920, 68)  # of 2560 x 90
    assert b"crf=23.0" in story.served
    assert b"rc_lookahead=40" in story.served  # what preset medium means


def test_a_browser_can_play_before_the_download_ends(story: Story) -> None:
    assert story.served.index(b"moov") < story.served.index(b"mdat")


def test_ffmpeg_is_called_with_the_options_of_the_design(story: Story) -> None:
    wanted = (
        "-c:v libx264 -preset medium -crf 23 -c:a aac -b:a 128k -movflags +faststart "
        "-vf scale='min(1920,iw)':'-2'"
    )
    assert f" {wanted} " in story.kill.command


def test_a_film_that_is_small_enough_keeps_its_size(tmp_path: Path) -> None:
    small = sample_media.film(tmp_path / "small.mov", "320x180", 0.5)
    ffmpeg.transcode(small, tmp_path / "out.mp4", lambda percent: None)
    video = sample_media.streams(tmp_path / "out.mp4")["video"]
    assert (video["width"], video["height"]) == (320, 180)


def test_the_film_is_served_as_mp4_and_the_original_is_kept(story: Story) -> None:
    assert story.uploads.content_type == "video/mp4"
    assert story.uploads.original == story.clip


def test_the_media_row_is_ready_when_the_job_has_completed(story: Story) -> None:
    told = story.uploads.media
    assert (told["processing"], told["job"]["status"]) == (0, "completed")
    assert told["web_path"] == f"web/{told['id']}.mp4"
    done = story.uploads.ended[0]
    assert done.completed_at is not None
    assert (done.error, done.result) == (None, len(story.served))


def test_nothing_is_left_in_the_scratch_folder(story: Story) -> None:
    assert story.uploads.left == set()


def test_the_steps_of_the_job_are_in_its_log(story: Story) -> None:
    told = story.uploads.answered
    assert story.uploads.lines == [
        f"downloading {told['original_path']}",
        f"transcoding media {told['id']}",
        f"uploading to web/{told['id']}.mp4",
    ]


def test_progress_comes_from_ffmpeg(story: Story) -> None:
    assert any(0 < percent < 100 for percent in story.kill.progress)
    assert story.kill.job.progress == 100


@pytest.mark.parametrize(
    ("line", "percent"),
    [
        ("out_time_us=1500000\n", 50.0),
        ("out_time_us=9000000\n", 100.0),
        ("out_time_us=N/A\n", None),
        ("out_time_us=-20\n", None),
        ("out_time=00:00:01.500000\n", None),
        ("progress=continue\n", None),
        ("", None),
    ],
)
def test_progress_lines_of_ffmpeg_are_parsed(line: str, percent: float | None) -> None:
    assert ffmpeg.percent(line, 3.0) == percent


# failures


def test_a_failing_job_is_retried_up_to_max_attempts(story: Story) -> None:
    job = story.failures.broken["job"]
    assert (job["status"], job["attempts"], job["max_attempts"]) == ("failed", 3, 3)
    runs = [(run.attempt, str(run.status)) for run in story.failures.runs]
    assert runs == [(3, "failed"), (2, "retrying"), (1, "retrying")]
    assert "Invalid data found" in job["error"]
    assert "Traceback" in str(story.failures.runs[0].trace)


def test_the_media_row_shows_the_final_failure(story: Story) -> None:
    for told in (story.failures.broken, story.failures.missing):
        assert (told["processing"], told["web_path"]) == (-1, None)


def test_a_missing_source_is_named(story: Story) -> None:
    told = story.failures.missing
    assert told["job"]["attempts"] == 3
    assert f"source blob not found: {told['original_path']}" in told["job"]["error"]


def test_a_hanging_ffmpeg_is_ended_by_the_timeout(story: Story) -> None:
    hang = story.hang
    assert hang.ffmpeg_gone
    assert (hang.job.status, str(hang.job.error)[:12]) == ("failed", "TimeoutError")
    assert hang.media["processing"] == -1


# the operator


def test_the_admin_pages_are_closed_without_a_token(story: Story) -> None:
    assert story.failures.closed == {"list": 401, "retry": 401, "retry by a viewer": 403}


def test_the_operator_sees_jobs_by_status_the_newest_first_with_numbers(story: Story) -> None:
    listed = story.failures.listed
    wanted = [story.failures.missing["job"]["id"], story.failures.broken["job"]["id"]]
    assert [job["id"] for job in listed["jobs"]] == wanted
    numbers = {
        name: listed["stats"][name] for name in ("pending", "running", "completed", "failed")
    }
    assert numbers == {"pending": 0, "running": 0, "completed": 3, "failed": 2}


def test_the_dashboard_is_mounted(story: Story) -> None:
    assert "The dashboard needs JavaScript" in story.failures.page


def test_a_retry_resets_the_attempts_and_runs_immediately(story: Story) -> None:
    retried = story.failures.retried
    assert retried["id"] == story.failures.broken["job"]["id"]
    cleared = [retried[name] for name in ("error", "started_at", "completed_at")]
    assert (retried["status"], retried["attempts"], cleared) == ("pending", 0, [None] * 3)
    assert story.failures.unknown == 404


def test_a_retried_job_makes_the_media_ready(story: Story) -> None:
    mended = story.failures.mended
    assert (mended["processing"], mended["job"]["attempts"]) == (0, 1)
    assert mended["job"]["error"] is None


# kill -9


def test_ffmpeg_ends_with_a_killed_server(story: Story) -> None:
    assert story.kill.ffmpeg_gone


def test_jobs_survive_a_killed_server(story: Story) -> None:
    assert story.kill.after == [("running", 1), ("pending", 0)]
    assert story.kill.pending == 1  # counted by status and type


def test_the_interrupted_job_recovers_on_restart(story: Story) -> None:
    film, job = story.kill.media[0], story.kill.job
    assert (film["processing"], film["job"]["status"]) == (0, "completed")
    assert (job.attempts, job.crashes, job.claim_no) == (
        1,
        0,
        2,
    )  # a kill costs no attempt, and is no crash
    assert "1 jobs of dead workers recovered" in story.kill.log


def test_the_waiting_job_runs_after_the_restart(story: Story) -> None:
    assert story.kill.media[1]["processing"] == 0
    assert "started: 0 recovered, 1 pending" in story.kill.log


def test_orphans_are_swept_after_six_hours_and_not_before(story: Story) -> None:
    assert story.kill.orphan.name == f"{story.kill.job.id}-1"
    assert (story.sweep.old, story.sweep.young) == (False, True)
    assert "1 abandoned work directories removed" in story.sweep.log


# deletion


def test_deleting_a_media_deletes_its_jobs(story: Story) -> None:
    assert (story.deletion.before, story.deletion.after) == ([1, 1], [0, 0])
    assert (story.deletion.answers, story.deletion.blobs) == ([404, 404], [])


def test_a_transcode_ends_when_its_media_is_deleted(story: Story) -> None:
    assert story.deletion.ffmpeg_gone


# months


def test_completed_jobs_are_deleted_after_7_days(story: Story) -> None:
    at = story.months
    assert at["before a week"]["jobs"]["good"] == ["completed", None]
    assert "good" not in at["after a week"]["jobs"]
    assert {"originals/good.mov", "web/good.mp4"} <= set(at["a minute later"]["blobs"])


def test_failed_jobs_are_deleted_after_30_days_and_their_source_first(story: Story) -> None:
    at = story.months
    assert at["before a month"]["jobs"]["bad"] == ["failed", None]
    assert "originals/bad.mov" in at["before a month"]["blobs"]
    assert "bad" not in at["after a month"]["jobs"]
    assert "originals/bad.mov" not in at["after a month"]["blobs"]


def test_a_job_whose_source_cannot_be_deleted_stays_until_it_can(story: Story) -> None:
    status, problem = story.months["after a month"]["jobs"]["stays"]
    assert status == "failed"
    assert problem.startswith(("IsADirectoryError", "PermissionError"))  # Linux, macOS
    assert story.months["a minute later"]["jobs"] == {}


# in this process


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The application's module, with a folder of its own; imported here for the first time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VIDEOS_HOME", str(tmp_path_factory.mktemp("videos")))
        return importlib.import_module("examples.videos.app")


@pytest.fixture
def here(videos: ModuleType) -> Iterator[ModuleType]:
    with temporary(videos.app, clock=FakeClock()):
        videos.prepare()
        yield videos


def row(here: ModuleType, id: str) -> media.Media:
    with media.transaction(here.app.url) as tx:
        found = media.get(tx, id)
    assert found is not None
    return found


def add(here: ModuleType, folder: Path) -> str:
    clip = sample_media.film(folder / "clip.mov", "64x36", 0.3)
    here.blobs.put("originals/a.mov", clip, "video/quicktime")
    job: str = here.add_video("a", "a.mov", "originals/a.mov").id
    return job


def test_the_row_and_the_end_of_the_job_are_one_transaction(
    here: ModuleType, tmp_path: Path
) -> None:
    """The database refuses that the job completes: then the media is not ready, either."""
    add(here, tmp_path)
    with media.transaction(here.app.url) as tx:
        tx.execute(
            "CREATE TRIGGER refuse BEFORE UPDATE ON holdfast_jobs WHEN NEW.status = 'completed' "
            "BEGIN SELECT RAISE(ABORT, 'refused'); END"
        )
    [job] = drain(here.app, raise_errors=False)
    assert (job.status, row(here, "a").processing) == ("retrying", 1)
    with media.transaction(here.app.url) as tx:
        tx.execute("DROP TRIGGER refuse")
    here.app.jobs.retry(job.id)
    [job] = drain(here.app)
    assert (job.status, row(here, "a").processing) == ("completed", 0)


def test_the_row_and_its_job_are_committed_together(here: ModuleType, tmp_path: Path) -> None:
    add(here, tmp_path)
    with pytest.raises(sqlite3.IntegrityError):
        add(here, tmp_path)  # there is such a row already
    assert here.app.jobs.count() == 1


def test_every_deletion_of_the_row_deletes_its_jobs(here: ModuleType, tmp_path: Path) -> None:
    add(here, tmp_path)
    with media.transaction(here.app.url) as tx:
        tx.execute("DELETE FROM media")
    assert here.app.jobs.count() == 0


def test_an_attempt_times_out_after_five_minutes(videos: ModuleType) -> None:
    assert videos.app.tasks["video_transcode"].conduct.timeout == 300


# blobs


def test_a_blob_is_kept_with_its_content_type(tmp_path: Path) -> None:
    blobs, source = Blobs(tmp_path / "blobs"), tmp_path / "a"
    source.write_bytes(b"bytes")
    blobs.put("web/a.mp4", source, "video/mp4")
    found = blobs.find("web/a.mp4")
    assert found is not None
    assert (found[0].read_bytes(), found[1]) == (b"bytes", "video/mp4")
    blobs.get("web/a.mp4", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"bytes"
    for _ in range(2):
        blobs.delete("web/a.mp4")
    assert blobs.find("web/a.mp4") is None
    assert [path for path in blobs.root.rglob("*") if path.is_file()] == []


def test_a_path_that_leads_out_of_the_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="leads out of the store"):
        Blobs(tmp_path / "blobs").get("../secret", tmp_path / "b")
