"""`holdfast workers`: who runs jobs, and which."""

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.text import Text

from holdfast.cli.output import Column, age, clean, plain, print_json, print_table
from holdfast.cli.target import (
    AppArgument,
    JsonOption,
    Target,
)
from holdfast.monitoring.worker_status import WorkerView, read_workers

_STYLES = {
    "live": "green",
    "draining": "yellow",
    "silent": "bold red",
    "left": "dim",
    "dead": "dim",
}
_COLUMNS = [
    Column("WORKER"),
    Column("STATE"),
    Column("HOST", may_be_cut=True, from_width=110),
    Column("PID", right=True, from_width=110),
    Column("QUEUES", may_be_cut=True),
    Column("RUNNING", right=True),
    Column("BEAT", right=True),
    Column("JOBS", may_be_cut=True, from_width=100),
]


def workers(
    application: AppArgument = None,
    everyone: Annotated[bool, typer.Option("--all", help="Also those that are gone.")] = False,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """The workers: where they are, what they run, and when they were last heard of."""
    with target.opened(application) as holdfast:
        found = [
            worker
            for worker in read_workers(holdfast.engine)
            if everyone or worker.state not in ("left", "dead")
        ]
    if as_json:
        print_json([worker_fields(worker) for worker in found])
        return
    print_table(_COLUMNS, (_row(worker) for worker in found))
    for worker in found:
        for job in worker.jobs:
            if job.stuck:
                typer.echo(f"stuck in {worker.id}: job {job.id} ({clean(job.type)})")


def worker_fields(worker: WorkerView) -> dict[str, Any]:
    return {name: plain(value) for name, value in asdict(worker).items()}


def _row(worker: WorkerView) -> list[str | Text]:
    running = "?" if worker.running is None else str(worker.running)
    slots = "?" if worker.slots is None else str(worker.slots)
    return [
        worker.id,
        Text(worker.state, style=_STYLES[worker.state]),
        clean(worker.host or "?"),
        str(worker.pid or "?"),
        clean(",".join(worker.queues)) or "?",
        f"{running}/{slots}" if worker.alive else "-",
        f"{age(worker.beat_age)} ago",
        clean(" ".join(f"{job.type}{'(stuck)' if job.stuck else ''}" for job in worker.jobs))
        or "-",
    ]
