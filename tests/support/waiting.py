"""Wait for conditions with a deadline, never for a fixed time."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from holdfast import Holdfast, Job
from holdfast.jobs.job import FINISHED

T = TypeVar("T")
PATIENCE = 20.0  # seconds: far more than needed, for a slow and busy machine


def until(look: Callable[[], T], what: str = "the condition", *, patience: float = PATIENCE) -> T:
    """Poll until `look` returns a true value, and return it."""
    deadline = time.monotonic() + patience
    while not (seen := look()):
        assert time.monotonic() < deadline, f"{what}: not within {patience:g} s"
        time.sleep(0.01)
    return seen


def wait_for_status(app: Holdfast, job: Job, *statuses: str, patience: float = PATIENCE) -> Job:
    """Wait until a job has one of these statuses; returns the job."""
    deadline = time.monotonic() + patience
    while (now := app.jobs.get(job.id)).status not in statuses:
        assert time.monotonic() < deadline, (
            f"{now.type} is {now.status} ({now.error or now.message}) after {patience:g} s, "
            f"and not {' or '.join(statuses)}"
        )
        time.sleep(0.01)
    return now


def finished(app: Holdfast, job: Job, *, patience: float = PATIENCE) -> Job:
    """Wait until a job has a final status; returns the job."""
    return wait_for_status(app, job, *FINISHED, patience=patience)


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
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
    """Return the process ids that a task of `tests.worker.process_tasks` wrote."""
    return [int(word) for word in (folder / "pids").read_text().split()]
