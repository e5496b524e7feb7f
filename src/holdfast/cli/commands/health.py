"""`holdfast health`: is work being done? By its exit code, for monitors."""

from dataclasses import asdict, dataclass
from typing import Annotated, cast

import typer
from rich.text import Text

from holdfast.cli.filters import duration
from holdfast.cli.output import age, clean, console, print_json
from holdfast.cli.target import AppArgument, Common, refuse_absent
from holdfast.errors import DatabaseUnavailable
from holdfast.monitoring.health import Health, HealthLimits, unreachable


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """The options that say what is healthy; the application's settings have the rest."""

    max_age: Annotated[
        str | None,
        typer.Option(
            help="Maximum time that a job may have been due, such as '5m' (default '1h')."
        ),
    ] = None
    stall: Annotated[
        str | None,
        typer.Option(help="Maximum time without a finished job while work waits (default '10m')."),
    ] = None
    failure_rate: Annotated[
        float | None,
        typer.Option(help="Maximum failure rate before the check fails (default 0.05)."),
    ] = None
    window: Annotated[
        str | None,
        typer.Option(help="The period over which rates and shares are computed (default '1h')."),
    ] = None
    expected_workers: Annotated[
        int | None, typer.Option(help="Number of live workers that is expected.")
    ] = None
    spread: Annotated[
        float | None,
        typer.Option(
            help="Minimum part of an equal share that each worker of a queue does (default 0.25)."
        ),
    ] = None

    def given(self) -> HealthLimits:
        """Return the limits that were given, as `app.health` takes them."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        for name in ("max_age", "stall", "window"):
            if (text := given.get(name)) is not None:
                option = f"--{name.replace('_', '-')}"
                given[name] = None if text == "none" else duration(text, option)
        return cast(HealthLimits, given)


def health(
    application: AppArgument = None,
    *,
    limits: LimitOptions,
    common: Common,
) -> None:
    """Is work being done? Exit code 0: yes. 1: no, and what to do about it is printed.

    Looks at: the database and its tables, and whether it commits a write; live workers, if jobs are
    pending or running, or as many as are expected; pending jobs whose task or queue no live worker
    takes; how long jobs have been due; whether anything ends while work waits; the failure rate; paused
    queues with jobs; stuck jobs; silent workers. Warns of idle workers, and of several versions.
    """
    wanted = limits.given()
    with common.choose(application) as holdfast:
        try:
            refuse_absent(holdfast)
            found = holdfast.health(**wanted)
        except DatabaseUnavailable as problem:
            found = unreachable(str(problem))
    if common.as_json:
        print_json(found)
    else:
        _print(found)
    raise typer.Exit(0 if found.ok else 1)


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
