"""`holdfast stats`: the numbers of the whole."""

import typer

from holdfast.cli.output import Column, count, print_json, print_table, status_text
from holdfast.cli.queues import print_queues, queue_fields
from holdfast.cli.target import (
    SCHEMA,
    AppArgument,
    AppOption,
    JsonOption,
    SchemaOption,
    UrlOption,
    opened,
)


def stats(
    application: AppArgument = None,
    app: AppOption = None,
    url: UrlOption = None,
    schema: SchemaOption = SCHEMA,
    as_json: JsonOption = False,
) -> None:
    """Jobs by status, queues, live workers. Each number is counted up to 10,000."""
    with opened(app, url, schema, argument=application) as holdfast:
        found = holdfast.stats()
    if as_json:
        print_json(
            {
                "jobs": {status.value: number for status, number in found.jobs.items()},
                "queues": [queue_fields(queue) for queue in found.queues],
                "workers": found.workers,
                "cap": found.cap,
            }
        )
        return
    print_table(
        [Column("STATUS"), Column("JOBS", right=True)],
        ((status_text(status), count(number, found.cap)) for status, number in found.jobs.items()),
    )
    if found.queues:
        typer.echo()
        print_queues(found.queues)
    typer.echo(f"\nworkers: {found.workers}")
