"""The lines of `holdfast dev`: one for each event of a job. Failures are in the log."""

import sys
import threading
import time

import typer

from holdfast.app import Holdfast
from holdfast.cli.database_wait import PAUSE, may_pass
from holdfast.cli.output import clean
from holdfast.errors import HoldfastError
from holdfast.events.event import JobEvent
from holdfast.jobs.job import EventKind

_KINDS = (EventKind.ENQUEUED, EventKind.STARTED, EventKind.COMPLETED, EventKind.CANCELLED)
_LONGEST = 100  # characters of a result


def print_events(app: Holdfast) -> None:
    """Start a thread that prints events until the application is closed."""
    threading.Thread(target=_run, args=(app,), name="holdfast-event-printer", daemon=True).start()


def _run(app: Holdfast) -> None:
    while True:
        try:
            with app.events(kinds=[kind.value for kind in _KINDS]) as events:
                for event in events:
                    typer.echo(_line(event))
                    sys.stdout.flush()
            return
        except HoldfastError as problem:
            if not may_pass(problem, app.url):  # as AppClosed
                return
        time.sleep(PAUSE)


def _line(event: JobEvent) -> str:
    told = f"{event.at.astimezone():%H:%M:%S} {event.kind.value:<9} {clean(event.type)}"
    result = "" if event.result is None else clean(event.result)
    more = f" -> {result[:_LONGEST]}" if event.kind is EventKind.COMPLETED and result else ""
    return f"{told}{more} [{event.job_id}]"
