"""`holdfast workflows`: list, show, cancel and retry workflows, whose jobs wait for each other."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from holdfast.app import Holdfast
from holdfast.cli.options import LIST_LIMIT, Commands, Confirmation, ListLimitOption
from holdfast.cli.output import Column, clean, failures, full_time, print_table, select, status_text
from holdfast.cli.target import Common
from holdfast.engine.records import WorkflowInfo
from holdfast.jobs.job import Job, Status
from holdfast.workflows.rules import Settled

commands = Commands(name="workflows", help="Workflows: list and show them, cancel and retry them.")

Id = Annotated[str, typer.Argument(metavar="ID", help="Of a workflow, as the list has it.")]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="The id of a job that is held.")]
_FIELDS = ("id", "name", "status", "created_at", "finished_at", "total", "progress", "counts")
_JOB_FIELDS = (
    *("id", "type", "node", "status", "queue", "attempts", "started_at", "completed_at", "error"),
    "progress",
)


_COLUMNS: list[Column[WorkflowInfo]] = [
    Column("ID", lambda info: info.id),
    Column("NAME", lambda info: info.name, may_be_cut=True),
    Column("STATUS", lambda info: status_text(info.status)),
    Column("DONE", lambda info: f"{info.progress:.0f}%", right=True),
    Column("JOBS", lambda info: info.total, right=True),
    Column("FAILED", lambda info: failures(info.counts[Status.FAILED]), right=True),
    Column("MADE", lambda info: info.created_at, right=True, from_width=100),
]


@commands.command("list")
def show_all(limit: ListLimitOption = LIST_LIMIT, *, common: Common) -> None:
    """Workflows, the newest first."""
    with common.opened() as holdfast:
        found = holdfast.workflows.list(limit=limit)
        now = holdfast.engine.now()
    if_empty = "no workflows: 'with app.workflow() as flow: ...' makes one"
    common.print_list(found, _COLUMNS, fields=_FIELDS, now=now, if_empty=if_empty)


@commands.command()
def show(id: Id, common: Common) -> None:
    """One workflow with its jobs, and whom each waits for."""
    with common.opened() as holdfast:
        info, jobs = holdfast.workflows.get(id), holdfast.workflows.jobs(id)
        edges = holdfast.workflows.edges(id)
        now = holdfast.engine.now()
    parents = {job.id: [edge for edge in edges if edge.child == job.id] for job in jobs}
    members = [
        {**select(job, _JOB_FIELDS), "after": [edge.parent for edge in parents[job.id]]}
        for job in jobs
    ]
    if common.printed_json({**select(info, _FIELDS), "jobs": members}):
        return
    typer.echo(f"{clean(info.name)} {info.id}: {info.status}, {info.progress:.0f}% of {info.total}")
    typer.echo(f"made {full_time(info.created_at, now)}")
    if info.finished_at is not None:
        typer.echo(f"finished {full_time(info.finished_at, now)}")
    typer.echo()
    print_table(_job_columns({job.id: job for job in jobs}, parents), jobs)


def _job_columns(
    by_id: Mapping[str, Job], parents: Mapping[str, Sequence[Settled]]
) -> list[Column[Job]]:
    def after(job: Job) -> str:
        known = ((by_id.get(edge.parent), edge.parent) for edge in parents[job.id])
        return ", ".join(id if parent is None else clean(parent.node) for parent, id in known)

    return [
        Column("JOB", lambda job: clean(job.node), may_be_cut=True),
        Column("TASK", lambda job: job.type, may_be_cut=True),
        Column("STATUS", lambda job: status_text(job.status)),
        Column("AFTER", after, may_be_cut=True),
        Column("ID", lambda job: job.id, from_width=100),
        Column(
            "ERROR",
            lambda job: job.error or _held(job, parents[job.id], by_id),
            may_be_cut=True,
            from_width=80,
        ),
    ]


def _held(job: Job, parents: Sequence[Settled], by_id: Mapping[str, Job]) -> str | None:
    """Return the job that holds this one; what other blocked jobs wait for is under AFTER."""
    for edge in parents:
        parent = by_id.get(edge.parent)
        lost = parent is None or parent.status in (Status.FAILED, Status.CANCELLED)
        if job.status is Status.BLOCKED and not edge.outcome and edge.policy == "hold" and lost:
            return f"held: {'one is gone' if parent is None else f'{parent.node} {parent.status}'}"
    return None


@commands.command()
def cancel(id: Id, confirmation: Confirmation, common: Common) -> None:
    """Cancel all of its jobs that are not finished; those that run are asked to stop."""
    with common.opened() as holdfast:
        name = clean(holdfast.workflows.get(id).name)
        refusal = f"{name}: nobody can be asked whether to cancel it"
        confirmation.ask(f"cancel {name}?", refusal)
        number = holdfast.workflows.cancel(id)
        _report(holdfast, id, f"{number} jobs cancelled, or asked to stop", common)


@commands.command()
def retry(id: Id, common: Common) -> None:
    """Do again what failed or was cancelled, and what waited for that."""
    with common.opened() as holdfast:
        number = holdfast.workflows.retry(id)
        _report(holdfast, id, f"{number} jobs to be done again", common)


@commands.command()
def release(job: JobId, common: Common) -> None:
    """Let a job run that is held because one that it waits for has failed."""
    with common.opened() as holdfast:
        holdfast.workflows.release(job)
        found = holdfast.jobs.get(job)
    common.report(found, f"{found.id}: {found.status}")


def _report(holdfast: Holdfast, id: str, text: str, common: Common) -> None:
    common.report(select(holdfast.workflows.get(id), _FIELDS), text)
