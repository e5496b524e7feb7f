"""python -m examples.videos: the whole application, end to end."""

import sys

from examples.harness import run_harness
from examples.videos import checks, sample_media
from examples.videos.testbed import VideoTestbed


def main() -> int:
    with run_harness("videos") as harness, VideoTestbed(harness) as testbed:
        testbed.open()
        uploads = check_uploads(testbed)
        check_failures(testbed)
        kill = check_kill(testbed)
        check_ends(testbed, kill, uploads)
        check_months(testbed)
    return 0


def check_uploads(testbed: VideoTestbed) -> checks.Uploads:
    check, seen = testbed.harness.check, checks.upload(testbed)
    first, image = sample_media.streams(seen.served), sample_media.streams(seen.small)["video"]
    check("an image is ready when its upload is answered", seen.image["processing"] == 0)
    check("the image is at most 1920 wide", (image["width"], image["height"]) == (1920, 96))
    check("an upload of a film is answered at once, with its job", seen.answered["job"])
    check(
        "ffmpeg makes it H.264 and AAC",
        (first["video"]["codec_name"], first["audio"]["codec_name"]) == ("h264", "aac"),
    )
    check(
        "at most 1920 wide, of an even height",
        (first["video"]["width"], first["video"]["height"]) == (1920, 68),
    )
    check("the media row is ready, with its web path", seen.media["processing"] == 0)
    check("it is served as video/mp4", seen.content_type == "video/mp4")
    check("the original is kept", seen.original == testbed.clip.read_bytes())
    check("nothing is left in the scratch folder", not seen.left)
    check("three films are made one after the other", checks.one_at_a_time(seen.ended))
    return seen


def check_failures(testbed: VideoTestbed) -> None:
    check, seen = testbed.harness.check, checks.fail(testbed)
    check("a film that cannot be read is tried three times", len(seen.runs) == 3)
    check("then its media is marked as failed", seen.broken["processing"] == -1)
    check("a missing source is named", "source blob not found" in seen.missing["job"]["error"])
    check("without a token the jobs are closed", set(seen.closed.values()) == {401, 403})
    check("the operator sees what failed", seen.listed["stats"]["failed"] == 2)
    check("a retry starts with no attempts", seen.retried["attempts"] == 0)
    check("and the film is ready, once its source is good", seen.mended["processing"] == 0)


def check_kill(testbed: VideoTestbed) -> checks.Kill:
    check, seen = testbed.harness.check, checks.kill(testbed)
    check("kill -9 of the server ends ffmpeg", seen.ffmpeg_gone)
    check("a restarted server makes the film ready", seen.media[0]["processing"] == 0)
    check("and the one that waited", seen.media[1]["processing"] == 0)
    check("the kill spent no attempt", seen.job.attempts == 1)
    check("progress is reported while it runs", any(0 < percent < 100 for percent in seen.progress))
    return seen


def check_ends(testbed: VideoTestbed, kill: checks.Kill, uploads: checks.Uploads) -> None:
    check, sweep = testbed.harness.check, checks.sweep(testbed, kill.orphan)
    check("what a killed run left is swept after six hours", not sweep.old)
    check("and not before", sweep.young)
    hang = checks.hang(testbed, kill.media[1])
    check("an ffmpeg that hangs is ended by the timeout", hang.ffmpeg_gone)
    check("which is the job's error", "TimeoutError" in str(hang.job.error))
    gone = checks.delete(testbed, uploads.media)
    check("deleting the media deletes its jobs", (gone.before, gone.after) == ([1, 1], [0, 0]))
    check("and ends a running transcode", gone.ffmpeg_gone)


def check_months(testbed: VideoTestbed) -> None:
    check, seen = testbed.harness.check, checks.check_retention(testbed)
    check("a completed job is kept for a week", "good" in seen["before a week"]["jobs"])
    check("and then goes", "good" not in seen["after a week"]["jobs"])
    check("a failed one is kept for a month", "bad" in seen["before a month"]["jobs"])
    check("and then goes", "bad" not in seen["after a month"]["jobs"])
    check("its source with it", "originals/bad.mov" not in seen["after a month"]["blobs"])
    check("a job whose source cannot be deleted stays", "stays" in seen["after a month"]["jobs"])
    check("until it can", not seen["a minute later"]["jobs"])


if __name__ == "__main__":
    sys.exit(main())
