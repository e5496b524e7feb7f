"""Observe the retention of jobs over a week and a month, with a fake clock.

`python -m examples.videos.retention_checks CLIP` is a process of its own and prints JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any

from examples.videos.app import HOME, add_video, app, blobs, prepare
from holdfast.testing import FakeClock, drain, prune, temporary

HOUR, DAY = 3600.0, 24 * 3600.0


def observe(clip: Path) -> dict[str, Any]:
    HOME.mkdir(parents=True, exist_ok=True)
    clock = FakeClock()
    with temporary(app, clock=clock):
        prepare()
        fill(clip)
        for _ in range(3):  # attempts, with a minute between them
            drain(app, raise_errors=False)
            clock.advance(60)
        seen = {"at first": snapshot()}
        clock.advance(7 * DAY - HOUR)
        prune(app)
        seen["before a week"] = snapshot()
        clock.advance(HOUR)
        prune(app)
        seen["after a week"] = snapshot()
        clock.advance(23 * DAY - HOUR)
        prune(app)
        seen["before a month"] = snapshot()
        make_undeletable("originals/stays.mov")
        clock.advance(HOUR)
        prune(app)
        seen["after a month"] = snapshot()
        (blobs.root / "originals/stays.mov/in the way").unlink()
        (blobs.root / "originals/stays.mov").rmdir()
        clock.advance(60)
        prune(app)
        seen["a minute later"] = snapshot()
    return seen


def fill(clip: Path) -> None:
    """Add one film that can be transcoded, and two that cannot."""
    blobs.put("originals/good.mov", clip, "video/quicktime")
    add_video("good", "good.mov", "originals/good.mov")
    for name in ("bad", "stays"):
        blobs.put(f"originals/{name}.mov", Path(__file__), "video/quicktime")
        add_video(name, f"{name}.mov", f"originals/{name}.mov")


def make_undeletable(path: str) -> None:
    """Put a folder with a file in the place of the blob, so that unlink fails."""
    place = blobs.root / path
    place.unlink(missing_ok=True)
    place.mkdir()
    (place / "in the way").touch()


def snapshot() -> dict[str, Any]:
    """Return the jobs by media, and the blobs."""
    jobs = {str(job.entity_id): [job.status, job.prune_error] for job in app.jobs.search()}
    places = [place.relative_to(blobs.root) for place in blobs.root.rglob("*.m??")]
    return {"jobs": jobs, "blobs": sorted(map(str, places))}


if __name__ == "__main__":
    print(json.dumps(observe(Path(sys.argv[1]))))
