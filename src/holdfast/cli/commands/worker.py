"""`holdfast worker`: run jobs, in processes that a supervisor watches and replaces."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated

import typer

from holdfast.app import Holdfast
from holdfast.cli.event_printer import print_events
from holdfast.cli.filters import duration
from holdfast.cli.target import AppArgument, AppOption, required
from holdfast.cli.web_process import WebProcess, parse_address
from holdfast.core.log_format import configure
from holdfast.locate import load

logger = logging.getLogger("holdfast.worker")

Queues = Annotated[
    str | None,
    typer.Option(
        *("-q", "--queues"),
        help="Which queues, and how many jobs of each at a time: 'default=10,media=2'; '*': those of "
        "all tasks.",
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
    application: AppArgument = None,
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
    web: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT",
            help="Serve the dashboard, too, in a process beside; HOLDFAST_WEB_... has its options.",
        ),
    ] = None,
    tell: Annotated[bool, typer.Option("--tell", hidden=True)] = False,
    app: AppOption = None,
) -> None:
    """Run jobs until SIGTERM or Ctrl-C; a second one ends at once, and SIGUSR1 prints what runs."""
    from holdfast.worker.processes.supervisor import supervise
    from holdfast.worker.running.slots import make_lanes

    location = required(application, app)
    log = {"level": log_level, "format": log_format}
    configure(**log)
    patience = duration(grace, "--grace")
    with load(location) as holdfast, web_process(location, web, log):
        wanted = queues_of(holdfast) if queues == "*" else queues
        lanes = make_lanes(wanted, concurrency)  # refused here, not in a child
        _tell_unserved(set(queues_of(holdfast).split(",")) - {lane.queue for lane in lanes})
        if tell:
            print_events(holdfast)
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
def web_process(location: str, web: str | None, log: Mapping[str, str]) -> Iterator[None]:
    """Run the web server, if it is wanted, from before the first worker until after the last."""
    if web is None:
        yield
        return
    process = WebProcess(location, parse_address(web), log)
    process.start()
    try:
        yield
    finally:
        process.stop()


def queues_of(app: Holdfast) -> str:
    """Every queue that a task names."""
    return ",".join(
        sorted({"default", *(task.defaults.queue or "" for task in app.tasks.values())} - {""})
    )
