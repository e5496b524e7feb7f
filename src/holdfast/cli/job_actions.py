"""Retry, cancel and delete: some jobs by their ids, or many by a filter, after a question."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from holdfast.app import Holdfast
from holdfast.cli.filters import Filters
from holdfast.cli.output import clean, count, job_fields, print_json
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.jobs.bulk_result import Changed
from holdfast.jobs.client import COUNT_CAP, Jobs
from holdfast.jobs.job import UNFINISHED, Job, Status

Ids = Annotated[list[str] | None, typer.Argument(metavar="ID...", help="Jobs by their ids.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
AllOption = Annotated[
    bool, typer.Option("--all", help="All that match the filter; without one, every job.")
]


@dataclass(frozen=True)
class Verb:
    name: str
    done: str
    act: Callable[[Jobs], Callable[[str], Job]]
    act_on_all: Callable[[Jobs], Callable[..., Changed]]
    statuses: Iterable[Status] | None  #: of a filter that names none


RETRY = Verb(
    "retry", "retried", lambda jobs: jobs.retry, lambda jobs: jobs.retry_all, [Status.FAILED]
)
CANCEL = Verb(
    "cancel",
    "cancelled",
    lambda jobs: jobs.cancel,
    lambda jobs: jobs.cancel_all,
    sorted(UNFINISHED),
)
DELETE = Verb("delete", "deleted", lambda jobs: jobs.delete, lambda jobs: jobs.delete_all, None)


@dataclass(frozen=True)
class Call:
    ids: list[str]
    every: bool  #: of a filter that names nothing: all of them
    filters: Filters
    limit: int | None
    yes: bool
    as_json: bool


def change(holdfast: Holdfast, verb: Verb, call: Call) -> None:
    wanted = call.filters.wanted()
    if call.ids:
        if wanted or call.every or call.limit is not None:
            raise InvalidInput("give ids or a filter, not both")
        _change_some(holdfast, verb, call)
    elif wanted or call.every:
        _change_many(holdfast, verb, call, wanted)
    else:
        raise InvalidInput(
            f"which jobs to {verb.name}? Give ids, or a filter such as --status, --type or --entity, "
            "or --all"
        )


def _change_some(holdfast: Holdfast, verb: Verb, call: Call) -> None:
    """Each by itself: one that is refused keeps none of the others from it."""
    changed: list[Job] = []
    first: HoldfastError | None = None
    for id in call.ids:
        try:
            changed.append(verb.act(holdfast.jobs)(id))
        except HoldfastError as problem:
            if first is not None:
                typer.echo(f"holdfast: {clean(problem, lines=True)}", err=True)
            first = first or problem
    if call.as_json:
        print_json([job_fields(job) for job in changed])
    else:
        for job in changed:
            asked = verb is CANCEL and job.status is Status.RUNNING
            typer.echo(f"{'asked to stop' if asked else verb.done} {job.id}")
    if first is not None:
        raise first


def _change_many(holdfast: Holdfast, verb: Verb, call: Call, wanted: dict[str, Any]) -> None:
    if verb.statuses is not None:
        wanted.setdefault("status", verb.statuses)
    cap = COUNT_CAP if call.limit is None else min(COUNT_CAP, call.limit)
    number = holdfast.jobs.count(cap=cap, **wanted)
    if not call.yes:
        _ask(verb, count(number, COUNT_CAP))
    act = verb.act_on_all(holdfast.jobs)
    with _bar(verb, number, call) as progress:
        changed = act(everything=True, progress=progress, limit=call.limit, **wanted)
    if call.as_json:
        told = {"matched": changed.matched, verb.done: changed.changed}
        print_json({**told, "skipped": dict(changed.skipped)})
        return
    reasons = ", ".join(f"{number} {why}" for why, number in sorted(changed.skipped.items()))
    skipped = f"; skipped: {reasons}" if reasons else ""
    typer.echo(f"{verb.done} {changed.changed} of {changed.matched} jobs{skipped}")


@contextmanager
def _bar(verb: Verb, total: int, call: Call) -> Iterator[Callable[[Changed], None] | None]:
    """How far it has come, for people who wait for many."""
    out = Console(stderr=True, highlight=False, emoji=False, markup=False)
    if call.as_json or not out.is_terminal:
        yield None
        return
    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    with Progress(*columns, TimeRemainingColumn(), console=out, transient=True) as bars:
        bar = bars.add_task(verb.name, total=total)
        yield lambda changed: bars.update(bar, completed=changed.matched)


def _ask(verb: Verb, number: str) -> None:
    confirm(
        f"{verb.name} {number} jobs?",
        f"{number} jobs match, and nobody can be asked whether to {verb.name} them",
        needless=number == "0",
    )


def confirm(question: str, refusal: str, *, needless: bool = False) -> None:
    """Go on if somebody says so. Where there is nobody to ask, the call is refused."""
    if not sys.stdin.isatty():
        raise InvalidInput(f"{refusal} (stdin is no terminal): add --yes")
    if not needless and not typer.confirm(question, err=True):
        typer.echo("nothing was changed", err=True)
        raise typer.Exit(1)
