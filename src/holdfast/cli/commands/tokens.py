"""`holdfast tokens`: create, list and revoke the tokens of the web interface."""

from datetime import datetime
from typing import Annotated

import typer
from rich.text import Text

from holdfast.access import ROLES, Access, TokenInfo
from holdfast.cli.options import Commands
from holdfast.cli.output import Column, clean, full_time, hint, select, when
from holdfast.cli.target import Common

commands = Commands(name="tokens", help="Tokens of the web interface: make, list and revoke them.")

_FIELDS = (
    *("id", "name", "role", "tasks", "queues", "created_by"),
    *("created_at", "expires_at", "revoked_at", "last_used_at"),
)


def _columns(now: datetime) -> list[Column[TokenInfo]]:
    return [
        Column("ID", lambda token: token.id),
        Column("NAME", lambda token: token.name, may_be_cut=True),
        Column("ROLE", lambda token: token.role),
        Column("STATE", lambda token: _state(token, now)),
        Column("MADE", lambda token: token.created_at, right=True, from_width=100),
        Column("USED", lambda token: token.last_used_at, right=True),
        Column("ONLY", _only, may_be_cut=True, from_width=120),
    ]


def _only(token: TokenInfo) -> str:
    """Return the tasks and queues that an enqueue token is restricted to."""
    return ", ".join([*token.tasks, *(f"queue:{name}" for name in token.queues)])


def _state(token: TokenInfo, now: datetime) -> Text:
    if token.revoked_at is not None:
        return Text("revoked", style="dim")
    if token.expires_at is None:
        return Text("valid", style="green")
    if token.expires_at <= now:
        return Text("expired", style="dim")
    return Text(f"ends {when(token.expires_at, now)}", style="yellow")


@commands.command()
def create(
    name: Annotated[str, typer.Option(help="Whose it is: 'ann', 'deploy script'.")],
    role: Annotated[str, typer.Option(help=f"One of {', '.join(ROLES)}.")] = "viewer",
    task: Annotated[
        list[str] | None, typer.Option(help="Of an enqueue token: only this task; may be repeated.")
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(help="Of an enqueue token: only this queue; may be repeated."),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="After so long: '30d'. Without: never.")
    ] = None,
    *,
    common: Common,
) -> None:
    """Make a token. It is printed once: only its hash is kept."""
    with common.opened() as holdfast:
        made, secret = Access(holdfast).create(
            name, role, tasks=task or (), queues=queue or (), expires=expires, by="the command"
        )
        now = holdfast.engine.now()
    if common.printed_json({**select(made, _FIELDS), "token": secret}):
        return
    typer.echo(secret)
    end = made.expires_at
    until = "until it is revoked" if end is None else f"until {full_time(end, now)}"
    hint(f"{made.role} token {clean(made.name)!r}, {until}; it is not shown again")


@commands.command("list")
def show(common: Common) -> None:
    """Every token, the newest first; not what it says, which is known to its owner only."""
    with common.opened() as holdfast:
        now = holdfast.engine.now()
        common.print_list(Access(holdfast).list(), _columns(now), fields=_FIELDS, now=now)


@commands.command()
def revoke(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="As `list` shows them.")],
    common: Common,
) -> None:
    """Revoke tokens, and end the sessions that were begun with them."""
    with common.opened() as holdfast:
        revoked = [Access(holdfast).revoke(id) for id in ids]
    lines = (f"revoked {token.id}: {clean(token.name)}" for token in revoked)
    common.report([select(token, _FIELDS) for token in revoked], *lines)
