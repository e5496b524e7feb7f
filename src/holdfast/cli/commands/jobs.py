"""`holdfast jobs`: list, show and edit jobs; retry, cancel and delete some by their ids, or many by a
filter, after a question. `watch` and `logs` are modules of their own."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from holdfast.app import Holdfast
from holdfast.cli.filters import Filters, QueryFilters, delay_or_time
from holdfast.cli.job_detail import show_job
from holdfast.cli.options import LIST_LIMIT, Commands, Confirmation, LimitOption, ListLimitOption
from holdfast.cli.output import Column, clean, count, full_time, hint, progress, status_text
from holdfast.cli.progress_bars import counter
from holdfast.cli.target import Common
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.jobs.changes import Changed
from holdfast.jobs.client import COUNT_CAP, Jobs
from holdfast.jobs.job import UNFINISHED, Job, Status

commands = Commands(
    name="jobs",
    help="Jobs: list, show, edit, retry, cancel, delete and watch them, read their logs.",
)

Id = Annotated[str, typer.Argument(metavar="ID", help="Of the job.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="ID...", help="Jobs by their ids.")]


def _note(job: Job) -> str:
    """Return the error of a job, or its progress."""
    return job.error if job.error is not None else progress(job)


_COLUMNS: list[Column[Job]] = [
    Column("ID", lambda job: job.id),
    Column("TYPE", lambda job: job.type, may_be_cut=True),
    Column("STATUS", lambda job: status_text(job.status)),
    Column("TRY", lambda job: f"{job.attempts}/{job.max_attempts}", right=True),
    Column("MADE", lambda job: job.created_at, right=True),
    Column("QUEUE", lambda job: job.queue, may_be_cut=True, from_width=100),
    Column("PRIO", lambda job: job.priority, right=True, from_width=120),
    Column("DUE", lambda job: job.run_at, right=True, from_width=120),
    Column("NOTE", _note, may_be_cut=True, from_width=100),
]


@commands.command("list")
def show_all(filters: QueryFilters, limit: ListLimitOption = LIST_LIMIT, *, common: Common) -> None:
    """The jobs that match, newest first."""
    with common.opened() as holdfast:
        found = holdfast.jobs.search(limit=limit + 1, **filters.wanted())
        if common.print_jobs(holdfast, found, _COLUMNS, limit) > limit:
            hint(f"the newest {limit}; --limit shows more")


@commands.command()
def show(id: Id, common: Common) -> None:
    """All of one job: its fields, why it waits, its failed runs with tracebacks, its last lines."""
    with common.opened() as holdfast:
        show_job(holdfast, id, common)


# retry, cancel and delete


@dataclass(frozen=True)
class Action:
    name: str
    done: str
    one: Callable[[Jobs, str], Job]
    many: Callable[..., Changed]
    statuses: Iterable[Status] | None  #: of a filter that names none


_RETRY = Action("retry", "retried", Jobs.retry, Jobs.retry_all, [Status.FAILED])
_CANCEL = Action("cancel", "cancelled", Jobs.cancel, Jobs.cancel_all, sorted(UNFINISHED))
_DELETE = Action("delete", "deleted", Jobs.delete, Jobs.delete_all, None)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The options that say which jobs to change: ids, or a filter."""

    ids: Ids = None
    every: Annotated[
        bool, typer.Option("--all", help="All that match the filter; without one, every job.")
    ] = False
    filters: Filters
    limit: LimitOption = None
    confirmation: Confirmation


@commands.command()
def retry(selection: Selection, common: Common) -> None:
    """Run jobs again from the beginning: these, or the failed ones that match a filter.

    Another --status retries others. Skipped: what runs, is blocked or recurs, and jobs whose key is
    live again.
    """
    _change(_RETRY, selection, common)


@commands.command()
def cancel(selection: Selection, common: Common) -> None:
    """Cancel jobs: these, or the unfinished ones that match a filter.

    Running ones are asked to stop, and are cancelled when they have.
    """
    _change(_CANCEL, selection, common)


@commands.command()
def delete(selection: Selection, common: Common) -> None:
    """Remove jobs for good, whatever they are doing: these, or all that match a filter.

    Recurring ones are spared, unless --key or --entity names them.
    """
    _change(_DELETE, selection, common)


@commands.command()
def edit(
    id: Id,
    priority: Annotated[int | None, typer.Option(help="A higher number runs first.")] = None,
    after: Annotated[
        str | None, typer.Option("--in", help="So long from now: '10m'; 0: now.")
    ] = None,
    at: Annotated[str | None, typer.Option(help="At this moment: 2030-01-31T12:00, UTC.")] = None,
    queue: Annotated[str | None, typer.Option(help="Move it to this queue.")] = None,
    *,
    common: Common,
) -> None:
    """Give a job that waits another priority, time or queue."""
    delay, time = delay_or_time(after, "--in", at, "--at")
    if all(given is None for given in (priority, after, at, queue)):
        raise InvalidInput("nothing to edit: give --priority, --in, --at or --queue")
    with common.opened() as holdfast:
        job = holdfast.jobs.edit(id, priority=priority, delay=delay, run_at=time, queue=queue)
        now = holdfast.engine.now()
    due = f"priority {job.priority}, due {full_time(job.run_at, now)}"
    common.report(job, f"edited {job.id}: {job.status}, queue {job.queue}, {due}")


def _change(action: Action, selection: Selection, common: Common) -> None:
    with common.opened() as holdfast:
        wanted = selection.filters.wanted()
        if selection.ids:
            if wanted or selection.every or selection.limit is not None:
                raise InvalidInput("give ids or a filter, not both")
            _change_some(holdfast, action, selection.ids, common)
        elif wanted or selection.every:
            _change_many(holdfast, action, selection, wanted, common)
        else:
            raise InvalidInput(
                f"which jobs to {action.name}? Give ids, or a filter such as --status, --type or "
                "--entity, or --all"
            )


def _change_some(holdfast: Holdfast, action: Action, ids: list[str], common: Common) -> None:
    """Change each job by itself, so that one refusal does not stop the others."""
    changed: list[Job] = []
    first: HoldfastError | None = None
    for id in ids:
        try:
            changed.append(action.one(holdfast.jobs, id))
        except HoldfastError as problem:
            if first is not None:
                typer.echo(f"holdfast: {clean(problem, lines=True)}", err=True)
            first = first or problem

    def line(job: Job) -> str:
        asked = action is _CANCEL and job.status is Status.RUNNING
        return f"{'asked to stop' if asked else action.done} {job.id}"

    common.report(changed, *map(line, changed))
    if first is not None:
        raise first


def _change_many(
    holdfast: Holdfast, action: Action, selection: Selection, wanted: dict[str, Any], common: Common
) -> None:
    if action.statuses is not None:
        wanted.setdefault("status", action.statuses)
    limit = selection.limit
    cap = COUNT_CAP if limit is None else min(COUNT_CAP, limit)
    number = holdfast.jobs.count(cap=cap, **wanted)
    shown = count(number, COUNT_CAP)
    selection.confirmation.ask(
        f"{action.name} {shown} jobs?",
        f"{shown} jobs match, and nobody can be asked whether to {action.name} them",
        skip=not number,
    )
    with counter(action.name, number, hidden=common.as_json) as show_done:
        changed = action.many(
            holdfast.jobs,
            everything=True,
            progress=lambda done: show_done(done.matched),
            limit=limit,
            **wanted,
        )
    reasons = ", ".join(f"{number} {why}" for why, number in sorted(changed.skipped.items()))
    skipped = f"; skipped: {reasons}" if reasons else ""
    common.report(
        {"matched": changed.matched, action.done: changed.changed, "skipped": changed.skipped},
        f"{action.done} {changed.changed} of {changed.matched} jobs{skipped}",
    )
