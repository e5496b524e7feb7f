"""`holdfast worker`: run jobs, in processes that a supervisor watches and replaces."""

import logging
import time
from contextlib import ExitStack
from threading import Thread
from typing import Annotated

import typer

from holdfast.app import Holdfast
from holdfast.app_loader import load
from holdfast.cli.database_wait import PAUSE, is_temporary
from holdfast.cli.filters import parse_duration
from holdfast.cli.output import clean
from holdfast.cli.target import AppArgument, AppOption, required
from holdfast.cli.web_process import WebProcess, parse_address
from holdfast.core.log_format import configure
from holdfast.errors import HoldfastError
from holdfast.events.event import JobEvent
from holdfast.jobs.job import EventKind

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
    str, typer.Option(envvar="HOLDFAST_LOG_LEVEL", help="debug, info, warning, error or critical.")
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

    location = required(application, app)
    log = {"level": log_level, "format": log_format}
    configure(**log)
    patience = parse_duration(grace, "--grace")
    with ExitStack() as stack:
        holdfast = stack.enter_context(load(location))
        if web is not None:  # from before the first worker until after the last
            process = WebProcess(location, parse_address(web), log)
            process.start()
            stack.callback(process.stop)
        wanted = _checked_queues(holdfast, queues, concurrency)
        if tell:
            name = "holdfast-event-printer"
            Thread(target=_print_events, args=(holdfast,), name=name, daemon=True).start()
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


def _checked_queues(app: Holdfast, queues: str | None, concurrency: int | None) -> str | None:
    """Return the queues to serve. Raises InvalidInput here, and not in each process; warns of queues
    that the application's tasks have and that are not served."""
    from holdfast.worker.running.slots import make_lanes

    named = {task.defaults.queue or "default" for task in app.tasks.values()} | {"default"}
    wanted = ",".join(sorted(named)) if queues == "*" else queues
    lanes = make_lanes(wanted, concurrency)
    if unserved := named - {lane.queue for lane in lanes}:
        # Other workers may serve them. If none does, this is what their owner looks for.
        logger.warning(
            "tasks of this application have queues that this worker does not serve: %s; serve "
            "them here with --queues '*'",
            ", ".join(sorted(unserved)),
        )
    return wanted


# the lines of `holdfast dev`: one for each event of a job; failures are in the log

_KINDS = (EventKind.ENQUEUED, EventKind.STARTED, EventKind.COMPLETED, EventKind.CANCELLED)
_LONGEST = 100  # characters of a result


def _print_events(app: Holdfast) -> None:
    """Print events until the application is closed."""
    while True:
        try:
            with app.events(kinds=[kind.value for kind in _KINDS]) as events:
                for event in events:
                    typer.echo(_line(event))
            return
        except HoldfastError as problem:
            if not is_temporary(problem, app.url):  # as AppClosed
                return
        time.sleep(PAUSE)


def _line(event: JobEvent) -> str:
    line = f"{event.at.astimezone():%H:%M:%S} {event.kind.value:<9} {clean(event.type)}"
    result = "" if event.result is None else clean(event.result)
    more = f" -> {result[:_LONGEST]}" if event.kind is EventKind.COMPLETED and result else ""
    return f"{line}{more} [{event.job_id}]"
