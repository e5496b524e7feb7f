"""`holdfast jobs watch`: jobs as they go, until they have ended."""

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import datetime
from itertools import chain
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from holdfast.app import Holdfast
from holdfast.cli.commands.jobs import Ids
from holdfast.cli.output import age, clean, console, percent, print_json_line, status_text
from holdfast.cli.progress_bars import bar, began, counts_line
from holdfast.cli.target import Common
from holdfast.core.ids import parse_id
from holdfast.events.feed import Feed
from holdfast.jobs.job import FINISHED, Job, Status
from holdfast.jobs.job_json import iso

RUNNING_SHOWN = 200  # jobs, at most, if no ids were given
WIDE = 100  # columns, from which on there is room for ids


def watch(
    ids: Ids = None,
    interval: Annotated[
        float, typer.Option(min=0.01, help="Seconds between two looks, at the most.")
    ] = 0.25,
    *,
    common: Common,
) -> None:
    """Show jobs as they go: these until all have ended, or whatever runs until Ctrl-C.

    The exit code is 1 if one of them did not complete. Where there is no terminal, and with --json,
    each change is a line.
    """
    with common.opened() as holdfast:
        watched = Watched(holdfast, [parse_id(id) for id in ids or []])
        out = console()
        try:
            with closing(watched.changes(interval)) as changes:
                if common.as_json or not out.is_terminal:
                    for job in chain.from_iterable(changes):
                        _print_line(holdfast, job, common.as_json)
                else:
                    with Live(console=out, auto_refresh=False) as live:
                        for _ in changes:
                            live.update(_picture(watched, out), refresh=True)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
    raise typer.Exit(1 if watched.any_did_not_complete else 0)


class Watched:
    """The jobs that are watched, and how they were at the last poll."""

    def __init__(self, holdfast: Holdfast, ids: Sequence[str]) -> None:
        self.holdfast = holdfast
        self.ids = ids  #: empty: whatever runs
        self.jobs: list[Job] = []  #: in the order given; without one, the longest running first
        self._last: dict[str, tuple[Any, ...]] = {}
        for id in ids:
            holdfast.jobs.get(id)  # raises if there is none

    def poll(self) -> list[Job]:
        """Return the jobs that have changed since the last poll."""
        if self.ids:
            found = self.jobs = self.holdfast.engine.get(self.ids)
        else:
            running = list(self.holdfast.jobs.search(status="running", limit=RUNNING_SHOWN))
            ended = {job.id for job in self.jobs} - {job.id for job in running}
            found = [*self.holdfast.engine.get(sorted(ended)), *running]
            self.jobs = sorted(running, key=began)
        before, self._last = self._last, {job.id: _signature(job) for job in found}
        return [job for job in found if before.get(job.id) != self._last[job.id]]

    def changes(self, interval: float) -> Generator[list[Job]]:
        """Yield the jobs that have changed, at the first poll and after each wait, until all have
        ended. Given jobs are waited for by their events, others for `interval` seconds."""
        ids = frozenset(self.ids)
        with ExitStack() as stack:
            wait: Callable[[float], object] = time.sleep
            if ids:
                feed = Feed(
                    self.holdfast.engine, None, None, lambda event: event.job_id in ids, topics=ids
                )
                stack.callback(feed.close)
                wait = feed.take
            yield self.poll()
            while not (ids and all(job.status in FINISHED for job in self.jobs)):
                wait(interval)
                yield self.poll()

    @property
    def gone(self) -> set[str]:
        """Ids of jobs that were deleted while they were watched."""
        return set(self.ids) - {job.id for job in self.jobs}

    @property
    def any_did_not_complete(self) -> bool:
        failed = any(job.status is not Status.COMPLETED for job in self.jobs)
        return bool(self.ids) and (failed or bool(self.gone))


def _signature(job: Job) -> tuple[Any, ...]:
    return (job.status, job.claim_no, job.progress, job.message, job.cancel_requested)


def _print_line(holdfast: Holdfast, job: Job, as_json: bool) -> None:
    if as_json:
        whole = job.body is None and holdfast.engine.get([job.id])  # lists leave bodies out
        print_json_line(whole[0] if whole else job)
        return
    line = f"{iso(job.updated_at)} {job.id} {clean(job.type)} {job.status}"
    note = clean(job.error or job.message or "")
    typer.echo(" ".join(filter(None, (line, percent(job), note))))


def _picture(watched: Watched, out: Console) -> RenderableType:
    stats = watched.holdfast.stats()
    jobs = watched.jobs
    parts: list[RenderableType] = [counts_line(stats.jobs, stats.cap), Text("")]
    if jobs:
        now = watched.holdfast.engine.now()
        parts += _bars(jobs, now, out.width, rows=max(3, out.height - 6))
    else:
        parts.append(Text("nothing runs", style="dim"))
    parts += [Text(f"{id} was deleted", style="red") for id in sorted(watched.gone)]
    return Group(*parts)


def _bars(jobs: Sequence[Job], now: datetime, width: int, rows: int) -> Iterator[RenderableType]:
    """Yield a table with a line for each job, as many as fit."""
    columns = [
        Column(no_wrap=True, style="dim"),
        Column(no_wrap=True, overflow="ellipsis", ratio=3),
        Column(no_wrap=True, min_width=9),
        Column(ratio=4),
        Column(no_wrap=True, justify="right", min_width=4),
        Column(no_wrap=True, overflow="ellipsis", ratio=4),
        Column(no_wrap=True, justify="right", min_width=4),
    ]
    first = 0 if width >= WIDE else 1
    table = Table.grid(*columns[first:], padding=(0, 1), expand=True)
    for job in jobs[:rows]:
        table.add_row(*_cells(job, now)[first:])
    yield table
    if len(jobs) > rows:
        yield Text(f"and {len(jobs) - rows} more", style="dim")


def _cells(job: Job, now: datetime) -> list[RenderableType]:
    done = job.status is Status.COMPLETED  # then the last message of its progress is of no interest
    note = "" if done else job.error or job.message or ""
    took = ""
    if job.started_at is not None:
        took = age(((job.completed_at or now) - job.started_at).total_seconds())
    return [
        job.id,
        Text(clean(job.type)),
        status_text(job.status),
        bar(job),
        "" if done else percent(job),
        Text(clean(note), style="dim"),
        Text(took, style="dim"),
    ]
