"""`holdfast jobs`: look at jobs, and change what happens to them."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Annotated

import typer
from rich.text import Text

from holdfast.app import Holdfast
from holdfast.cli.commands.logs import SHOWN
from holdfast.cli.filters import (
    Filters,
    LimitOption,
    QueryFilters,
    duration,
    instant,
)
from holdfast.cli.job_actions import CANCEL, DELETE, RETRY, AllOption, Call, Ids, YesOption, change
from holdfast.cli.job_detail import print_job
from holdfast.cli.options import Commands
from holdfast.cli.output import (
    Column,
    attempt_fields,
    both,
    clean,
    console,
    iso,
    job_fields,
    print_json,
    print_json_array,
    print_table,
    status_text,
    when,
)
from holdfast.cli.target import (
    JsonOption,
    Target,
)
from holdfast.errors import InvalidInput
from holdfast.jobs.job import Job
from holdfast.monitoring.health import why_it_waits

commands = Commands(
    help="Jobs: list, show, edit, retry, cancel, delete and watch them, read their logs."
)

LIMIT = 100
PAGE = 100


@commands.command("list")
def show_all(
    filters: QueryFilters = QueryFilters(),
    limit: LimitOption = LIMIT,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """The jobs that match, newest first."""
    with target.opened() as holdfast:
        wanted = filters.wanted()
        if as_json:
            found = holdfast.jobs.search(limit=limit, **wanted)
            print_json_array(job_fields(job) for job in whole(holdfast, found))
            return
        jobs = list(holdfast.jobs.search(limit=None if limit is None else limit + 1, **wanted))
        _print_jobs(holdfast, jobs[:limit])
        if limit is not None and len(jobs) > limit and console().is_terminal:
            typer.echo(f"the newest {limit}; --limit shows more", err=True)


def whole(holdfast: Holdfast, jobs: Iterator[Job]) -> Iterator[Job]:
    """With payloads and results, which lists leave out; read some at a time."""
    while page := list(islice(jobs, PAGE)):
        bodies = {job.id: job.body for job in holdfast.engine.get([job.id for job in page])}
        for job in page:
            if job.id in bodies:  # else it was deleted just now
                yield replace(job, body=bodies[job.id])


_COLUMNS = [
    Column("ID"),
    Column("TYPE", may_be_cut=True),
    Column("STATUS"),
    Column("TRY", right=True),
    Column("MADE", right=True),
    Column("QUEUE", may_be_cut=True, from_width=100),
    Column("PRIO", right=True, from_width=120),
    Column("DUE", right=True, from_width=120),
    Column("NOTE", may_be_cut=True, from_width=100),
]


def _print_jobs(holdfast: Holdfast, jobs: list[Job]) -> None:
    now = holdfast.engine.now()
    people = console().is_terminal

    def row(job: Job) -> list[str | Text]:
        made = when(job.created_at, now) if people else iso(job.created_at) or ""
        due = when(job.run_at, now) if people else iso(job.run_at) or ""
        return [
            job.id,
            job.type,
            status_text(job.status),
            f"{job.attempts}/{job.max_attempts}",
            made,
            job.queue,
            str(job.priority),
            due,
            clean(_note(job)) or "-",
        ]

    print_table(_COLUMNS, (row(job) for job in jobs))


def _note(job: Job) -> str:
    """How far it has come, or what went wrong."""
    if job.error is not None:
        return job.error
    percent = "" if job.progress is None else f"{job.progress:.0f}% "
    return f"{percent}{job.message or ''}".strip()


@commands.command()
def show(
    id: Annotated[str, typer.Argument(metavar="ID", help="Of the job.")],
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """All of one job: its fields, why it waits, its failed runs with tracebacks, its last lines."""
    with target.opened() as holdfast:
        show_job(holdfast, id, as_json)


def show_job(holdfast: Holdfast, id: str, as_json: bool) -> None:
    job = holdfast.jobs.get(id)
    runs = holdfast.jobs.attempts(id)
    waits = why_it_waits(holdfast.engine, job)
    if not as_json:
        lines = holdfast.jobs.logs(id, limit=SHOWN, newest=True)
        print_job(job, waits, runs, lines, holdfast.engine.now())
        return
    failures = [attempt_fields(run) for run in runs if run.error is not None]
    told = {**job_fields(job), "waits": waits, "failures": failures}
    if job.schedule is not None:  # of which every run is kept
        told["runs"] = [attempt_fields(run) for run in runs]
    print_json(told)


@commands.command()
def retry(
    ids: Ids = None,
    every: AllOption = False,
    filters: Filters = Filters(),
    limit: LimitOption = None,
    yes: YesOption = False,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Run jobs again from the beginning: these, or the failed ones that match a filter.

    Another --status retries others. Skipped: what runs, is blocked or recurs, and jobs whose key is
    live again.
    """
    with target.opened() as holdfast:
        change(holdfast, RETRY, Call(ids or [], every, filters, limit, yes, as_json))


@commands.command()
def cancel(
    ids: Ids = None,
    every: AllOption = False,
    filters: Filters = Filters(),
    limit: LimitOption = None,
    yes: YesOption = False,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Cancel jobs: these, or the unfinished ones that match a filter.

    Running ones are asked to stop, and are cancelled when they have.
    """
    with target.opened() as holdfast:
        change(holdfast, CANCEL, Call(ids or [], every, filters, limit, yes, as_json))


@commands.command()
def delete(
    ids: Ids = None,
    every: AllOption = False,
    filters: Filters = Filters(),
    limit: LimitOption = None,
    yes: YesOption = False,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Remove jobs for good, whatever they are doing: these, or all that match a filter.

    Recurring ones are spared, unless --key or --entity names them.
    """
    with target.opened() as holdfast:
        change(holdfast, DELETE, Call(ids or [], every, filters, limit, yes, as_json))


@commands.command()
def edit(
    id: Annotated[str, typer.Argument(metavar="ID", help="Of the job.")],
    priority: Annotated[
        int | None, typer.Option("--priority", help="A higher number runs first.")
    ] = None,
    after: Annotated[
        str | None, typer.Option("--in", help="So long from now: '10m'; 0: now.")
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", help="At this moment: 2030-01-31T12:00, UTC.")
    ] = None,
    queue: Annotated[str | None, typer.Option("--queue", help="Move it to this queue.")] = None,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Give a job that waits another priority, time or queue."""
    if after is not None and at is not None:
        raise InvalidInput("--in and --at were both given: give one of them")
    if all(given is None for given in (priority, after, at, queue)):
        raise InvalidInput("nothing to edit: give --priority, --in, --at or --queue")
    delay = None if after is None else duration(after, "--in")
    moment = None if at is None else instant(at, "--at", "--in")
    with target.opened() as holdfast:
        job = holdfast.jobs.edit(id, priority=priority, delay=delay, run_at=moment, queue=queue)
        now = holdfast.engine.now()
    if as_json:
        print_json(job_fields(job))
        return
    due = f"due {both(job.run_at, now)}"
    typer.echo(f"edited {job.id}: {job.status}, queue {job.queue}, priority {job.priority}, {due}")
