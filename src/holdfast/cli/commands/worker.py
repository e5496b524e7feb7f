"""`holdfast worker`: run jobs, in processes that are watched over."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated

import typer

from holdfast.app import Holdfast
from holdfast.cli.event_printer import Teller
from holdfast.cli.filters import duration
from holdfast.cli.target import AppOption
from holdfast.cli.web_process import Companion, parse_address
from holdfast.core.log_format import configure
from holdfast.errors import InvalidInput
from holdfast.locate import load

logger = logging.getLogger("holdfast.worker")

Application = Annotated[
    str | None,
    typer.Argument(metavar="MODULE:APP", help="The application; MODULE alone means MODULE:app."),
]
Queues = Annotated[
    str | None,
    typer.Option(
        *("-q", "--queues"),
        help="Which queues, and how many jobs of each at a time: 'default=10,media=2'; '*': those of "
        "all tasks.",
    ),
]
Web = Annotated[
    str | None,
    typer.Option(
        "--web",
        metavar="[HOST:]PORT",
        help="Serve the dashboard, too, in a process beside; HOLDFAST_WEB_... has its options.",
    ),
]
Tell = Annotated[bool, typer.Option("--tell", hidden=True)]
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
    web: Web = None,
    tell: Tell = False,
    app: AppOption = None,
) -> None:
    """Run jobs until SIGTERM or Ctrl-C; a second one ends at once, and SIGUSR1 prints what runs."""
    from holdfast.worker.processes.supervisor import supervise
    from holdfast.worker.running.slots import make_lanes

    location = application or app
    if location is None:
        raise InvalidInput("no application was given: write MODULE:APP, or set HOLDFAST_APP")
    log = {"level": log_level, "format": log_format}
    configure(**log)
    patience = duration(grace, "--grace")
    with load(location) as holdfast, beside(location, web, log):
        wanted = queues_of(holdfast) if queues == "*" else queues
        lanes = make_lanes(wanted, concurrency)  # refused here, not in a child
        _tell_unserved(set(queues_of(holdfast).split(",")) - {lane.queue for lane in lanes})
        if tell:
            Teller(holdfast).start()
        code = supervise(
            location,
            holdfast,
            queues=wanted,
            concurrency=concurrency,
            processes=processes,
            grace=patience,
            log=log,
        )
    raise typer.Exit(code)


def _tell_unserved(names: set[str]) -> None:
    """Other workers may serve them. If none does, this is what its owner looks for."""
    if names:
        logger.warning(
            "tasks of this application have queues that this worker does not serve: %s; serve "
            "them here with --queues '*'",
            ", ".join(sorted(names)),
        )


@contextmanager
def beside(location: str, web: str | None, log: Mapping[str, str]) -> Iterator[None]:
    """With the web server, if it is wanted, from before the first worker until after the last."""
    if web is None:
        yield
        return
    companion = Companion(location, parse_address(web), log)
    companion.start()
    try:
        yield
    finally:
        companion.stop()


def queues_of(app: Holdfast) -> str:
    """Every queue that a task names."""
    return ",".join(
        sorted({"default", *(task.defaults.queue or "" for task in app.tasks.values())} - {""})
    )
