"""Prints a line for each event of a job, for developers. Failures are in the log."""

import sys
import threading
import time
from datetime import datetime

import typer

from holdfast.app import Holdfast
from holdfast.cli.database_wait import PAUSE, may_pass
from holdfast.cli.output import clean
from holdfast.errors import HoldfastError
from holdfast.events.event import JobEvent
from holdfast.jobs.job import EventKind

TOLD = (EventKind.ENQUEUED, EventKind.STARTED, EventKind.COMPLETED, EventKind.CANCELLED)
_LONGEST = 100


class Teller:
    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._thread = threading.Thread(target=self._run, name="holdfast-teller", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                self._follow()
                return
            except HoldfastError as problem:
                if not may_pass(problem, self._app.url):  # as AppClosed
                    return
            time.sleep(PAUSE)

    def _follow(self) -> None:
        with self._app.events(kinds=[kind.value for kind in TOLD]) as events:
            for event in events:
                typer.echo(line(event))
                sys.stdout.flush()


def line(event: JobEvent) -> str:
    moment: datetime = event.at.astimezone()
    told = f"{moment:%H:%M:%S} {event.kind.value:<9} {clean(event.type)}"
    result = "" if event.result is None else clean(event.result)
    more = f" -> {result[:_LONGEST]}" if event.kind is EventKind.COMPLETED and result else ""
    return f"{told}{more} [{event.job_id}]"
