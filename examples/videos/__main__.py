"""python -m examples.videos: the whole application, end to end."""

import sys

from examples.stage import on_stage
from examples.videos import clips, proof
from examples.videos.studio import Studio


def main() -> int:
    with on_stage("videos") as stage, Studio(stage) as studio:
        studio.open()
        uploads = prove_uploads(studio)
        prove_failures(studio)
        kill = prove_kill(studio)
        prove_ends(studio, kill, uploads)
        prove_months(studio)
    return 0


def prove_uploads(studio: Studio) -> proof.Uploads:
    prove, seen = studio.stage.prove, proof.upload(studio)
    first, image = clips.streams(seen.served), clips.streams(seen.small)["video"]
    prove("an image is ready when its upload is answered", seen.image["processing"] == 0)
    prove("it is at most 1920 wide", (image["width"], image["height"]) == (1920, 96))
    prove("an upload of a film is answered at once, with its job", seen.answered["job"])
    prove(
        "ffmpeg makes it H.264 and AAC",
        (first["video"]["codec_name"], first["audio"]["codec_name"]) == ("h264", "aac"),
    )
    prove(
        "at most 1920 wide, of an even height",
        (first["video"]["width"], first["video"]["height"]) == (1920, 68),
    )
    prove("the media row is ready, with its web path", seen.media["processing"] == 0)
    prove("it is served as video/mp4", seen.content_type == "video/mp4")
    prove("the original is kept", seen.original == studio.clip.read_bytes())
    prove("nothing is left in the scratch folder", not seen.left)
    prove("three films are made one after the other", proof.one_at_a_time(seen.ended))
    return seen


def prove_failures(studio: Studio) -> None:
    prove, seen = studio.stage.prove, proof.fail(studio)
    prove("a film that cannot be read is tried three times", len(seen.runs) == 3)
    prove("then its media is marked as failed", seen.broken["processing"] == -1)
    prove("a missing source is named", "source blob not found" in seen.missing["job"]["error"])
    prove("without a token the jobs are closed", set(seen.closed.values()) == {401, 403})
    prove("the operator sees what failed", seen.listed["stats"]["failed"] == 2)
    prove("a retry starts from nought", seen.retried["attempts"] == 0)
    prove("and the film is ready, once its source is good", seen.mended["processing"] == 0)


def prove_kill(studio: Studio) -> proof.Kill:
    prove, seen = studio.stage.prove, proof.kill(studio)
    prove("kill -9 of the server ends ffmpeg", seen.ffmpeg_gone)
    prove("a restarted server makes the film ready", seen.media[0]["processing"] == 0)
    prove("and the one that waited", seen.media[1]["processing"] == 0)
    prove("that cost no attempt", seen.job.attempts == 1)
    prove("progress is told while it runs", any(0 < percent < 100 for percent in seen.progress))
    return seen


def prove_ends(studio: Studio, kill: proof.Kill, uploads: proof.Uploads) -> None:
    prove, sweep = studio.stage.prove, proof.sweep(studio, kill.orphan)
    prove("what a killed run left is swept after six hours", not sweep.old)
    prove("and not before", sweep.young)
    hang = proof.hang(studio, kill.media[1])
    prove("an ffmpeg that hangs is ended by the timeout", hang.ffmpeg_gone)
    prove("which is the job's error", "TimeoutError" in str(hang.job.error))
    gone = proof.delete(studio, uploads.media)
    prove("jobs go with their media", (gone.before, gone.after) == ([1, 1], [0, 0]))
    prove("and a transcode that runs is ended", gone.ffmpeg_gone)


def prove_months(studio: Studio) -> None:
    prove, seen = studio.stage.prove, proof.wait_months(studio)
    prove("a completed job is kept for a week", "good" in seen["before a week"]["jobs"])
    prove("and then goes", "good" not in seen["after a week"]["jobs"])
    prove("a failed one is kept for a month", "bad" in seen["before a month"]["jobs"])
    prove("and then goes", "bad" not in seen["after a month"]["jobs"])
    prove("its source with it", "originals/bad.mov" not in seen["after a month"]["blobs"])
    prove("a job whose source cannot be deleted stays", "stays" in seen["after a month"]["jobs"])
    prove("until it can", not seen["a minute later"]["jobs"])


if __name__ == "__main__":
    sys.exit(main())
