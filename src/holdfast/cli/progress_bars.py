"""Progress on a terminal: a bar for a job, counts by status, a counter for commands on many jobs."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime

from rich import progress
from rich.console import RenderableType
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
    columns: list[progress.ProgressColumn] = [progress.TextColumn("{task.description}")]
    if total is None:
        columns = [progress.SpinnerColumn(), *columns, progress.TextColumn("{task.completed} jobs")]
    else:
        columns += [progress.BarColumn(), progress.MofNCompleteColumn()]
        columns += [progress.TimeRemainingColumn()]
    with progress.Progress(*columns, console=out, transient=True) as bars:
        task = bars.add_task(what, total=total)
        yield lambda number: bars.update(task, completed=number)


def counts_line(counts: Mapping[Status, int], cap: int) -> Text:
    """Return each status with its number of jobs; one without jobs is dim, or left out."""
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
    """Return a sort key: the longest running job comes first."""
    return job.started_at or job.created_at, job.id


def bar(job: Job) -> RenderableType:
    """Return a bar with the progress of a job that runs or has finished; for others nothing."""
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
