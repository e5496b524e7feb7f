"""Waiting for named moments, with a deadline; never for a fixed time."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from holdfast import Holdfast, Job
from holdfast.jobs.job import FINISHED

T = TypeVar("T")
PATIENCE = 20.0  # seconds: far more than anything here takes, on a slow and busy machine


def until(look: Callable[[], T], what: str = "it", *, patience: float = PATIENCE) -> T:
    """Look again and again until what is seen is true; it."""
    deadline = time.monotonic() + patience
    while not (seen := look()):
        assert time.monotonic() < deadline, f"{what} did not come within {patience:g} s"
        time.sleep(0.01)
    return seen


def reaches(app: Holdfast, job: Job, *statuses: str, patience: float = PATIENCE) -> Job:
    """The job, once it is in one of these statuses."""
    deadline = time.monotonic() + patience
    while (now := app.jobs.get(job.id)).status not in statuses:
        assert time.monotonic() < deadline, (
            f"{now.type} is {now.status} ({now.error or now.message}) after {patience:g} s, "
            f"and not {' or '.join(statuses)}"
        )
        time.sleep(0.01)
    return now


def finished(app: Holdfast, job: Job, *, patience: float = PATIENCE) -> Job:
    """The job, once it is in a final status."""
    return reaches(app, job, *FINISHED, patience=patience)


def lives(pid: int) -> bool:
    """Does this process run? (A zombie does not.)"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return not os.path.exists("/proc/self/stat")


def pids_in(folder: Path) -> list[int]:
    """What a task of `tasks_process` told."""
    return [int(word) for word in (folder / "pids").read_text().split()]
