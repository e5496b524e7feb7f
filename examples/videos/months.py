"""What becomes of jobs in a week and in a month, by a clock that is moved.

python -m examples.videos.months CLIP: a process of its own, which prints what it saw, as JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any

from examples.videos.app import HOME, add_video, app, blobs, prepare
from holdfast.testing import FakeClock, drain, prune, temporary

HOUR, DAY = 3600.0, 24 * 3600.0


def watch(clip: Path) -> dict[str, Any]:
    HOME.mkdir(parents=True, exist_ok=True)
    clock = FakeClock()
    with temporary(app, clock=clock):
        prepare()
        fill(clip)
        for _ in range(3):  # attempts, with a minute between them
            drain(app, raise_errors=False)
            clock.advance(60)
        seen = {"at first": look()}
        clock.advance(7 * DAY - HOUR)
        prune(app)
        seen["before a week"] = look()
        clock.advance(HOUR)
        prune(app)
        seen["after a week"] = look()
        clock.advance(23 * DAY - HOUR)
        prune(app)
        seen["before a month"] = look()
        make_undeletable("originals/stays.mov")
        clock.advance(HOUR)
        prune(app)
        seen["after a month"] = look()
        (blobs.root / "originals/stays.mov/in the way").unlink()
        (blobs.root / "originals/stays.mov").rmdir()
        clock.advance(60)
        prune(app)
        seen["a minute later"] = look()
    return seen


def fill(clip: Path) -> None:
    """One film that can be made ready, and two that cannot."""
    blobs.put("originals/good.mov", clip, "video/quicktime")
    add_video("good", "good.mov", "originals/good.mov")
    for name in ("bad", "stays"):
        blobs.put(f"originals/{name}.mov", Path(__file__), "video/quicktime")
        add_video(name, f"{name}.mov", f"originals/{name}.mov")


def make_undeletable(path: str) -> None:
    """A folder with something in it is where the blob should be: no file to unlink."""
    place = blobs.root / path
    place.unlink(missing_ok=True)
    place.mkdir()
    (place / "in the way").touch()


def look() -> dict[str, Any]:
    """The jobs by media, and the blobs."""
    jobs = {str(job.entity_id): [job.status, job.prune_error] for job in app.jobs.search()}
    places = [place.relative_to(blobs.root) for place in blobs.root.rglob("*.m??")]
    return {"jobs": jobs, "blobs": sorted(map(str, places))}


if __name__ == "__main__":
    print(json.dumps(watch(Path(sys.argv[1]))))
