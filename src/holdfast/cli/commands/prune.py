"""`holdfast prune`: delete finished jobs whose retention is over, as workers do all the time."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.filters import duration
from holdfast.cli.options import Confirmation
from holdfast.cli.progress_bars import counter
from holdfast.cli.target import AppArgument, Common
from holdfast.engine.records import Retention

if TYPE_CHECKING:
    from holdfast.worker.housekeeping.pruning import Pruner, Work

_PAUSE = 0.05  # seconds between two batches: claims come first
Told = Callable[[int], object]


def prune(
    application: AppArgument = None,
    older_than: Annotated[
        str | None,
        typer.Option(help="All that finished so long ago: '3d'. Asks first."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would go.")] = False,
    *,
    confirmation: Confirmation,
    common: Common,
) -> None:
    """Delete finished jobs whose time is over, in batches. Workers do so by themselves.

    With an application, its on_prune hooks are called and its archive is written. A job whose task has
    a hook that is not known here stays.
    """
    from holdfast.worker.housekeeping.pruning import pruner_of

    age = None if older_than is None else duration(older_than, "--older-than")
    with (
        common.opened(application) as holdfast,
        pruner_of(holdfast, declare=not dry_run) as pruner,
    ):
        wanted = pruner.wanted(age, everywhere=True)
        if dry_run:
            _count(pruner, wanted, common)
            return
        if older_than is not None and not confirmation.yes:
            _ask(confirmation, pruner, wanted, older_than)
        with counter("pruned", hidden=common.as_json) as told:
            total = _run(pruner, wanted, told)
        _, unknown = pruner.count(wanted)
    failed = f"{total.failed} could not go, and are tried again later: see their prune_error"
    common.report(
        {"pruned": total.gone, "failed": total.failed, "kept": unknown},
        f"pruned {total.gone} jobs",
        *([failed] if total.failed else []),
        *_kept(unknown),
    )


def _run(pruner: "Pruner", wanted: Retention, told: Told) -> "Work":
    total = pruner.look(wanted)
    while total.more:
        told(total.gone)
        time.sleep(_PAUSE)
        total += pruner.look(wanted)
    return total


def _count(pruner: "Pruner", wanted: Retention, common: Common) -> None:
    """Report what would go."""
    with counter("looking", hidden=common.as_json) as told:
        due, unknown = pruner.count(wanted, told)
    parts = ", ".join(f"{number} {status}" for status, number in due.items() if number)
    common.report(
        {"due": {status.value: number for status, number in due.items()}, "kept": unknown},
        f"{sum(due.values())} jobs would go{': ' if parts else ''}{parts}",
        *_kept(unknown),
    )


def _kept(unknown: int) -> list[str]:
    if not unknown:
        return []
    reason = "their tasks have an on_prune that is not known here"
    return [f"{unknown} stay: {reason}; give the application"]


def _ask(confirmation: Confirmation, pruner: "Pruner", wanted: Retention, age: str) -> None:
    with counter("looking", hidden=False) as told:
        number = sum(pruner.count(wanted, told)[0].values())
    matches = f"{number} jobs finished over {age} ago"
    confirmation.ask(
        f"{matches}: delete them?",
        f"{matches}, and nobody can be asked whether to delete them",
        needless=not number,
    )
