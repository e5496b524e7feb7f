"""`holdfast queues`: the lanes, and holding them up."""

from datetime import datetime
from typing import Annotated

import typer
from rich.text import Text

from holdfast.app import Holdfast
from holdfast.cli.commands.limits import Concurrency, RateOption, find, report
from holdfast.cli.filters import duration, instant
from holdfast.cli.job_actions import YesOption, confirm
from holdfast.cli.options import Commands
from holdfast.cli.output import Column, both, count, iso, print_json, print_table
from holdfast.cli.target import (
    JsonOption,
    Target,
)
from holdfast.engine.records import QueueInfo
from holdfast.errors import InvalidInput
from holdfast.jobs.job import WAITING
from holdfast.jobs.queues import CAP
from holdfast.limits.limit import QUEUE

commands = Commands(help="The queues: how full they are, pausing, limiting and emptying them.")

Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Queues.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A queue.")]


@commands.command("list")
def show(
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """The queues that hold pending jobs or were ever paused."""
    with target.opened() as holdfast:
        found = holdfast.queues.list()
    if as_json:
        print_json([queue_fields(queue) for queue in found])
    else:
        print_queues(found)


@commands.command()
def pause(
    names: Names,
    during: Annotated[
        str | None, typer.Option("--for", help="Go on by itself after so long: '10m'.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Or at this moment: 2030-01-31T12:00, UTC.")
    ] = None,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Let nothing of these queues be claimed until they are resumed. What runs goes on."""
    if during is not None and until is not None:
        raise InvalidInput("--for and --until were both given: give one of them")
    seconds = None if during is None else duration(during, "--for")
    moment = None if until is None else instant(until, "--until", "--for")
    with target.opened() as holdfast:
        if moment is not None and moment <= holdfast.engine.now():
            raise InvalidInput(f"--until {until}: this is past; give a moment to come (UTC)")
        for name in names:
            holdfast.queues.pause(name, resume_at=moment, resume_in=seconds)
        found = _named(holdfast, names)
        now = holdfast.engine.now()
    if as_json:
        print_json([queue_fields(queue) for queue in found])
        return
    for queue in found:
        resumes = f", resumes {both(queue.resume_at, now)}" if queue.resume_at else ""
        typer.echo(f"paused {queue.name}{resumes}")


@commands.command()
def resume(
    names: Names,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Let these queues go on."""
    with target.opened() as holdfast:
        for name in names:
            holdfast.queues.resume(name)
        found = _named(holdfast, names)
    if as_json:
        print_json([queue_fields(queue) for queue in found])
        return
    for queue in found:
        typer.echo(f"resumed {queue.name}")


def _named(holdfast: Holdfast, names: list[str]) -> list[QueueInfo]:
    """Those queues, in the order given."""
    found = {queue.name: queue for queue in holdfast.queues.list()}
    return [found[name] for name in dict.fromkeys(names) if name in found]


@commands.command()
def limit(
    name: Name,
    concurrency: Concurrency = None,
    rate: RateOption = None,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Bound what runs of a queue at once, and starts in a time, over all workers.

    With neither, its limit is removed. 'holdfast limits list' shows it as queue:NAME.
    """
    with target.opened() as holdfast:
        holdfast.queues.limit(name, concurrency, rate=rate)
        found = find(holdfast, QUEUE + name)
    report(found, QUEUE + name, as_json)


@commands.command()
def purge(
    name: Name,
    yes: YesOption = False,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Delete every job of a queue that waits. What runs goes on, and what recurs stays."""
    with target.opened() as holdfast:
        number = _waiting(holdfast, name)
        told = f"{count(number, CAP)} jobs wait in queue {name!r}"
        if not yes:
            confirm(
                f"{told}: delete them?",
                f"{told}, and nobody can be asked whether to delete them",
                needless=not number,
            )
        deleted = holdfast.queues.purge(name)
    if as_json:
        print_json({"matched": number, "deleted": deleted})
    else:
        typer.echo(f"deleted {deleted} of {count(number, CAP)} jobs")


def _waiting(holdfast: Holdfast, name: str) -> int:
    """How many a purge would delete, counted up to a cap."""
    number = 0
    for job in holdfast.jobs.search(status=sorted(WAITING), queue=name):
        number += job.schedule is None
        if number == CAP:
            break
    return number


def queue_fields(queue: QueueInfo) -> dict[str, object]:
    return {
        "name": queue.name,
        "depth": queue.depth,
        "paused_at": iso(queue.paused_at),
        "resume_at": iso(queue.resume_at),
    }


def print_queues(queues: list[QueueInfo]) -> None:
    print_table(
        [
            Column("QUEUE"),
            Column("PENDING", right=True),
            Column("PAUSED SINCE"),
            Column("RESUMES"),
        ],
        (
            (
                queue.name,
                count(queue.depth, CAP),
                _moment(queue.paused_at),
                _moment(queue.resume_at),
            )
            for queue in queues
        ),
    )


def _moment(moment: datetime | None) -> Text:
    return Text(iso(moment) or "-", style="dim" if moment is None else "yellow")
