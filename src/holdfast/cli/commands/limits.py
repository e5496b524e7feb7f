"""`holdfast limits`: list the limits of tasks and queues, and change them while workers run."""

from typing import Annotated

import typer
from rich.text import Text

from holdfast.app import Holdfast
from holdfast.cli.options import Commands
from holdfast.cli.output import Column, count
from holdfast.cli.target import Common
from holdfast.engine.records import LimitInfo
from holdfast.errors import InvalidInput, UnknownLimit
from holdfast.limits.client import CAP
from holdfast.limits.limit import QUEUE

commands = Commands(
    name="limits", help="The limits of tasks and queues: what they allow, and what waits."
)

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


_COLUMNS: list[Column[LimitInfo]] = [
    Column("NAME", lambda limit: limit.name, may_be_cut=True),
    Column("TASKS", lambda limit: ", ".join(limit.tasks), may_be_cut=True, from_width=100),
    Column("AT ONCE", lambda limit: limit.concurrency, right=True),
    Column("RATE", lambda limit: limit.rate, right=True),
    Column(
        "PER KEY", lambda limit: ("yes, fair" if limit.fair else "yes") if limit.keyed else None
    ),
    Column("RUNNING", lambda limit: count(limit.running, CAP), right=True),
    Column("WAITING", lambda limit: count(limit.waiting, CAP) if limit.keyed else None, right=True),
    Column("SET BY", lambda limit: Text("operator", style="yellow") if limit.changed else "code"),
]


@commands.command("list")
def show(common: Common) -> None:
    """Every limit, with what runs under it and what waits for one of its keys.

    What waits for a limit without keys stays pending, and is counted there.
    """
    with common.opened() as holdfast:
        found = holdfast.limits.list()
    if_empty = "a worker makes the limits of its tasks known when it starts"
    common.print_list(found, _COLUMNS, if_empty=if_empty)


@commands.command("set")
def change(
    name: Name, concurrency: Concurrency = None, rate: RateOption = None, *, common: Common
) -> None:
    """Use these numbers from the next claim on; what runs goes on.

    What is not given is as the code says. A worker that starts does not undo it; 'reset' does.
    """
    if concurrency is None and rate is None:
        raise InvalidInput(
            f"what shall {name!r} be? Give a concurrency, --rate, or both; 'holdfast limits reset "
            f"{name}' goes back to the code's"
        )
    with common.opened() as holdfast:
        holdfast.limits.set(name, concurrency, rate=rate)
        report_limit(holdfast, name, common)


@commands.command()
def reset(name: Name, common: Common) -> None:
    """Use the code's numbers again. A queue has none: its limit is gone then."""
    with common.opened() as holdfast:
        if name.startswith(QUEUE) and _find(holdfast, name) is None:
            raise UnknownLimit(f"there is no limit named {name!r}: 'holdfast limits list' has them")
        holdfast.limits.reset(name)
        report_limit(holdfast, name, common)


def _find(holdfast: Holdfast, name: str) -> LimitInfo | None:
    return next((limit for limit in holdfast.limits.list() if limit.name == name), None)


def report_limit(holdfast: Holdfast, name: str, common: Common) -> None:
    """Print a limit that was changed, as it is now, or that it was removed."""
    limit = _find(holdfast, name)
    common.report(limit, f"{name}: {'no limit' if limit is None else _bounds(limit)}")


def _bounds(limit: LimitInfo) -> str:
    at_once = None if limit.concurrency is None else f"{limit.concurrency} at once"
    rate = None if limit.rate is None else f"at most {limit.rate}"
    bounds = ", ".join(filter(None, (at_once, rate))) or "no bound"
    return f"{bounds}, for each key" if limit.keyed else bounds
