"""`holdfast schedules`: recurring jobs, and what becomes of them."""

from collections.abc import Callable
from datetime import datetime
from itertools import islice
from typing import Annotated

import typer
from rich.text import Text

from holdfast.app import Holdfast
from holdfast.cli.commands.jobs import LIMIT, show_job, whole
from holdfast.cli.filters import LimitOption, TypeOption, duration, instant
from holdfast.cli.job_actions import YesOption, confirm
from holdfast.cli.job_detail import enabled, words
from holdfast.cli.options import Commands
from holdfast.cli.output import (
    Column,
    clean,
    console,
    iso,
    job_fields,
    print_json,
    print_json_array,
    print_table,
    when,
)
from holdfast.cli.target import (
    JsonOption,
    Target,
)
from holdfast.errors import InvalidInput, JobNotFound
from holdfast.jobs.job import Job, Status
from holdfast.schedules.next_run import CODE

commands = Commands(help="Recurring jobs: list, show, enable, disable, move and delete them.")

NO_KEY = "-"  # how lists show, and commands take, the schedule that is written at a task
Type = Annotated[str, typer.Argument(metavar="TASK", help="The task's name.")]
Key = Annotated[
    str,
    typer.Argument(metavar="KEY", help="Without: the schedule that is written at the task."),
]
_COLUMNS = [
    Column("TASK", may_be_cut=True),
    Column("KEY", may_be_cut=True),
    Column("SCHEDULE", may_be_cut=True),
    Column("ENABLED", may_be_cut=True),
    Column("NEXT", right=True),
    Column("AT", from_width=120),
    Column("LAST", right=True, from_width=90),
    Column("FAILED", right=True),
    Column("ERROR", may_be_cut=True, from_width=90),
]


@commands.command("list")
def show_all(
    type: TypeOption = None,
    failing: Annotated[bool, typer.Option("--failing", help="Whose last run failed.")] = False,
    disabled: Annotated[bool, typer.Option("--disabled", help="That are disabled.")] = False,
    limit: LimitOption = LIMIT,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Recurring jobs, by task and key; a key '-' is the schedule that is written at the task.

    NEXT and AT say when it runs next, and of a disabled one when it would; FAILED counts the failures
    in a row.
    """
    with target.opened() as holdfast:
        found = (
            job
            for job in holdfast.schedules.list()
            if _is_type(job, type)
            and (not failing or job.consecutive_failures)
            and (not disabled or not job.enabled)
        )
        if as_json:
            print_json_array(job_fields(job) for job in whole(holdfast, islice(found, limit)))
            return
        jobs = list(islice(found, None if limit is None else limit + 1))
        _print(jobs[:limit], holdfast.engine.now())
    if not console().is_terminal:
        return
    if limit is not None and len(jobs) > limit:
        typer.echo(f"the first {limit}; --limit shows more", err=True)
    elif not jobs and not (type or failing or disabled):
        typer.echo("nothing recurs; a worker makes the schedules of its tasks", err=True)


def _is_type(job: Job, type: str | None) -> bool:
    if type is None:
        return True
    return job.type.startswith(type[:-1]) if type.endswith("*") else job.type == type


def _print(jobs: list[Job], now: datetime) -> None:
    people = console().is_terminal

    def row(job: Job) -> list[str | Text]:
        last = job.last_run_at
        told = "-" if last is None else when(last, now) if people else iso(last) or ""
        failures = job.consecutive_failures
        return [
            job.type,
            _shown(job.key),
            words(job),
            enabled(job),
            _next(job, now),
            iso(job.run_at) or "",
            told,
            Text(str(failures), style="red" if failures else "dim"),
            clean(job.last_error) if job.last_error else "-",
        ]

    print_table(_COLUMNS, (row(job) for job in jobs))


def _shown(key: str | None) -> str:
    return NO_KEY if key == CODE else clean(key)


def _next(job: Job, now: datetime) -> str:
    if job.status is Status.RUNNING:
        return "running"
    if job.status is Status.SCHEDULED and not job.enabled:
        return "-"
    told = when(job.run_at, now)
    return told if job.run_at > now else f"due {told}"


# one of them


@commands.command()
def show(
    task: Type,
    key: Key = CODE,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """All of one recurring job, with its last runs."""
    with target.opened() as holdfast:
        show_job(holdfast, _find(holdfast, task, key).id, as_json)


@commands.command()
def enable(
    task: Type,
    key: Key = CODE,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Let it run again; an overdue one does so at once."""
    with target.opened() as holdfast:
        _change(holdfast, holdfast.schedules.enable, task, key, "enabled", as_json)


@commands.command()
def disable(
    task: Type,
    key: Key = CODE,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Keep it from running; its next run is remembered. A run that has begun ends as it would."""
    with target.opened() as holdfast:
        _change(holdfast, holdfast.schedules.disable, task, key, "disabled", as_json)


@commands.command("run-now")
def run_now(
    task: Type,
    key: Key = CODE,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Run it once, now, also if it is disabled; if it runs already, again after that."""
    with target.opened() as holdfast:
        _change(holdfast, holdfast.schedules.run_now, task, key, "asked for a run of", as_json)


@commands.command()
def reschedule(
    task: Type,
    key: Key = CODE,
    at: Annotated[str | None, typer.Option("--at", help="A moment: 2030-01-31T12:00, UTC.")] = None,
    after: Annotated[str | None, typer.Option("--after", help="A time from now: '10m'.")] = None,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Choose its next run; those after it are counted from there. Of one that runs, the next."""
    if (at is None) == (after is None):
        raise InvalidInput("when? Give --at with a moment or --after with a time, one of them")
    moment = None if at is None else instant(at, "--at", "--after")
    delay = None if after is None else duration(after, "--after")

    def move(task: str, key: str) -> Job:
        return holdfast.schedules.reschedule(task, key, at=moment, after=delay)

    with target.opened() as holdfast:
        _change(holdfast, move, task, key, "moved", as_json)


@commands.command()
def delete(
    task: Type,
    key: Key = CODE,
    yes: YesOption = False,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """Remove it for good. What is written at a task is made again by the next worker that starts."""
    with target.opened() as holdfast:
        row = _find(holdfast, task, key)
        job = holdfast.jobs.get(row.id)
        if not yes:
            name = f"the recurring job {_name(job)}, {words(job)}"
            confirm(f"delete {name}?", f"{name}: nobody can be asked whether to delete it")
        holdfast.schedules.delete(job.type, str(job.key))
    if as_json:
        print_json(job_fields(job))
    else:
        typer.echo(f"deleted {_name(job)}")


def _change(
    holdfast: Holdfast,
    verb: Callable[[str, str], Job],
    task: str,
    key: str,
    done: str,
    as_json: bool,
) -> None:
    _find(holdfast, task, key)
    job = verb(task, _stored(key))
    if as_json:
        print_json(job_fields(job))
    else:
        told = _then(job, holdfast.engine.now())
        typer.echo(f"{done} {_name(job)}" + (f" ({told})" if told else ""))


def _find(holdfast: Holdfast, task: str, key: str) -> Job:
    try:
        return holdfast.schedules.get(task, _stored(key))
    except JobNotFound:
        which = "written at it" if _stored(key) == CODE else f"with the key {key!r}"
        raise JobNotFound(
            f"task {task!r} has no recurring job {which}; see 'holdfast schedules list --type {task}'"
        ) from None


def _stored(key: str) -> str:
    return CODE if key == NO_KEY else key


def _name(job: Job) -> str:
    return clean(job.type) if job.key == CODE else f"{clean(job.type)} {clean(job.key)}"


def _then(job: Job, now: datetime) -> str:
    """What it does next."""
    if job.status is Status.RUNNING:
        return "it is running; this is about the run after that"
    told = f"next run {iso(job.run_at)}, {when(job.run_at, now)}" if job.run_at > now else "due now"
    waits = job.status is Status.SCHEDULED and not job.enabled
    return f"{told}, once it is enabled" if waits else told
