"""`holdfast jobs`: look at jobs, and change what happens to them."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Annotated

import typer
from rich.text import Text

from holdfast.app import Holdfast
from holdfast.cli.detail import print_job
from holdfast.cli.filters import (
    EntityOption,
    Filters,
    KeyOption,
    LimitOption,
    QueueOption,
    SinceOption,
    StatusOption,
    TypeOption,
    UntilOption,
)
from holdfast.cli.output import (
    Column,
    attempt_fields,
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
from holdfast.cli.target import SCHEMA, AppOption, JsonOption, SchemaOption, UrlOption, opened
from holdfast.cli.verbs import CANCEL, DELETE, RETRY, Call, Ids, YesOption, change
from holdfast.health import why_it_waits
from holdfast.job import Job

commands = typer.Typer(help="Jobs: list, show, retry, cancel, delete and watch them.")

LIMIT = 100
PAGE = 100


@commands.command("list")
def show_all(
    status: StatusOption = None,
    type: TypeOption = None,
    queue: QueueOption = None,
    entity: EntityOption = None,
    key: KeyOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = LIMIT,
    app: AppOption = None,
    url: UrlOption = None,
    schema: SchemaOption = SCHEMA,
    as_json: JsonOption = False,
) -> None:
    """The jobs that match, newest first."""
    filters = Filters(
        status=status, type=type, queue=queue, entity=entity, key=key, since=since, until=until
    )
    with opened(app, url, schema) as holdfast:
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
    id: Annotated[str, typer.Argument(metavar="ID")],
    app: AppOption = None,
    url: UrlOption = None,
    schema: SchemaOption = SCHEMA,
    as_json: JsonOption = False,
) -> None:
    """All of one job: its fields, why it waits, and its failed runs with their tracebacks."""
    with opened(app, url, schema) as holdfast:
        show_job(holdfast, id, as_json)


def show_job(holdfast: Holdfast, id: str, as_json: bool) -> None:
    job = holdfast.jobs.get(id)
    runs = holdfast.jobs.attempts(id)
    waits = why_it_waits(holdfast.engine, job)
    if not as_json:
        print_job(job, waits, runs, holdfast.engine.now())
        return
    failures = [attempt_fields(run) for run in runs if run.error is not None]
    told = {**job_fields(job), "waits": waits, "failures": failures}
    if job.schedule is not None:  # of which every run is kept
        told["runs"] = [attempt_fields(run) for run in runs]
    print_json(told)


@commands.command()
def retry(
    ids: Ids = None,
    status: StatusOption = None,
    type: TypeOption = None,
    queue: QueueOption = None,
    entity: EntityOption = None,
    key: KeyOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = None,
    yes: YesOption = False,
    app: AppOption = None,
    url: UrlOption = None,
    schema: SchemaOption = SCHEMA,
    as_json: JsonOption = False,
) -> None:
    """Run jobs again from the beginning: these, or the failed ones that match a filter.

    Another --status retries others. Running jobs are left alone, and those whose key is live again.
    """
    filters = Filters(
        status=status, type=type, queue=queue, entity=entity, key=key, since=since, until=until
    )
    with opened(app, url, schema) as holdfast:
        change(holdfast, RETRY, Call(ids or [], filters, limit, yes, as_json))


@commands.command()
def cancel(
    ids: Ids = None,
    status: StatusOption = None,
    type: TypeOption = None,
    queue: QueueOption = None,
    entity: EntityOption = None,
    key: KeyOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = None,
    yes: YesOption = False,
    app: AppOption = None,
    url: UrlOption = None,
    schema: SchemaOption = SCHEMA,
    as_json: JsonOption = False,
) -> None:
    """Cancel jobs: these, or the unfinished ones that match a filter.

    Running ones are asked to stop, and are cancelled when they have.
    """
    filters = Filters(
        status=status, type=type, queue=queue, entity=entity, key=key, since=since, until=until
    )
    with opened(app, url, schema) as holdfast:
        change(holdfast, CANCEL, Call(ids or [], filters, limit, yes, as_json))


@commands.command()
def delete(
    ids: Ids = None,
    status: StatusOption = None,
    type: TypeOption = None,
    queue: QueueOption = None,
    entity: EntityOption = None,
    key: KeyOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: LimitOption = None,
    yes: YesOption = False,
    app: AppOption = None,
    url: UrlOption = None,
    schema: SchemaOption = SCHEMA,
    as_json: JsonOption = False,
) -> None:
    """Remove jobs for good, whatever they are doing: these, or all that match a filter.

    Recurring ones that match are removed, too.
    """
    filters = Filters(
        status=status, type=type, queue=queue, entity=entity, key=key, since=since, until=until
    )
    with opened(app, url, schema) as holdfast:
        change(holdfast, DELETE, Call(ids or [], filters, limit, yes, as_json))
