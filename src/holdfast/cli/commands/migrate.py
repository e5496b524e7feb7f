"""`holdfast migrate`: create the tables, or upgrade them to this release."""

from typing import Annotated

import typer

from holdfast.cli.output import print_json
from holdfast.cli.target import (
    AppArgument,
    JsonOption,
    Target,
)


def migrate(
    application: AppArgument = None,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL instead, for your own migrations.")
    ] = False,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Create the tables, or upgrade them to this release. Workers may run meanwhile.

    Safe to repeat, to interrupt, and to run from many machines together."""
    with target.choose(application, make=True) as holdfast:
        if sql:
            typer.echo(holdfast.engine.migrations_sql())
            return
        applied = holdfast.migrate()
    if as_json:
        print_json({"applied": applied})
        return
    for name in applied:
        typer.echo(f"applied {name}")
    if not applied:
        typer.echo("nothing to do: the tables are those of this release")
