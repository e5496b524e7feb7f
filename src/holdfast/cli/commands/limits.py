"""`holdfast limits`: what holds jobs back, and changing it while they run."""

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.text import Text

from holdfast.app import Holdfast
from holdfast.cli.options import Commands
from holdfast.cli.output import Column, clean, console, count, print_json, print_table
from holdfast.cli.target import (
    JsonOption,
    Target,
)
from holdfast.engine.records import LimitInfo
from holdfast.errors import InvalidInput, UnknownLimit
from holdfast.jobs.queues import CAP
from holdfast.limits.limit import QUEUE

commands = Commands(help="The limits of tasks and queues: what they allow, and what waits.")

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="As the list has it; 'queue:media' is a queue's.")
]
Concurrency = Annotated[
    int | None,
    typer.Argument(metavar="CONCURRENCY", min=0, help="As many run at once; 0: none begin."),
]
RateOption = Annotated[
    str | None, typer.Option("--rate", help="As many may start in a time: '100/m', '5/s'.")
]
_COLUMNS = [
    Column("NAME", may_be_cut=True),
    Column("TASKS", may_be_cut=True, from_width=100),
    Column("AT ONCE", right=True),
    Column("RATE", right=True),
    Column("PER KEY"),
    Column("RUNNING", right=True),
    Column("WAITING", right=True),
    Column("SET BY"),
]


@commands.command("list")
def show(
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Every limit, with what runs under it and what waits for one of its keys.

    What waits for a limit without keys stays pending, and is counted there.
    """
    with target.opened() as holdfast:
        found = holdfast.limits.list()
    if as_json:
        print_json([asdict(limit) for limit in found])
        return
    print_table(_COLUMNS, (_row(limit) for limit in found))
    if not found and console().is_terminal:
        typer.echo("a worker makes the limits of its tasks known when it starts", err=True)


def _row(limit: LimitInfo) -> list[str | Text]:
    keys = Text("-", style="dim")
    if limit.keyed:
        keys = Text("yes, fair" if limit.fair else "yes")
    return [
        clean(limit.name),
        clean(", ".join(limit.tasks)) or "-",
        "-" if limit.concurrency is None else str(limit.concurrency),
        limit.rate or "-",
        keys,
        count(limit.running, CAP),
        count(limit.waiting, CAP) if limit.keyed else "-",
        Text("operator", style="yellow") if limit.changed else Text("code"),
    ]


@commands.command("set")
def change(
    name: Name,
    concurrency: Concurrency = None,
    rate: RateOption = None,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Use these numbers from the next claim on; what runs goes on.

    What is not given is as the code says. A worker that starts does not undo it; 'reset' does.
    """
    if concurrency is None and rate is None:
        raise InvalidInput(
            f"what shall {name!r} be? Give a concurrency, --rate, or both; 'holdfast limits reset "
            f"{name}' goes back to the code's"
        )
    with target.opened() as holdfast:
        holdfast.limits.set(name, concurrency, rate=rate)
        found = find(holdfast, name)
    report(found, name, as_json)


@commands.command()
def reset(
    name: Name,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Use the code's numbers again. A queue has none: its limit is gone then."""
    with target.opened() as holdfast:
        if name.startswith(QUEUE) and find(holdfast, name) is None:
            raise UnknownLimit(f"there is no limit named {name!r}: 'holdfast limits list' has them")
        holdfast.limits.reset(name)
        found = find(holdfast, name)
    report(found, name, as_json)


def find(holdfast: Holdfast, name: str) -> LimitInfo | None:
    return next((limit for limit in holdfast.limits.list() if limit.name == name), None)


def report(limit: LimitInfo | None, name: str, as_json: bool) -> None:
    """What a limit is now; None: gone."""
    if as_json:
        print_json(None if limit is None else asdict(limit))
    elif limit is None:
        typer.echo(f"{name}: no limit")
    else:
        typer.echo(f"{name}: {_words(limit)}")


def _words(limit: LimitInfo) -> str:
    parts: list[Any] = []
    if limit.concurrency is not None:
        parts.append(f"{limit.concurrency} at once")
    if limit.rate is not None:
        parts.append(f"at most {limit.rate}")
    told = ", ".join(parts) or "no bound"
    return f"{told}, for each key" if limit.keyed else told
