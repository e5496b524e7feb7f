"""`holdfast demo`: jobs of every kind, on SQLite, drawn as they go; nothing to configure."""

import logging
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from typing import Annotated

import typer
from rich.live import Live
from rich.text import Text

from holdfast.app import Holdfast
from holdfast.cli.commands.web import check_installed
from holdfast.cli.demo_view import Board, Record
from holdfast.cli.options import OpenOption
from holdfast.cli.output import Column, console, print_table
from holdfast.cli.progress_bars import began
from holdfast.errors import HoldfastError, JobNotFound
from holdfast.jobs.job import UNFINISHED, EventKind
from holdfast.monitoring.stats import Stats

FRAME = 0.25  # seconds between two pictures
GRACE = 0.6  # seconds for what runs, when the user leaves
DRAIN = 45.0  # seconds for what is left, at the end of --seconds
RECURRING = "refresh_trends"
QUEUES = "demo,demo.media=5"  # few slots for media, so that some of it is seen waiting


def demo(
    seconds: Annotated[
        float | None,
        typer.Option(min=0.0, help="Enqueue for so long, let the rest finish, and end."),
    ] = None,
    # Not HOLDFAST_URL: sample jobs must not find their way into a real database by accident.
    url: Annotated[
        str | None, typer.Option(help="A database instead of a new one in a temporary folder.")
    ] = None,
    schema: Annotated[str, typer.Option(help="Its schema, on PostgreSQL.")] = "holdfast",
    keep: Annotated[bool, typer.Option("--keep", help="Leave the temporary folder.")] = False,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Of the dashboard; else 8686, or one that is free."),
    ] = None,
    open_browser: OpenOption = None,
) -> None:
    """Show jobs of every kind at work, live in the terminal and in a browser, until Ctrl-C.

    Nothing has to be configured: the database is a new SQLite file in a temporary folder. There are
    quick and slow jobs, with progress; some are retried, some fail for good; some are scheduled or
    recurring, some enqueue others or are parts of workflows; some run in threads, some in processes.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as stack:
        folder = None if url is not None else tempfile.mkdtemp(prefix="holdfast-demo-")
        database = url or f"sqlite:///{folder}/jobs.db"
        if folder is not None and not keep:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        # Where the sample application looks for it, here and in the processes of its handlers.
        os.environ.update(HOLDFAST_URL=database, HOLDFAST_SCHEMA=schema)
        from holdfast.demo.tasks import app

        stack.enter_context(app)
        app.migrate()
        wanted = console().is_terminal if open_browser is None else open_browser
        notes = stack.enter_context(_dashboard(app, port, open_browser=wanted))
        show = Show(app, database, seconds, notes)
        show.run()
    _print_summary(show.record, database, kept=keep or url is not None)
    if show.feeder.problem is not None:
        raise show.feeder.problem


def _dashboard(
    app: Holdfast, port: int | None, *, open_browser: bool
) -> AbstractContextManager[list[str]]:
    """Serve the dashboard, if the packages that it needs are there; yield lines about it."""
    try:
        check_installed()
    except HoldfastError as problem:
        return nullcontext([f"no dashboard: {problem}"])
    from holdfast.cli.web_server import demo_dashboard

    return demo_dashboard(app, port, open_browser=open_browser)


class Show:
    """A feeder enqueues jobs, a worker in this process runs them, and the board shows the database."""

    def __init__(
        self, app: Holdfast, url: str, seconds: float | None, notes: Sequence[str]
    ) -> None:
        from holdfast.demo.feeder import Feeder

        self.feeder = Feeder()
        self.record = Record()
        self._app = app
        self._seconds = seconds
        self._out = console()
        self._board = Board(self._out, url, self.record, notes)
        self._notes = notes
        self._worker = app.worker(queues=QUEUES, grace=GRACE)
        # Failures are part of the show: the board shows them, and a log would tear the picture.
        logging.getLogger("holdfast").addHandler(logging.NullHandler())
        app.on("started", "completed", "retrying", "failed")(self.record.add)

    def run(self) -> None:
        self._worker.start()
        self.feeder.start()
        try:
            if self._out.is_terminal:
                self._draw()
            else:
                self._print_lines()
        except KeyboardInterrupt:
            pass
        finally:
            with suppress(KeyboardInterrupt):  # impatience changes nothing: it ends within 2 s
                self.feeder.stop()
                self._worker.stop()
                self._forget_recurring()

    def _forget_recurring(self) -> None:
        """Delete the recurring job: it never ends, and would wait in a database that is kept."""
        with suppress(JobNotFound):
            self._app.schedules.delete(RECURRING)

    def _draw(self) -> None:
        with Live(console=self._out, auto_refresh=False, screen=True) as live:
            for stats in self._polls(FRAME):
                running = sorted(self._app.jobs.search(status="running", limit=100), key=began)
                picture = self._board.picture(stats, running, self._app.engine.now())
                live.update(picture, refresh=True)

    def _print_lines(self) -> None:
        for line in self._notes:
            typer.echo(line)
        for stats in self._polls(1.0):
            typer.echo(self._board.line(stats))

    def _polls(self, pause: float) -> Iterator[Stats]:
        """Yield the figures again and again, until it is time to end."""
        while self.feeder.problem is None:
            stats = self._app.stats()
            yield stats
            if self._seconds is not None and self.record.elapsed >= self._seconds:
                self.feeder.stop()
                self._forget_recurring()
                nothing_left = not any(stats.jobs[status] for status in UNFINISHED)
                if nothing_left or self.record.elapsed >= self._seconds + DRAIN:
                    return
            time.sleep(pause)


def _print_summary(record: Record, url: str, *, kept: bool) -> None:
    def column(heading: str, kind: EventKind) -> Column[str]:
        return Column(heading, lambda task: record.totals[task, kind], right=True)

    out = console()
    completed = (f"{record.total(EventKind.COMPLETED)} jobs completed", "bold green")
    rest = (
        f", {record.total(EventKind.RETRYING)} times one was tried again, "
        f"{record.total(EventKind.FAILED)} failed for good, in {record.elapsed:.0f} s"
    )
    out.print(Text.assemble(completed, rest), soft_wrap=True)
    columns: list[Column[str]] = [
        Column("TASK", str),
        column("COMPLETED", EventKind.COMPLETED),
        column("RETRIED", EventKind.RETRYING),
        column("FAILED", EventKind.FAILED),
    ]
    print_table(columns, sorted({task for task, _ in record.totals}))
    gone = "kept in" if kept else "its database is removed (--keep leaves it):"
    out.print(f"{gone} {url}", soft_wrap=True)
