"""`holdfast queues`: the lanes, and holding them up."""

from typing import Annotated

import typer
from rich.text import Text

from holdfast.cli.output import Column, count, iso, print_json, print_table
from holdfast.cli.target import SCHEMA, AppOption, JsonOption, SchemaOption, UrlOption, opened
from holdfast.engine import QueueInfo
from holdfast.queues import CAP

commands = typer.Typer(help="The queues: how full they are, and which are paused.")

Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Queues.")]


@commands.command("list")
def show(
    app: AppOption = None,
    url: UrlOption = None,
    schema: SchemaOption = SCHEMA,
    as_json: JsonOption = False,
) -> None:
    """The queues that hold pending jobs or were ever paused."""
    with opened(app, url, schema) as holdfast:
        found = holdfast.queues.list()
    if as_json:
        print_json([queue_fields(queue) for queue in found])
    else:
        print_queues(found)


@commands.command()
def pause(
    names: Names,
    app: AppOption = None,
    url: UrlOption = None,
    schema: SchemaOption = SCHEMA,
    as_json: JsonOption = False,
) -> None:
    """Let nothing of these queues be claimed until they are resumed. What runs goes on."""
    _change(names, app, url, schema, as_json, paused=True)


@commands.command()
def resume(
    names: Names,
    app: AppOption = None,
    url: UrlOption = None,
    schema: SchemaOption = SCHEMA,
    as_json: JsonOption = False,
) -> None:
    """Let these queues go on."""
    _change(names, app, url, schema, as_json, paused=False)


def _change(
    names: list[str], app: str | None, url: str | None, schema: str, as_json: bool, *, paused: bool
) -> None:
    with opened(app, url, schema) as holdfast:
        for name in names:
            (holdfast.queues.pause if paused else holdfast.queues.resume)(name)
        found = [queue for queue in holdfast.queues.list() if queue.name in names]
    if as_json:
        print_json([queue_fields(queue) for queue in found])
        return
    for name in names:
        typer.echo(f"{'paused' if paused else 'resumed'} {name}")


def queue_fields(queue: QueueInfo) -> dict[str, object]:
    return {"name": queue.name, "depth": queue.depth, "paused_at": iso(queue.paused_at)}


def print_queues(queues: list[QueueInfo]) -> None:
    print_table(
        [Column("QUEUE"), Column("PENDING", right=True), Column("PAUSED SINCE")],
        (
            (
                queue.name,
                count(queue.depth, CAP),
                Text(iso(queue.paused_at) or "-", style="yellow" if queue.paused_at else "dim"),
            )
            for queue in queues
        ),
    )
