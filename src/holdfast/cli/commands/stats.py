"""`holdfast stats`: the numbers of the whole."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer

from holdfast.cli.commands.queues import print_queues, queue_fields
from holdfast.cli.filters import duration
from holdfast.cli.output import (
    Column,
    age,
    clean,
    count,
    plain,
    print_json,
    print_table,
    status_text,
)
from holdfast.cli.target import (
    AppArgument,
    JsonOption,
    Target,
)
from holdfast.monitoring.metrics import Figures, Times
from holdfast.monitoring.stats import Stats

_FIGURES = [
    Column("COMPLETED", right=True),
    Column("FAILED", right=True),
    Column("RETRIED", right=True, from_width=90),
    Column("FAIL %", right=True),
    Column("/MIN", right=True),
    Column("WAIT P50", right=True, from_width=100),
    Column("WAIT P95", right=True),
    Column("RUN P50", right=True, from_width=100),
    Column("RUN P95", right=True),
]


def stats(
    application: AppArgument = None,
    window: Annotated[
        str, typer.Option(help="How far the figures go back: '15m', at most '24h'.")
    ] = "1h",
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Jobs by status, queues, live workers; and what was done lately, by task and queue.

    Each number of jobs is counted up to 10,000. The figures are what the workers wrote in the last
    hour (--window): how many jobs ended, how long they waited and ran. RATE is failed of finished.
    """
    length = duration(window, "--window")
    with target.opened(application) as holdfast:
        found = holdfast.stats(window=length)
    if as_json:
        print_json(stats_fields(found))
    else:
        _print(found)


def stats_fields(found: Stats) -> dict[str, Any]:
    """By the names of `app.stats()`."""
    return {
        "jobs": {status.value: number for status, number in found.jobs.items()},
        "queues": [queue_fields(queue) for queue in found.queues],
        "workers": found.workers,
        "cap": found.cap,
        "oldest_pending": found.oldest_pending,
        "waiting": found.waiting,
        "window": found.window,
        "figures": asdict(found.figures),
        "by_task": {name: asdict(figures) for name, figures in found.by_task.items()},
        "by_queue": {name: asdict(figures) for name, figures in found.by_queue.items()},
        "series": [
            {name: plain(value) for name, value in asdict(point).items()} for point in found.series
        ],
    }


def _print(found: Stats) -> None:
    print_table(
        [Column("STATUS"), Column("JOBS", right=True)],
        ((status_text(status), count(number, found.cap)) for status, number in found.jobs.items()),
    )
    if found.queues:
        typer.echo()
        print_queues(found.queues)
    if found.figures.finished or found.figures.retried:
        typer.echo(f"\nthe last {found.window / 60:g} minutes")
        _print_figures("TASK", {**found.by_task, "(all)": found.figures})
        if len(found.by_queue) > 1:
            typer.echo()
            _print_figures("QUEUE", found.by_queue)
    if found.oldest_pending is not None:
        typer.echo(f"\nlongest waiting: {age(found.oldest_pending)}")
    typer.echo(f"\nworkers: {found.workers}")


def _print_figures(title: str, figures: Mapping[str, Figures]) -> None:
    columns = [Column(title, may_be_cut=True), *_FIGURES]
    print_table(columns, ([clean(name), *_row(one)] for name, one in figures.items()))


def _row(figures: Figures) -> list[str]:
    return [
        str(figures.completed),
        str(figures.failed),
        str(figures.retried),
        f"{figures.failure_rate:.1%}",
        f"{figures.per_minute:.1f}",
        *_times(figures.wait),
        *_times(figures.run),
    ]


def _times(times: Times) -> list[str]:
    return [_time(times.p50), _time(times.p95)]


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.0f}ms" if seconds < 1 else f"{seconds:.1f}s"
