"""Calls of ffmpeg: a film for browsers, an image for browsers. This module knows nothing of jobs."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

_WIDTH = ["-vf", "scale='min(1920,iw)':'-2'"]  # at most 1920 wide, the height even
FILM = [
    *("-c:v", "libx264", "-preset", "medium", "-crf", "23"),
    *("-c:a", "aac", "-b:a", "128k"),
    *("-movflags", "+faststart", *_WIDTH),
]
IMAGE = ["-frames:v", "1", "-q:v", "3", "-update", "1", *_WIDTH]


class CannotConvert(Exception):
    """ffmpeg failed; the message is its own."""


def transcode(source: Path, target: Path, on_progress: Callable[[float], object]) -> None:
    """Make an H.264 film with AAC sound; calls `on_progress` with 0 to 100."""
    length = duration(source)
    log = target.with_name("ffmpeg.log")  # a pipe that is not read would block it when full
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [*_ffmpeg(), "-progress", "pipe:1", "-i", source, *FILM, target],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if (done := percent(line, length)) is not None:
                    on_progress(done)
        except BaseException:  # this run is ending, so ffmpeg must, too
            process.kill()
            raise
    if process.returncode:
        raise CannotConvert(_last_words("ffmpeg", log.read_bytes()))


def shrink(source: Path, target: Path) -> None:
    """Make an image at most 1920 wide; fast enough to need no job."""
    _run([*_ffmpeg(), "-i", source, *IMAGE, target])


def duration(source: Path) -> float:
    """Return the length of a film in seconds."""
    wanted = ["-v", "error", "-show_entries", "format=duration", "-of", "csv=p=0"]
    words = _run([_find("ffprobe"), *wanted, source])
    try:
        return float(words)
    except ValueError:  # N/A: an image, or a stream without an end
        raise CannotConvert(f"{source.name} has no length: it is no film") from None


def percent(line: str, length: float) -> float | None:
    """Return the percentage in a line of `-progress`, or None for any other line."""
    name, _, value = line.strip().partition("=")
    if name != "out_time_us" or not value.isdigit() or length <= 0:
        return None
    return min(100.0, int(value) / 1e6 / length * 100)


def _ffmpeg() -> list[str | Path]:
    return [_find("ffmpeg"), "-nostdin", "-y", "-v", "error"]


def _find(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise FileNotFoundError(f"{program} is not on the PATH: install ffmpeg")
    return found


def _run(command: list[str | Path]) -> str:
    done = subprocess.run(command, capture_output=True)
    if done.returncode:
        raise CannotConvert(_last_words(Path(command[0]).name, done.stderr))
    return done.stdout.decode().strip()


def _last_words(program: str, errors: bytes) -> str:
    lines = errors.decode(errors="replace").strip().splitlines()
    return f"{program}: {lines[-1] if lines else 'failed without a word'}"
