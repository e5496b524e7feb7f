"""All commands together, and the exit codes of their errors."""

from importlib import metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from holdfast import errors
from holdfast.cli.commands import (
    database,
    demo,
    dev,
    enqueue,
    jobs,
    limits,
    logs,
    monitoring,
    prune,
    queues,
    schedules,
    tokens,
    watch,
    web,
    worker,
    workflows,
)
from holdfast.cli.options import Commands
from holdfast.cli.output import clean

# Stable: scripts may rely on them. 1 is any other failure.
EXIT_CODES: dict[type[errors.HoldfastError], int] = {
    errors.UnknownLimit: 4,  # before what it is a kind of
    errors.InvalidInput: 2,
    errors.DatabaseUnavailable: 3,
    errors.JobNotFound: 4,
    errors.UnknownTask: 4,
    errors.UnknownToken: 4,
    errors.SchemaError: 5,
}


class Root(TyperGroup):
    """Prints an error as a line on stderr, and exits with its code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except errors.HoldfastError as problem:
            typer.echo(f"holdfast: {clean(problem, lines=True)}", err=True)
            raise typer.Exit(exit_code(problem)) from None


def exit_code(problem: errors.HoldfastError) -> int:
    return next((code for kind, code in EXIT_CODES.items() if isinstance(problem, kind)), 1)


cli = Commands(
    name="holdfast",
    cls=Root,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    # Every option can be set in the environment, by the path of its command.
    context_settings={"auto_envvar_prefix": "HOLDFAST", "help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"holdfast {metadata.version('holdfast')}")
        raise typer.Exit


@cli.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            allow_from_autoenv=False,  # HOLDFAST_VERSION may be set by a container image
            help="Print it, and exit.",
        ),
    ] = False,
) -> None:
    """Durable background jobs in the database you already have.

    Every option can also be set in the environment: HOLDFAST_, the command, the option, such as
    HOLDFAST_WORKER_PROCESSES or HOLDFAST_JOBS_LIST_LIMIT; and for all commands HOLDFAST_APP,
    HOLDFAST_URL, HOLDFAST_SCHEMA and HOLDFAST_JSON.

    Exit codes: 0 done, 1 failed, 2 a wrong call, 3 the database cannot be reached, 4 not found, 5
    the tables are not those of this release.
    """


for command in (
    *(enqueue.enqueue, worker.worker, web.web, dev.dev, monitoring.workers, monitoring.stats),
    *(monitoring.errors, monitoring.health, prune.prune, database.migrate, database.doctor),
    demo.demo,
):
    cli.command()(command)
for group in (jobs, queues, limits, schedules, workflows, tokens):
    cli.add_typer(group.commands)
jobs.commands.command()(watch.watch)
jobs.commands.command()(logs.logs)


def main() -> None:
    """Run the console script."""
    cli(prog_name="holdfast")
