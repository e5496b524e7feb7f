"""`holdfast prune`: delete finished jobs whose retention is over, as workers do all the time."""

import time
from typing import Annotated

import typer

from holdfast.cli.filters import parse_duration
from holdfast.cli.options import Confirmation
from holdfast.cli.progress_bars import counter
from holdfast.cli.target import AppArgument, Common

_PAUSE = 0.05  # seconds between two batches: claims come first


def prune(
    application: AppArgument = None,
    older_than: Annotated[
        str | None, typer.Option(help="All that finished so long ago: '3d'. Asks first.")
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

    age = None if older_than is None else parse_duration(older_than, "--older-than")
    with common.opened(application) as holdfast, pruner_of(holdfast, declare=not dry_run) as pruner:
        wanted = pruner.wanted(age, everywhere=True)
        if dry_run or not (age is None or confirmation.yes):
            with counter("looking", hidden=common.as_json) as show:
                due, unknown = pruner.count(wanted, show)
            number = sum(due.values())
            if dry_run:
                parts = ", ".join(f"{number} {status}" for status, number in due.items() if number)
                text = f"{number} jobs would go{': ' if parts else ''}{parts}"
                common.report({"due": due, "kept": unknown}, text, *_kept(unknown))
                return
            matches = f"{number} jobs finished over {older_than} ago"
            confirmation.ask(
                f"{matches}: delete them?",
                f"{matches}, and nobody can be asked whether to delete them",
                skip=not number,
            )
        with counter("pruned", hidden=common.as_json) as show:
            total = pruner.look(wanted)
            while total.more:
                show(total.gone)
                time.sleep(_PAUSE)
                total += pruner.look(wanted)
        _, unknown = pruner.count(wanted)
    failed = f"{total.failed} could not go, and are tried again later: see their prune_error"
    common.report(
        {"pruned": total.gone, "failed": total.failed, "kept": unknown},
        f"pruned {total.gone} jobs",
        *([failed] if total.failed else []),
        *_kept(unknown),
    )


def _kept(unknown: int) -> list[str]:
    if not unknown:
        return []
    reason = "their tasks have an on_prune that is not known here"
    return [f"{unknown} stay: {reason}; give the application"]
