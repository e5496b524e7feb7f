"""Retry, cancel and delete: some jobs by their ids, or many by a filter, after a question."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from holdfast.app import Holdfast
from holdfast.cli.filters import Filters
from holdfast.cli.output import count, job_fields, print_json
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.job import UNFINISHED, Job, Status
from holdfast.jobs import COUNT_CAP, Jobs

Ids = Annotated[list[str] | None, typer.Argument(metavar="ID...", help="Jobs by their ids.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@dataclass(frozen=True)
class Verb:
    name: str
    done: str
    act: Callable[[Jobs], Callable[..., Any]]
    statuses: Iterable[Status] | None  #: of a filter that names none


RETRY = Verb("retry", "retried", lambda jobs: jobs.retry, [Status.FAILED])
CANCEL = Verb("cancel", "cancelled", lambda jobs: jobs.cancel, sorted(UNFINISHED))
DELETE = Verb("delete", "deleted", lambda jobs: jobs.delete, None)


@dataclass(frozen=True)
class Call:
    ids: list[str]
    filters: Filters
    limit: int | None
    yes: bool
    as_json: bool


def change(holdfast: Holdfast, verb: Verb, call: Call) -> None:
    wanted = call.filters.wanted()
    if call.ids:
        if wanted or call.limit is not None:
            raise InvalidInput("give ids or a filter, not both")
        _change_some(holdfast, verb, call)
    elif wanted:
        _change_many(holdfast, verb, call, wanted)
    else:
        raise InvalidInput(
            f"which jobs to {verb.name}? Give ids, or a filter such as --status, --type or --entity"
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
                typer.echo(f"holdfast: {problem}", err=True)
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
    changed = verb.act(holdfast.jobs)(limit=call.limit, **wanted) if number else 0
    if call.as_json:
        print_json({"matched": number, verb.done: changed})
    else:
        typer.echo(f"{verb.done} {changed} of {count(number, COUNT_CAP)} jobs")


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
