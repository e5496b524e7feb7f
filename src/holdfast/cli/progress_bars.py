"""Jobs drawn live: counts by status in a line, and a progress bar for each job."""

import time
from collections.abc import Mapping, Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from holdfast.cli.output import STYLES, age, clean, count, status_text
from holdfast.jobs.job import FINISHED, Job, Status

WIDE = 100  # columns, from which on there is room for ids
_BAR = {
    Status.COMPLETED: "green",
    Status.FAILED: "red",
    Status.CANCELLED: "bright_black",
}


def counts_line(counts: Mapping[Status, int], cap: int) -> Text:
    """Each status with its number; those that are nought stay in the background, or away."""
    line = Text()
    for status, number in counts.items():
        if not number and status in (Status.BLOCKED, Status.CANCELLED):
            continue
        if line:
            line.append("  ")
        line.append(f"{status}\N{NO-BREAK SPACE}", style="dim")
        line.append(count(number, cap), style=STYLES[status] if number else "dim")
    return line


def bars(jobs: Sequence[Job], now: datetime, *, width: int, rows: int) -> RenderableType:
    """One line for each job, as many as there is room for."""
    table = Table.grid(padding=(0, 1), expand=True)
    if width >= WIDE:
        table.add_column(no_wrap=True, style="dim")
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=3)
    table.add_column(no_wrap=True, min_width=9)
    table.add_column(ratio=4)
    table.add_column(no_wrap=True, justify="right", min_width=4)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=4)
    table.add_column(no_wrap=True, justify="right", min_width=4)
    for job in jobs[:rows]:
        cells = _cells(job, now)
        table.add_row(*([job.id, *cells] if width >= WIDE else cells))
    if len(jobs) > rows:
        return Group(table, Text(f"and {len(jobs) - rows} more", style="dim"))
    return table


def _cells(job: Job, now: datetime) -> list[RenderableType]:
    done = job.status is Status.COMPLETED  # then the last word of its progress is of no interest
    percent = "" if done or job.progress is None else f"{job.progress:.0f}%"
    note = "" if done else job.error or job.message or ""
    took = ""
    if job.started_at is not None:
        took = age(((job.completed_at or now) - job.started_at).total_seconds())
    return [
        Text(clean(job.type)),
        status_text(job.status),
        bar(job),
        percent,
        Text(clean(note), style="dim"),
        Text(took, style="dim"),
    ]


def bar(job: Job) -> RenderableType:
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
