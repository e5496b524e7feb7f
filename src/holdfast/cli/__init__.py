"""The command `holdfast`. It uses the application object only."""

import importlib
import os
import sys
from typing import Annotated

import typer

from holdfast.app import Holdfast
from holdfast.errors import DatabaseUnavailable, HoldfastError, SchemaError

cli = typer.Typer(
    name="holdfast",
    help="Durable background jobs in the database you already have.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

# Stable: scripts may rely on them. 1 is any other failure, 2 a wrong call.
EXIT_CODES = {DatabaseUnavailable: 3, SchemaError: 5}


@cli.callback()
def root() -> None:
    """Durable background jobs in the database you already have."""


@cli.command()
def migrate(
    app: Annotated[
        str | None,
        typer.Argument(metavar="[MODULE:APP]", help="The application, e.g. 'shop.jobs:app'."),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(envvar="HOLDFAST_URL", help="A database instead of an application."),
    ] = None,
    schema: Annotated[
        str, typer.Option(envvar="HOLDFAST_SCHEMA", help="On PostgreSQL.")
    ] = "holdfast",
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL instead, for your own migrations.")
    ] = False,
) -> None:
    """Bring the tables up to this release. Safe to repeat, and when many run it at once."""
    with load(app) if app else Holdfast(url, schema=schema) as holdfast:
        if sql:
            typer.echo(holdfast.engine.migrations_sql())
            return
        applied = holdfast.migrate()
        for name in applied:
            typer.echo(f"applied {name}")
        if not applied:
            typer.echo("nothing to do: the tables are those of this release")


def load(location: str) -> Holdfast:
    """The application at MODULE:APP, the current folder importable."""
    module, _, name = location.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), name or "app")
    except ModuleNotFoundError as problem:
        raise typer.BadParameter(f"{location!r}: {problem}") from problem
    except AttributeError:
        raise typer.BadParameter(
            f"{location!r}: module {module!r} has no {name or 'app'!r}"
        ) from None
    if not isinstance(found, Holdfast):
        raise typer.BadParameter(f"{location!r} is not a Holdfast application but {found!r}")
    return found


def main() -> None:
    """The console script: errors as one line on stderr, and a stable exit code."""
    try:
        cli()
    except HoldfastError as problem:
        typer.echo(f"holdfast: {problem}", err=True)
        code = next((code for kind, code in EXIT_CODES.items() if isinstance(problem, kind)), 1)
        raise SystemExit(code) from None
