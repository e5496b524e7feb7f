"""`holdfast health`: is work being done? By its exit code, for monitors."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.text import Text

from holdfast.cli.filters import duration
from holdfast.cli.output import age, console, print_json
from holdfast.cli.target import (
    SCHEMA,
    AppArgument,
    AppOption,
    JsonOption,
    SchemaOption,
    UrlOption,
    choose,
    refuse_absent,
)
from holdfast.errors import DatabaseUnavailable
from holdfast.health import Health


def health(
    application: AppArgument = None,
    max_age: Annotated[
        str | None, typer.Option(help="How long a job may have been due: '5m'.")
    ] = None,
    app: AppOption = None,
    url: UrlOption = None,
    schema: SchemaOption = SCHEMA,
    as_json: JsonOption = False,
) -> None:
    """Is work being done? Exit code 0: yes. 1: no, and what to do about it is printed.

    Looks at: the database and its tables; live workers, if jobs are pending or running; pending jobs
    whose task or queue no live worker takes; how long jobs have been due (--max-age); paused queues
    with jobs; stuck jobs; silent workers.
    """
    limit = None if max_age is None else duration(max_age, "--max-age")
    with choose(app, url, schema, argument=application) as holdfast:
        try:
            refuse_absent(holdfast)
            found = holdfast.health(max_age=limit)
        except DatabaseUnavailable as problem:
            found = Health(ok=False, problems=[str(problem)])
    if as_json:
        print_json(asdict(found))
    else:
        _print(found)
    raise typer.Exit(0 if found.ok else 1)


def _print(found: Health) -> None:
    out = console()
    for text in found.problems:
        out.print(Text.assemble(("problem", "bold red"), f"  {text}"), soft_wrap=True)
    for text in found.warnings:
        out.print(Text.assemble(("warning", "yellow"), f"  {text}"), soft_wrap=True)
    if found.ok:
        oldest = found.oldest_pending
        waits = "nothing is due" if oldest is None else f"the oldest has been due for {age(oldest)}"
        out.print(
            Text.assemble(("healthy", "bold green"), f"  {found.workers} live workers; {waits}"),
            soft_wrap=True,
        )
