"""`holdfast workers`: the worker processes, their state, and the jobs that they run."""

from typing import Annotated

import typer
from rich.text import Text

from holdfast.cli.output import Column, age, clean
from holdfast.cli.target import AppArgument, Common
from holdfast.monitoring.snapshot import Snapshot
from holdfast.monitoring.worker_status import WorkerView

_STYLES = {
    "live": "green",
    "draining": "yellow",
    "silent": "bold red",
    "left": "dim",
    "dead": "dim",
}


def workers(
    application: AppArgument = None,
    everyone: Annotated[bool, typer.Option("--all", help="Also those that are gone.")] = False,
    *,
    common: Common,
) -> None:
    """The workers: where they are, what they run, and when they were last heard of."""
    with common.opened(application) as holdfast:
        found = [
            worker
            for worker in Snapshot(holdfast.engine).workers
            if everyone or worker.state not in ("left", "dead")
        ]
    common.print_list(found, _COLUMNS)
    for worker in () if common.as_json else found:
        for job in worker.jobs:
            if job.stuck:
                typer.echo(f"stuck in {worker.id}: job {job.id} ({clean(job.type)})")


def _running(worker: WorkerView) -> str:
    running = "?" if worker.running is None else worker.running
    slots = "?" if worker.slots is None else worker.slots
    return f"{running}/{slots}" if worker.alive else "-"


def _jobs(worker: WorkerView) -> str:
    return " ".join(f"{job.type}{'(stuck)' if job.stuck else ''}" for job in worker.jobs)


_COLUMNS: list[Column[WorkerView]] = [
    Column("WORKER", lambda worker: worker.id),
    Column("STATE", lambda worker: Text(worker.state, style=_STYLES[worker.state])),
    Column("HOST", lambda worker: worker.host or "?", may_be_cut=True, from_width=110),
    Column("PID", lambda worker: worker.pid or "?", right=True, from_width=110),
    Column("QUEUES", lambda worker: ",".join(worker.queues) or "?", may_be_cut=True),
    Column("RUNNING", _running, right=True),
    Column("BEAT", lambda worker: f"{age(worker.beat_age)} ago", right=True),
    Column("JOBS", _jobs, may_be_cut=True, from_width=100),
]
