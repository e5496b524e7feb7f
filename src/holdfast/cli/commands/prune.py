"""`holdfast prune`: let finished jobs go whose time is over, as workers do all the time."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

from holdfast.cli.filters import duration
from holdfast.cli.job_actions import YesOption, confirm
from holdfast.cli.output import print_json
from holdfast.cli.target import (
    AppArgument,
    JsonOption,
    Target,
)
from holdfast.engine.records import Retention

if TYPE_CHECKING:
    from holdfast.worker.housekeeping.pruning import Pruner, Work

_PAUSE = 0.05  # seconds between two batches: claims come first
Told = Callable[[int], object]


def prune(
    application: AppArgument = None,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", help="All that finished so long ago: '3d'. Asks first."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would go.")] = False,
    yes: YesOption = False,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Delete finished jobs whose time is over, in batches. Workers do so by themselves.

    With an application, its on_prune hooks are called and its archive is written. A job whose task has
    a hook that is not known here stays.
    """
    from holdfast.worker.housekeeping.pruning import pruner_of

    age = None if older_than is None else duration(older_than, "--older-than")
    with (
        target.opened(application) as holdfast,
        pruner_of(holdfast, declare=not dry_run) as pruner,
    ):
        wanted = pruner.wanted(age, everywhere=True)
        if dry_run:
            _look(pruner, wanted, as_json)
            return
        if older_than is not None and not yes:
            _ask(pruner, wanted, older_than)
        with _counter("pruned", hidden=as_json) as told:
            total = _run(pruner, wanted, told)
        _, unknown = pruner.count(wanted)
    if as_json:
        print_json({"pruned": total.gone, "failed": total.failed, "kept": unknown})
        return
    typer.echo(f"pruned {total.gone} jobs")
    if total.failed:
        typer.echo(f"{total.failed} could not go, and are tried again later: see their prune_error")
    _tell_unknown(unknown)


def _run(pruner: "Pruner", wanted: Retention, told: Told) -> "Work":
    total = pruner.look(wanted)
    while total.more:
        told(total.gone)
        time.sleep(_PAUSE)
        total += pruner.look(wanted)
    return total


def _look(pruner: "Pruner", wanted: Retention, as_json: bool) -> None:
    with _counter("looking", hidden=as_json) as told:
        due, unknown = pruner.count(wanted, told)
    if as_json:
        print_json(
            {"due": {status.value: number for status, number in due.items()}, "kept": unknown}
        )
        return
    parts = ", ".join(f"{number} {status}" for status, number in due.items() if number)
    typer.echo(f"{sum(due.values())} jobs would go{': ' if parts else ''}{parts}")
    _tell_unknown(unknown)


def _tell_unknown(unknown: int) -> None:
    if unknown:
        typer.echo(
            f"{unknown} stay: their tasks have an on_prune that is not known here; give the application"
        )


def _ask(pruner: "Pruner", wanted: Retention, age: str) -> None:
    with _counter("looking", hidden=False) as told:
        number = sum(pruner.count(wanted, told)[0].values())
    matches = f"{number} jobs finished over {age} ago"
    confirm(
        f"{matches}: delete them?",
        f"{matches}, and nobody can be asked whether to delete them",
        needless=not number,
    )


@contextmanager
def _counter(what: str, *, hidden: bool) -> Iterator[Told]:
    """How far it has come, for people who wait."""
    out = Console(stderr=True, highlight=False, emoji=False, markup=False)
    if hidden or not out.is_terminal:
        yield lambda number: None
        return
    columns = [
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.completed} jobs"),
    ]
    with Progress(*columns, console=out, transient=True) as bars:
        bar = bars.add_task(what, total=None)
        yield lambda number: bars.update(bar, completed=number)
