"""`holdfast jobs logs`: what the runs of a job wrote with `ctx.log`."""

import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from holdfast.app import Holdfast
from holdfast.cli.output import clean, console, print_json_line, select
from holdfast.cli.target import Common
from holdfast.jobs.job import FINISHED, Job, LogLine
from holdfast.jobs.job_json import iso

PAGE = 1000
_LAG = timedelta(seconds=2)  # lines are written once a second: so long after its end, all are there
_STYLES = {"warning": "yellow", "error": "red", "critical": "bold red"}
_FIELDS = ("claim_no", "attempt", "line_no", "at", "level", "text")


def logs(
    id: Annotated[str, typer.Argument(metavar="ID", help="Of the job.")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new lines until the job has ended.")
    ] = False,
    interval: Annotated[
        float, typer.Option(min=0.01, help="Seconds between two looks, with --follow.")
    ] = 1.0,
    *,
    common: Common,
) -> None:
    """The lines that a job's runs wrote with ctx.log, in order. With --json each is an object."""
    with common.opened() as holdfast:
        out = console()
        try:
            for lines in _pages(holdfast, id, follow, interval):
                if common.as_json:
                    for line in lines:
                        print_json_line(select(line, _FIELDS))
                else:
                    print_lines(out, lines)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


def _pages(
    holdfast: Holdfast, id: str, follow: bool, interval: float
) -> Iterator[Sequence[LogLine]]:
    after: str | None = None
    while True:
        job = holdfast.jobs.get(id)  # before its lines: what it wrote until its end is among them
        while lines := holdfast.jobs.logs(id, after=after, limit=PAGE):
            after = lines[-1].cursor
            yield lines
        if not follow or _is_over(holdfast, job):
            return
        time.sleep(interval)


def _is_over(holdfast: Holdfast, job: Job) -> bool:
    ended = job.completed_at
    return job.status in FINISHED and (ended is None or holdfast.engine.now() - ended > _LAG)


def print_lines(out: Console, lines: Sequence[LogLine]) -> None:
    for line in lines:
        text = Text(f"{iso(line.at)} #{line.attempt} ", style="dim")
        text.append(f"{line.level.upper():8} ", style=_STYLES.get(line.level, "not dim"))
        rest = clean(line.text, lines=True).replace("\n", "\n    ")
        text.append(rest, style="not dim")
        out.print(text, soft_wrap=True)
