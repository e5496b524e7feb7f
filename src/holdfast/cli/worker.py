"""`holdfast worker`: run jobs, in processes that are watched over."""

from typing import Annotated

import typer

from holdfast.cli.filters import duration
from holdfast.cli.target import AppOption
from holdfast.errors import InvalidInput
from holdfast.locate import load
from holdfast.logs import configure

Application = Annotated[
    str | None,
    typer.Argument(metavar="MODULE:APP", help="The application; MODULE alone means MODULE:app."),
]
Queues = Annotated[
    str | None,
    typer.Option(
        *("-q", "--queues"),
        help="Which queues, and how many jobs of each at a time: 'default=10,media=2'.",
    ),
]
LogLevel = Annotated[
    str,
    typer.Option(envvar="HOLDFAST_LOG_LEVEL", help="debug, info, warning, error or critical."),
]
LogFormat = Annotated[
    str, typer.Option(envvar="HOLDFAST_LOG_FORMAT", help="text, or json: an object a line.")
]


def worker(
    application: Application = None,
    queues: Queues = None,
    processes: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 1,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Jobs at a time, for queues without a number.")
    ] = None,
    grace: Annotated[
        str, typer.Option(help="How long a stop waits for what runs: '30s', '5m'.")
    ] = "30s",
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    app: AppOption = None,
) -> None:
    """Run jobs until SIGTERM or Ctrl-C; a second one ends at once, and SIGUSR1 prints what runs."""
    from holdfast.worker.slots import make_lanes
    from holdfast.worker.supervisor import supervise

    location = application or app
    if location is None:
        raise InvalidInput("no application was given: write MODULE:APP, or set HOLDFAST_APP")
    log = {"level": log_level, "format": log_format}
    configure(**log)
    make_lanes(queues, concurrency)  # refused here, not in a child
    patience = duration(grace, "--grace")
    with load(location) as holdfast:
        code = supervise(
            location,
            holdfast,
            queues=queues,
            concurrency=concurrency,
            processes=processes,
            grace=patience,
            log=log,
        )
    raise typer.Exit(code)
