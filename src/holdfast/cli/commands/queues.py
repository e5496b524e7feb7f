"""`holdfast queues`: list, pause, resume, limit and empty queues."""

from datetime import datetime
from itertools import islice
from typing import Annotated

import typer
from rich.text import Text

from holdfast.app import Holdfast
from holdfast.cli.commands.limits import Concurrency, RateOption, report_limit
from holdfast.cli.filters import delay_or_time
from holdfast.cli.options import Commands, Confirmation
from holdfast.cli.output import Column, count, full_time
from holdfast.cli.target import Common
from holdfast.engine.records import QueueInfo
from holdfast.errors import InvalidInput
from holdfast.jobs.job import WAITING
from holdfast.jobs.job_json import iso
from holdfast.jobs.queues import CAP
from holdfast.limits.limit import QUEUE

commands = Commands(
    name="queues", help="The queues: how full they are, pausing, limiting and emptying them."
)

Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Queues.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A queue.")]


def _time(time: datetime | None) -> Text:
    return Text(iso(time) or "-", style="dim" if time is None else "yellow")


QUEUE_COLUMNS: list[Column[QueueInfo]] = [
    Column("QUEUE", lambda queue: queue.name),
    Column("PENDING", lambda queue: count(queue.depth, CAP), right=True),
    Column("PAUSED SINCE", lambda queue: _time(queue.paused_at)),
    Column("RESUMES", lambda queue: _time(queue.resume_at)),
]


@commands.command("list")
def show(common: Common) -> None:
    """The queues that hold pending jobs or were ever paused."""
    with common.opened() as holdfast:
        common.print_list(holdfast.queues.list(), QUEUE_COLUMNS)


@commands.command()
def pause(
    names: Names,
    during: Annotated[
        str | None, typer.Option("--for", help="Go on by itself after so long: '10m'.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="Or at this moment: 2030-01-31T12:00, UTC.")
    ] = None,
    *,
    common: Common,
) -> None:
    """Let nothing of these queues be claimed until they are resumed. What runs goes on."""
    seconds, time = delay_or_time(during, "--for", until, "--until")
    with common.opened() as holdfast:
        if time is not None and time <= holdfast.engine.now():
            raise InvalidInput(f"--until {until}: this is past; give a moment to come (UTC)")
        for name in names:
            holdfast.queues.pause(name, resume_at=time, resume_in=seconds)
        _report(holdfast, "paused", names, common)


@commands.command()
def resume(names: Names, common: Common) -> None:
    """Let these queues go on."""
    with common.opened() as holdfast:
        for name in names:
            holdfast.queues.resume(name)
        _report(holdfast, "resumed", names, common)


def _report(holdfast: Holdfast, done: str, names: list[str], common: Common) -> None:
    """Print these queues as they are now, in the order given."""
    found = {queue.name: queue for queue in holdfast.queues.list()}
    queues = [found[name] for name in dict.fromkeys(names) if name in found]
    now = holdfast.engine.now()

    def line(queue: QueueInfo) -> str:
        resumes = f", resumes {full_time(queue.resume_at, now)}" if queue.resume_at else ""
        return f"{done} {queue.name}{resumes}"

    common.report(queues, *map(line, queues))


@commands.command()
def limit(
    name: Name, concurrency: Concurrency = None, rate: RateOption = None, *, common: Common
) -> None:
    """Bound what runs of a queue at once, and starts in a time, over all workers.

    With neither, its limit is removed. 'holdfast limits list' shows it as queue:NAME.
    """
    with common.opened() as holdfast:
        holdfast.queues.limit(name, concurrency, rate=rate)
        report_limit(holdfast, QUEUE + name, common)


@commands.command()
def purge(name: Name, confirmation: Confirmation, common: Common) -> None:
    """Delete every job of a queue that waits. What runs goes on, and what recurs stays."""
    with common.opened() as holdfast:
        # What a purge would delete, counted up to a cap.
        waiting = holdfast.jobs.search(status=sorted(WAITING), queue=name)
        number = sum(1 for _ in islice((job for job in waiting if job.schedule is None), CAP))
        waits = f"{count(number, CAP)} jobs wait in queue {name!r}"
        confirmation.ask(
            f"{waits}: delete them?",
            f"{waits}, and nobody can be asked whether to delete them",
            skip=not number,
        )
        deleted = holdfast.queues.purge(name)
    done = f"deleted {deleted} of {count(number, CAP)} jobs"
    common.report({"matched": number, "deleted": deleted}, done)
