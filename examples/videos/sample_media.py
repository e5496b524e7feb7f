"""Small films and images for the checks, made by ffmpeg itself, and their streams."""

import json
import subprocess
from pathlib import Path
from typing import Any

_FFMPEG = ["ffmpeg", "-nostdin", "-v", "error", "-y"]
_OLD = ["-c:v", "mpeg4", "-q:v", "5", "-pix_fmt", "yuv420p", "-c:a", "pcm_s16le"]


def film(path: Path, size: str, seconds: float, rate: int = 10) -> Path:
    """Make a film with a tone, in a format that browsers do not play."""
    picture = f"testsrc2=size={size}:rate={rate}:duration={seconds}"
    tone = f"sine=duration={seconds}"
    sources = ["-f", "lavfi", "-i", picture, "-f", "lavfi", "-i", tone]
    subprocess.run([*_FFMPEG, *sources, *_OLD, path], check=True)
    return path


def image(path: Path, size: str) -> Path:
    source = ["-f", "lavfi", "-i", f"testsrc2=size={size}"]
    subprocess.run([*_FFMPEG, *source, "-frames:v", "1", path], check=True)
    return path


def streams(path: Path) -> dict[str, dict[str, Any]]:
    """Return the streams of a file, by kind: {"video": {"codec_name": "h264", ...}, "audio": ...}."""
    command = ["ffprobe", "-v", "error", "-show_streams", "-of", "json", str(path)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return {stream["codec_type"]: stream for stream in found["streams"]}
