"""Progress on a terminal: of one job, of all by status, and of a command that changes many."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime

from rich.console import RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress_bar import ProgressBar
from rich.text import Text

from holdfast.cli.output import STYLES, console, count
from holdfast.jobs.job import FINISHED, Job, Status

_BAR = {Status.COMPLETED: "green", Status.FAILED: "red", Status.CANCELLED: "bright_black"}


@contextmanager
def counter(
    what: str, total: int | None = None, *, hidden: bool
) -> Iterator[Callable[[int], object]]:
    """Yield a function that shows people how many jobs are done, of `total` if that is known."""
    out = console(stderr=True)
    if hidden or not out.is_terminal:
        yield lambda number: None
        return
    name = TextColumn("{task.description}")
    columns = (
        [SpinnerColumn(), name, TextColumn("{task.completed} jobs")]
        if total is None
        else [name, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()]
    )
    with Progress(*columns, console=out, transient=True) as bars:
        task = bars.add_task(what, total=total)
        yield lambda number: bars.update(task, completed=number)


def counts_line(counts: Mapping[Status, int], cap: int) -> Text:
    """Each status with its number; a status without jobs is dim, or left out."""
    line = Text()
    for status, number in counts.items():
        if not number and status in (Status.BLOCKED, Status.CANCELLED):
            continue
        if line:
            line.append("  ")
        line.append(f"{status}\N{NO-BREAK SPACE}", style="dim")
        line.append(count(number, cap), style=STYLES[status] if number else "dim")
    return line


def began(job: Job) -> tuple[datetime, str]:
    """Order running jobs: the longest running first."""
    return job.started_at or job.created_at, job.id


def bar(job: Job) -> RenderableType:
    """The progress of a job that runs or has finished; of others nothing."""
    if job.status not in FINISHED and job.status is not Status.RUNNING:
        return Text("")
    done = 100.0 if job.status is Status.COMPLETED else job.progress or 0.0
    style = _BAR.get(job.status, "blue")
    return ProgressBar(
        total=100.0,
        completed=done,
        pulse=job.status is Status.RUNNING and job.progress is None,
        animation_time=time.monotonic(),
        style="bright_black",
        complete_style=style,
        finished_style=style,
        pulse_style="cyan",
    )
