"""`holdfast stats`: jobs by status, queues, and what the workers did lately."""

from collections.abc import Mapping
from typing import Annotated

import typer

from holdfast.cli.commands.queues import QUEUE_COLUMNS
from holdfast.cli.filters import duration
from holdfast.cli.output import Column, age, count, print_json, print_table, status_text
from holdfast.cli.target import AppArgument, Common
from holdfast.monitoring.metrics import Figures
from holdfast.monitoring.stats import Stats


def stats(
    application: AppArgument = None,
    window: Annotated[
        str, typer.Option(help="How far the figures go back: '15m', at most '24h'.")
    ] = "1h",
    *,
    common: Common,
) -> None:
    """Jobs by status, queues, live workers; and what was done lately, by task and queue.

    Each number of jobs is counted up to 10,000. The figures are what the workers wrote in the last
    hour (--window): how many jobs ended, how long they waited and ran. FAIL % is the share of
    finished jobs that failed.
    """
    length = duration(window, "--window")
    with common.opened(application) as holdfast:
        found = holdfast.stats(window=length)
    if common.as_json:
        print_json(found)
    else:
        _print(found)


def _print(found: Stats) -> None:
    print_table(
        [
            Column("STATUS", lambda row: status_text(row[0])),
            Column("JOBS", lambda row: count(row[1], found.cap), right=True),
        ],
        found.jobs.items(),
    )
    if found.queues:
        typer.echo()
        print_table(QUEUE_COLUMNS, found.queues)
    if found.figures.finished or found.figures.retried:
        typer.echo(f"\nthe last {found.window / 60:g} minutes")
        _print_figures("TASK", {**found.by_task, "(all)": found.figures})
        if len(found.by_queue) > 1:
            typer.echo()
            _print_figures("QUEUE", found.by_queue)
    if found.oldest_pending is not None:
        typer.echo(f"\nlongest waiting: {age(found.oldest_pending)}")
    typer.echo(f"\nworkers: {found.workers}")


def _print_figures(title: str, by_name: Mapping[str, Figures]) -> None:
    columns: list[Column[tuple[str, Figures]]] = [
        Column(title, lambda row: row[0], may_be_cut=True),
        Column("COMPLETED", lambda row: row[1].completed, right=True),
        Column("FAILED", lambda row: row[1].failed, right=True),
        Column("RETRIED", lambda row: row[1].retried, right=True, from_width=90),
        Column("FAIL %", lambda row: f"{row[1].failure_rate:.1%}", right=True),
        Column("/MIN", lambda row: f"{row[1].per_minute:.1f}", right=True),
        Column("WAIT P50", lambda row: _time(row[1].wait.p50), right=True, from_width=100),
        Column("WAIT P95", lambda row: _time(row[1].wait.p95), right=True),
        Column("RUN P50", lambda row: _time(row[1].run.p50), right=True, from_width=100),
        Column("RUN P95", lambda row: _time(row[1].run.p95), right=True),
    ]
    print_table(columns, by_name.items())


def _time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return f"{seconds * 1000:.0f}ms" if seconds < 1 else f"{seconds:.1f}s"
