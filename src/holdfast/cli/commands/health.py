"""`holdfast health`: is work being done? By its exit code, for monitors."""

from dataclasses import asdict
from typing import Annotated, Any, cast

import typer
from rich.text import Text

from holdfast.cli.filters import duration
from holdfast.cli.output import age, clean, console, print_json
from holdfast.cli.target import AppArgument, Common, refuse_absent
from holdfast.errors import DatabaseUnavailable
from holdfast.monitoring.health import Health, HealthLimits, unreachable


def health(
    application: AppArgument = None,
    max_age: Annotated[
        str | None, typer.Option(help="How long a job may have been due: '5m'; '1h'.")
    ] = None,
    stall: Annotated[
        str | None, typer.Option(help="How soon something must end while work waits; '10m'.")
    ] = None,
    failure_rate: Annotated[
        float | None, typer.Option(help="Of finished jobs, fewer may have failed; 0.05.")
    ] = None,
    window: Annotated[
        str | None, typer.Option(help="The time that rates and shares are taken over; '1h'.")
    ] = None,
    expected_workers: Annotated[
        int | None, typer.Option(help="How many workers should live.")
    ] = None,
    spread: Annotated[
        float | None,
        typer.Option(help="Of an equal share, what each worker of a queue should do; 0.25."),
    ] = None,
    *,
    common: Common,
) -> None:
    """Is work being done? Exit code 0: yes. 1: no, and what to do about it is printed.

    Looks at: the database and its tables, and whether it commits a write; live workers, if jobs are
    pending or running, or as many as are expected; pending jobs whose task or queue no live worker
    takes; how long jobs have been due; whether anything ends while work waits; the failure rate; paused
    queues with jobs; stuck jobs; silent workers. Warns of idle workers, and of several versions.
    """
    limits = _limits(
        {"max_age": max_age, "stall": stall, "window": window},
        failure_rate=failure_rate,
        expected_workers=expected_workers,
        spread=spread,
    )
    with common.choose(application) as holdfast:
        try:
            refuse_absent(holdfast)
            found = holdfast.health(**limits)
        except DatabaseUnavailable as problem:
            found = unreachable(str(problem))
    if common.as_json:
        print_json(asdict(found))
    else:
        _print(found)
    raise typer.Exit(0 if found.ok else 1)


def _limits(durations: dict[str, str | None], **others: float | None) -> HealthLimits:
    """What was given; the application's settings say the rest."""
    given: dict[str, Any] = {
        name: None if text == "none" else duration(text, f"--{name.replace('_', '-')}")
        for name, text in durations.items()
        if text is not None
    }
    given |= {name: value for name, value in others.items() if value is not None}
    return cast(HealthLimits, given)


def _print(found: Health) -> None:
    out = console()
    for text in found.problems:
        out.print(Text.assemble(("problem", "bold red"), f"  {clean(text)}"), soft_wrap=True)
    for text in found.warnings:
        out.print(Text.assemble(("warning", "yellow"), f"  {clean(text)}"), soft_wrap=True)
    if found.ok:
        oldest = found.oldest_pending
        waits = "nothing is due" if oldest is None else f"the oldest has been due for {age(oldest)}"
        out.print(
            Text.assemble(("healthy", "bold green"), f"  {found.workers} live workers; {waits}"),
            soft_wrap=True,
        )
