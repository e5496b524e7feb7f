"""`holdfast workflows`: jobs that wait for other jobs."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from holdfast.app import Holdfast
from holdfast.cli.commands.jobs import LIMIT
from holdfast.cli.filters import LimitOption
from holdfast.cli.job_actions import YesOption, confirm
from holdfast.cli.options import Commands
from holdfast.cli.output import (
    Column,
    both,
    clean,
    console,
    iso,
    job_fields,
    plain,
    print_json,
    print_table,
    status_text,
    when,
)
from holdfast.cli.target import (
    JsonOption,
    Target,
)
from holdfast.engine.records import WorkflowInfo
from holdfast.jobs.job import Job, Status
from holdfast.workflows.rules import Settled

commands = Commands(help="Workflows: list and show them, cancel and retry them.")

Id = Annotated[str, typer.Argument(metavar="ID", help="Of a workflow, as the list has it.")]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="The id of a job that is held.")]
_COLUMNS = [
    Column("ID"),
    Column("NAME", may_be_cut=True),
    Column("STATUS"),
    Column("DONE", right=True),
    Column("JOBS", right=True),
    Column("FAILED", right=True),
    Column("MADE", right=True, from_width=100),
]
_JOBS = [
    Column("JOB", may_be_cut=True),
    Column("TASK", may_be_cut=True),
    Column("STATUS"),
    Column("AFTER", may_be_cut=True),
    Column("ID", from_width=100),
    Column("ERROR", may_be_cut=True, from_width=80),
]


@commands.command("list")
def show_all(
    limit: LimitOption = LIMIT,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Workflows, the newest first."""
    with target.opened() as holdfast:
        found = holdfast.workflows.list(limit=LIMIT if limit is None else limit)
        now = holdfast.engine.now()
    if as_json:
        print_json([_fields(info) for info in found])
        return
    print_table(_COLUMNS, (_row(info, now) for info in found))
    if not found and console().is_terminal:
        typer.echo("no workflows: 'with app.workflow() as flow: ...' makes one", err=True)


def _fields(info: WorkflowInfo) -> dict[str, Any]:
    names = ("id", "name", "status", "created_at", "finished_at", "total", "progress", "counts")
    return {name: plain(getattr(info, name)) for name in names}


def _row(info: WorkflowInfo, now: datetime) -> list[str | Text]:
    failed = info.counts[Status.FAILED]
    people = console().is_terminal
    return [
        info.id,
        clean(info.name),
        status_text(info.status),
        f"{info.progress:.0f}%",
        str(info.total),
        Text(str(failed), style="red" if failed else "dim"),
        when(info.created_at, now) if people else iso(info.created_at) or "",
    ]


@commands.command()
def show(
    id: Id,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """One workflow with its jobs, and whom each waits for."""
    with target.opened() as holdfast:
        info, jobs = holdfast.workflows.get(id), holdfast.workflows.jobs(id)
        edges = holdfast.workflows.edges(id)
        now = holdfast.engine.now()
    if as_json:
        told = [
            {**_without_body(job), "after": [edge.parent for edge in edges if edge.child == job.id]}
            for job in jobs
        ]
        print_json({**_fields(info), "jobs": told})
        return
    typer.echo(f"{clean(info.name)} {info.id}: {info.status}, {info.progress:.0f}% of {info.total}")
    typer.echo(f"made {both(info.created_at, now)}")
    if info.finished_at is not None:
        typer.echo(f"finished {both(info.finished_at, now)}")
    typer.echo()
    by_id = {job.id: job for job in jobs}
    print_table(_JOBS, (_job_row(job, edges, by_id) for job in jobs))


def _without_body(job: Job) -> dict[str, Any]:
    fields = ("id", "type", "node", "status", "queue", "attempts", "started_at", "completed_at")
    return {name: plain(getattr(job, name)) for name in (*fields, "error", "progress")}


def _job_row(job: Job, edges: Iterable[Settled], by_id: Mapping[str, Job]) -> list[str | Text]:
    mine = [edge for edge in edges if edge.child == job.id]
    after = [
        clean(by_id[edge.parent].node) if edge.parent in by_id else edge.parent for edge in mine
    ]
    return [
        clean(job.node),
        clean(job.type),
        status_text(job.status),
        ", ".join(after) or "-",
        job.id,
        clean(job.error) if job.error else _held(job, mine, by_id) or "-",
    ]


def _held(job: Job, edges: Iterable[Settled], by_id: Mapping[str, Job]) -> str | None:
    """Because of whom a job is held; the rest of what blocked jobs wait for is under AFTER."""
    for edge in edges:
        parent = by_id.get(edge.parent)
        lost = parent is None or parent.status in (Status.FAILED, Status.CANCELLED)
        if job.status is Status.BLOCKED and not edge.outcome and edge.policy == "hold" and lost:
            return f"held: {'one is gone' if parent is None else f'{parent.node} {parent.status}'}"
    return None


@commands.command()
def cancel(
    id: Id,
    yes: YesOption = False,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Cancel all of its jobs that are not finished; those that run are asked to stop."""
    with target.opened() as holdfast:
        info = holdfast.workflows.get(id)
        if not yes:
            name = clean(info.name)
            confirm(f"cancel {name}?", f"{name}: nobody can be asked whether to cancel it")
        number = holdfast.workflows.cancel(id)
        _report(holdfast, id, f"{number} jobs cancelled, or asked to stop", as_json)


@commands.command()
def retry(
    id: Id,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Do again what failed or was cancelled, and what waited for that."""
    with target.opened() as holdfast:
        number = holdfast.workflows.retry(id)
        _report(holdfast, id, f"{number} jobs to be done again", as_json)


@commands.command()
def release(
    job: JobId,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Let a job run that is held because one that it waits for has failed."""
    with target.opened() as holdfast:
        holdfast.workflows.release(job)
        found = holdfast.jobs.get(job)
    if as_json:
        print_json(job_fields(found))
    else:
        typer.echo(f"{found.id}: {found.status}")


def _report(holdfast: Holdfast, id: str, text: str, as_json: bool) -> None:
    if as_json:
        print_json(_fields(holdfast.workflows.get(id)))
    else:
        typer.echo(clean(text))
