"""`holdfast tokens`: who may use the web interface."""

from datetime import datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from holdfast.access import ROLES, Access, TokenInfo
from holdfast.cli.options import Commands
from holdfast.cli.output import Column, both, clean, console, iso, print_json, print_table, when
from holdfast.cli.target import (
    JsonOption,
    Target,
)

commands = Commands(help="Tokens of the web interface: make, list and revoke them.")

_FIELDS = ("id", "name", "role", "tasks", "queues", "created_by")
_TIMES = ("created_at", "expires_at", "revoked_at", "last_used_at")
_COLUMNS = [
    Column("ID"),
    Column("NAME", may_be_cut=True),
    Column("ROLE"),
    Column("STATE"),
    Column("MADE", right=True, from_width=100),
    Column("USED", right=True),
    Column("ONLY", may_be_cut=True, from_width=120),
]


@commands.command()
def create(
    name: Annotated[str, typer.Option("--name", help="Whose it is: 'ann', 'deploy script'.")],
    role: Annotated[str, typer.Option("--role", help=f"One of {', '.join(ROLES)}.")] = "viewer",
    task: Annotated[
        list[str] | None,
        typer.Option("--task", help="Of an enqueue token: only this task; may be repeated."),
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", help="Of an enqueue token: only this queue; may be repeated."),
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", help="After so long: '30d'. Without: never.")
    ] = None,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Make a token. It is printed once: only its hash is kept."""
    with target.opened() as holdfast:
        made, secret = Access(holdfast).create(
            name, role, tasks=task or (), queues=queue or (), expires=expires, by="the command"
        )
        now = holdfast.engine.now()
    if as_json:
        print_json({**token_fields(made), "token": secret})
        return
    typer.echo(secret)
    if console().is_terminal:
        end = made.expires_at
        until = "until it is revoked" if end is None else f"until {both(end, now)}"
        told = f"{made.role} token {clean(made.name)!r}, {until}; it is not shown again"
        typer.echo(told, err=True)


@commands.command("list")
def show(
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Every token, the newest first; not what it says, which is known to its owner only."""
    with target.opened() as holdfast:
        found = Access(holdfast).list()
        now = holdfast.engine.now()
    if as_json:
        print_json([token_fields(token) for token in found])
        return
    print_table(_COLUMNS, (_row(token, now) for token in found))


@commands.command()
def revoke(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="As `list` shows them.")],
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Let tokens count no more, from now on; who is logged in by one is logged out."""
    with target.opened() as holdfast:
        revoked = [Access(holdfast).revoke(id) for id in ids]
    if as_json:
        print_json([token_fields(token) for token in revoked])
        return
    for token in revoked:
        typer.echo(f"revoked {token.id}: {clean(token.name)}")


def token_fields(token: TokenInfo) -> dict[str, Any]:
    fields = {name: getattr(token, name) for name in _FIELDS}
    return fields | {name: iso(getattr(token, name)) for name in _TIMES}


def _row(token: TokenInfo, now: datetime) -> list[str | Text]:
    people = console().is_terminal

    def moment(at: datetime | None) -> str:
        if at is None:
            return "-"
        return when(at, now) if people else iso(at) or ""

    only = [*token.tasks, *(f"queue:{name}" for name in token.queues)]
    return [
        token.id,
        clean(token.name),
        token.role,
        _state(token, now),
        moment(token.created_at),
        moment(token.last_used_at),
        clean(", ".join(only)) or "-",
    ]


def _state(token: TokenInfo, now: datetime) -> Text:
    if token.revoked_at is not None:
        return Text("revoked", style="dim")
    if token.expires_at is None:
        return Text("valid", style="green")
    if token.expires_at <= now:
        return Text("expired", style="dim")
    return Text(f"ends {when(token.expires_at, now)}", style="yellow")
