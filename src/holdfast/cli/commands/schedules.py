"""`holdfast schedules`: list, show and change recurring jobs.

How a schedule is shown, also by `holdfast jobs show`, is in here, except the words for its times
("every 30 minutes"): `in_words` of schedules/next_run.py, which the dashboard shows too.
"""

from collections.abc import Callable
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from typing import Annotated

import typer
from rich.text import Text

from holdfast.app import Holdfast
from holdfast.cli.filters import TypeOption, delay_or_time
from holdfast.cli.options import LIST_LIMIT, Commands, Confirmation, ListLimitOption
from holdfast.cli.output import Column, clean, failures, hint, when
from holdfast.cli.target import Common
from holdfast.errors import InvalidInput, JobNotFound
from holdfast.jobs.job import Job, Status
from holdfast.jobs.job_json import iso
from holdfast.schedules.client import Schedules
from holdfast.schedules.next_run import CODE, from_json, in_words

commands = Commands(
    name="schedules", help="Recurring jobs: list, show, enable, disable, move and delete them."
)

NO_KEY = "-"  # how lists show, and commands take, the schedule that is written at a task
Task = Annotated[str, typer.Argument(metavar="TASK", help="The task's name.")]
Key = Annotated[
    str,
    typer.Argument(
        metavar="KEY",
        help="Without: the schedule that is written at the task.",
        callback=lambda key: CODE if key == NO_KEY else key,
    ),
]


# how a schedule is shown


def _columns(now: datetime) -> list[Column[Job]]:
    return [
        Column("TASK", lambda job: job.type, may_be_cut=True),
        Column("KEY", lambda job: NO_KEY if job.key == CODE else job.key, may_be_cut=True),
        Column("SCHEDULE", _schedule, may_be_cut=True),
        Column("ENABLED", _enabled, may_be_cut=True),
        Column("NEXT", lambda job: _next_run(job, now), right=True),
        Column("AT", lambda job: iso(job.run_at), from_width=120),
        Column("LAST", lambda job: job.last_run_at, right=True, from_width=90),
        Column("FAILED", lambda job: failures(job.consecutive_failures), right=True),
        Column("ERROR", lambda job: job.last_error, may_be_cut=True, from_width=90),
    ]


def schedule_details(job: Job) -> dict[str, str | Text]:
    """Return the fields that only recurring jobs have, for people; empty for other jobs."""
    if job.schedule is None:
        return {}
    return {
        "schedule": _schedule(job),
        "enabled": _enabled(job),
        "failures": f"{job.consecutive_failures} in a row",
    }


def _schedule(job: Job) -> str:
    try:
        return clean(in_words(from_json(job.schedule or "{}")))
    except InvalidInput:  # another release wrote it, and the rest can still be shown
        return clean(job.schedule)


def _enabled(job: Job) -> Text:
    """Return whether the schedule is enabled, and why it is not if there is a reason."""
    if job.enabled:
        return Text("yes")
    reason = f" ({clean(job.disabled_because)})" if job.disabled_because else ""
    return Text(f"no{reason}", style="yellow")


def _is_held(job: Job) -> bool:
    """Whether the next run waits until the schedule is enabled."""
    return job.status is Status.SCHEDULED and not job.enabled


def _next_run(job: Job, now: datetime) -> str:
    """Return when a job runs next, for lists."""
    if job.status is Status.RUNNING:
        return "running"
    if _is_held(job):
        return "-"
    next_run = when(job.run_at, now)
    return next_run if job.run_at > now else f"due {next_run}"


def _next_run_in_words(job: Job, now: datetime) -> str:
    """Return when a job runs next, for the report of a change."""
    if job.status is Status.RUNNING:
        return "it is running; this is about the run after that"
    text = f"next run {iso(job.run_at)}, {when(job.run_at, now)}" if job.run_at > now else "due now"
    return f"{text}, once it is enabled" if _is_held(job) else text


def _name(job: Job) -> str:
    return clean(job.type) if job.key == CODE else f"{clean(job.type)} {clean(job.key)}"


# the commands


@commands.command("list")
def show_all(
    type: TypeOption = None,
    failing: Annotated[bool, typer.Option("--failing", help="Whose last run failed.")] = False,
    disabled: Annotated[bool, typer.Option("--disabled", help="That are disabled.")] = False,
    limit: ListLimitOption = LIST_LIMIT,
    *,
    common: Common,
) -> None:
    """Recurring jobs, by task and key; a key '-' is the schedule that is written at the task.

    NEXT and AT say when it runs next, and of a disabled one when it would; FAILED counts the failures
    in a row.
    """
    with common.opened() as holdfast:
        found = (
            job
            for job in holdfast.schedules.list()
            if fnmatchcase(job.type, type or "*")
            and (not failing or job.consecutive_failures)
            and (not disabled or not job.enabled)
        )
        columns = _columns(holdfast.engine.now())
        number = common.print_jobs(holdfast, found, columns, limit)
    if number > limit:
        hint(f"the first {limit}; --limit shows more")
    elif not (number or common.as_json or type or failing or disabled):
        hint("nothing recurs; a worker makes the schedules of its tasks")


@commands.command()
def show(task: Task, key: Key = CODE, *, common: Common) -> None:
    """All of one recurring job, with its last runs."""
    from holdfast.cli.job_detail import show_job  # which shows a schedule by this module

    with common.opened() as holdfast:
        show_job(holdfast, _find(holdfast, task, key).id, common)


@commands.command()
def enable(task: Task, key: Key = CODE, *, common: Common) -> None:
    """Let it run again; an overdue one does so at once."""
    _change(Schedules.enable, task, key, "enabled", common)


@commands.command()
def disable(task: Task, key: Key = CODE, *, common: Common) -> None:
    """Keep it from running; its next run is remembered. A run that has begun ends as it would."""
    _change(Schedules.disable, task, key, "disabled", common)


@commands.command("run-now")
def run_now(task: Task, key: Key = CODE, *, common: Common) -> None:
    """Run it once, now, also if it is disabled; if it runs already, again after that."""
    _change(Schedules.run_now, task, key, "asked for a run of", common)


@commands.command()
def reschedule(
    task: Task,
    key: Key = CODE,
    at: Annotated[str | None, typer.Option(help="A moment: 2030-01-31T12:00, UTC.")] = None,
    after: Annotated[str | None, typer.Option(help="A time from now: '10m'.")] = None,
    *,
    common: Common,
) -> None:
    """Choose its next run; those after it are counted from there. Of one that runs, the next."""
    if (at is None) == (after is None):
        raise InvalidInput("when? Give --at with a moment or --after with a time, one of them")
    delay, time = delay_or_time(after, "--after", at, "--at")

    _change(partial(Schedules.reschedule, at=time, after=delay), task, key, "moved", common)


@commands.command()
def delete(task: Task, key: Key = CODE, *, confirmation: Confirmation, common: Common) -> None:
    """Remove it for good. What is written at a task is made again by the next worker that starts."""
    with common.opened() as holdfast:
        job = holdfast.jobs.get(_find(holdfast, task, key).id)
        name = f"the recurring job {_name(job)}, {_schedule(job)}"
        refusal = f"{name}: nobody can be asked whether to delete it"
        confirmation.ask(f"delete {name}?", refusal)
        holdfast.schedules.delete(job.type, str(job.key))
    common.report(job, f"deleted {_name(job)}")


def _change(
    action: Callable[[Schedules, str, str], Job], task: str, key: str, done: str, common: Common
) -> None:
    """Change a schedule, and report when it runs next."""
    with common.opened() as holdfast:
        _find(holdfast, task, key)
        job = action(holdfast.schedules, task, key)
        next_run = _next_run_in_words(job, holdfast.engine.now())
        common.report(job, f"{done} {_name(job)} ({next_run})")


def _find(holdfast: Holdfast, task: str, key: str) -> Job:
    try:
        return holdfast.schedules.get(task, key)
    except JobNotFound:
        which = "written at it" if key == CODE else f"with the key {key!r}"
        raise JobNotFound(
            f"task {task!r} has no recurring job {which}; see 'holdfast schedules list --type {task}'"
        ) from None
