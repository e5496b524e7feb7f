"""A line for each thing that happens to a job, for those who develop. What goes wrong is in the log."""

import sys
import threading
from contextlib import suppress
from datetime import datetime

import typer

from holdfast.app import Holdfast
from holdfast.cli.output import clean
from holdfast.errors import HoldfastError
from holdfast.events import JobEvent
from holdfast.job import EventKind

TOLD = (EventKind.ENQUEUED, EventKind.STARTED, EventKind.COMPLETED, EventKind.CANCELLED)
_LONGEST = 100


class Teller:
    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._thread = threading.Thread(target=self._run, name="holdfast-teller", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        with (
            suppress(HoldfastError),  # the application is closed: that was all
            self._app.events(kinds=[kind.value for kind in TOLD]) as events,
        ):
            for event in events:
                typer.echo(line(event))
                sys.stdout.flush()


def line(event: JobEvent) -> str:
    moment: datetime = event.at.astimezone()
    told = f"{moment:%H:%M:%S} {event.kind.value:<9} {clean(event.type)}"
    result = "" if event.result is None else clean(event.result)
    more = f" -> {result[:_LONGEST]}" if event.kind is EventKind.COMPLETED and result else ""
    return f"{told}{more} [{event.job_id}]"
