"""`holdfast migrate`: create the tables, or upgrade them to this release."""

from typing import Annotated

import typer

from holdfast.cli.target import AppArgument, Common


def migrate(
    application: AppArgument = None,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL instead, for your own migrations.")
    ] = False,
    *,
    common: Common,
) -> None:
    """Create the tables, or upgrade them to this release. Workers may run meanwhile.

    Safe to repeat, to interrupt, and to run from many machines together."""
    with common.choose(application, make=True) as holdfast:
        if sql:
            typer.echo(holdfast.engine.migrations_sql())
            return
        applied = holdfast.migrate()
    lines = [f"applied {name}" for name in applied]
    nothing = "nothing to do: the tables are those of this release"
    common.report({"applied": applied}, *(lines or [nothing]))
