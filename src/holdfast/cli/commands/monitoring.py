"""`holdfast stats`, `workers`, `errors` and `health`: what is done, by whom, what fails, and whether
all is well."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, cast

import typer
from rich.text import Text

from holdfast.cli.commands.queues import QUEUE_COLUMNS
from holdfast.cli.filters import parse_duration
from holdfast.cli.output import Column, age, clean, console, count, hint, print_table, status_text
from holdfast.cli.target import AppArgument, Common, refuse_absent
from holdfast.errors import DatabaseUnavailable, InvalidInput
from holdfast.jobs.error_groups import BROKEN, ErrorGroup
from holdfast.monitoring.health import HealthLimits, unreachable
from holdfast.monitoring.metrics import Figures
from holdfast.monitoring.snapshot import Snapshot
from holdfast.monitoring.worker_status import GONE, WorkerView

# stats


def stats(
    application: AppArgument = None,
    window: Annotated[
        str, typer.Option(help="How far the figures go back: '15m', at most '24h'.")
    ] = "1h",
    *,
    common: Common,
) -> None:
    """Jobs by status, queues, live workers; and what was done lately, by task and queue.

    Each number of jobs is counted up to 10,000. The figures are what the workers wrote in the last
    hour (--window): how many jobs ended, how long they waited and ran. FAIL % is the share of
    finished jobs that failed.
    """
    length = parse_duration(window, "--window")
    with common.opened(application) as holdfast:
        found = holdfast.stats(window=length)
    if common.printed_json(found):
        return
    print_table(
        [
            Column("STATUS", lambda row: status_text(row[0])),
            Column("JOBS", lambda row: count(row[1], found.cap), right=True),
        ],
        found.jobs.items(),
    )
    if found.queues:
        typer.echo()
        print_table(QUEUE_COLUMNS, found.queues)
    if found.figures.finished or found.figures.retried:
        typer.echo(f"\nthe last {found.window / 60:g} minutes")
        _print_figures("TASK", {**found.by_task, "(all)": found.figures})
        if len(found.by_queue) > 1:
            typer.echo()
            _print_figures("QUEUE", found.by_queue)
    if found.oldest_pending is not None:
        typer.echo(f"\nlongest waiting: {age(found.oldest_pending)}")
    typer.echo(f"\nworkers: {found.workers}")


def _print_figures(title: str, by_name: Mapping[str, Figures]) -> None:
    columns: list[Column[tuple[str, Figures]]] = [
        Column(title, lambda row: row[0], may_be_cut=True),
        Column("COMPLETED", lambda row: row[1].completed, right=True),
        Column("FAILED", lambda row: row[1].failed, right=True),
        Column("RETRIED", lambda row: row[1].retried, right=True, from_width=90),
        Column("FAIL %", lambda row: f"{row[1].failure_rate:.1%}", right=True),
        Column("/MIN", lambda row: f"{row[1].per_minute:.1f}", right=True),
        Column("WAIT P50", lambda row: _time(row[1].wait.p50), right=True, from_width=100),
        Column("WAIT P95", lambda row: _time(row[1].wait.p95), right=True),
        Column("RUN P50", lambda row: _time(row[1].run.p50), right=True, from_width=100),
        Column("RUN P95", lambda row: _time(row[1].run.p95), right=True),
    ]
    print_table(columns, by_name.items())


def _time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return f"{seconds * 1000:.0f}ms" if seconds < 1 else f"{seconds:.1f}s"


# workers

_WORKER_STYLES = {"live": "green", "draining": "yellow", "silent": "bold red"}


def workers(
    application: AppArgument = None,
    everyone: Annotated[bool, typer.Option("--all", help="Also those that are gone.")] = False,
    *,
    common: Common,
) -> None:
    """The workers: where they are, what they run, and when they were last heard of."""
    with common.opened(application) as holdfast:
        found = [
            one for one in Snapshot(holdfast.engine).workers if everyone or one.state not in GONE
        ]
    common.print_list(found, _WORKER_COLUMNS)
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


_WORKER_COLUMNS: list[Column[WorkerView]] = [
    Column("WORKER", lambda worker: worker.id),
    Column(
        "STATE", lambda worker: Text(worker.state, style=_WORKER_STYLES.get(worker.state, "dim"))
    ),
    Column("HOST", lambda worker: worker.host or "?", may_be_cut=True, from_width=110),
    Column("PID", lambda worker: worker.pid or "?", right=True, from_width=110),
    Column("QUEUES", lambda worker: ",".join(worker.queues) or "?", may_be_cut=True),
    Column("RUNNING", _running, right=True),
    Column("BEAT", lambda worker: f"{age(worker.beat_age)} ago", right=True),
    Column("JOBS", _jobs, may_be_cut=True, from_width=100),
]


# errors


def _error(group: ErrorGroup) -> str:
    return ": ".join(filter(None, (group.exception, group.message)))


_ERROR_COLUMNS: list[Column[ErrorGroup]] = [
    Column("COUNT", lambda group: group.count, right=True),
    Column("LAST", lambda group: group.last_at, right=True),
    Column("TASKS", lambda group: ", ".join(group.types), may_be_cut=True),
    Column("ERROR", _error, may_be_cut=True),
    Column("WHERE", lambda group: group.frame, may_be_cut=True, from_width=100),
    Column("SAMPLE", lambda group: group.sample_ids[0]),
]


def errors(
    type: Annotated[str | None, typer.Option(help="Of this task only.")] = None,
    status: Annotated[
        list[str] | None, typer.Option(help="failed or retrying; without: both.")
    ] = None,
    *,
    common: Common,
) -> None:
    """What goes wrong: the newest failures by exception, message and place, the most frequent first.

    Numbers, names in quotes, addresses and paths in messages do not count.
    """
    if wrong := set(status or ()) - set(BROKEN):
        raise InvalidInput(f"--status {sorted(wrong)[0]!r}: give failed or retrying")
    with common.opened() as holdfast:
        found = holdfast.jobs.errors(status=status or BROKEN, type=type)
        now = holdfast.engine.now()
    if common.printed_json(found):
        return
    print_table(_ERROR_COLUMNS, found.groups, now)
    if not found.complete:
        hint(f"of the newest {found.looked_at} failures; there are more")


# health


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """The options that say what is healthy; the application's settings have the rest."""

    max_age: Annotated[
        str | None,
        typer.Option(
            help="Maximum time that a job may have been due, such as '5m' (default '1h')."
        ),
    ] = None
    stall: Annotated[
        str | None,
        typer.Option(help="Maximum time without a finished job while work waits (default '10m')."),
    ] = None
    failure_rate: Annotated[
        float | None,
        typer.Option(help="Maximum failure rate before the check fails (default 0.05)."),
    ] = None
    window: Annotated[
        str | None,
        typer.Option(help="The period over which rates and shares are computed (default '1h')."),
    ] = None
    expected_workers: Annotated[
        int | None, typer.Option(help="Number of live workers that is expected.")
    ] = None
    spread: Annotated[
        float | None,
        typer.Option(
            help="Minimum part of an equal share that each worker of a queue does (default 0.25)."
        ),
    ] = None

    def given(self) -> HealthLimits:
        """Return the limits that were given, as `app.health` takes them."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        for name in ("max_age", "stall", "window"):
            if (text := given.get(name)) is not None:
                option = f"--{name.replace('_', '-')}"
                given[name] = None if text == "none" else parse_duration(text, option)
        return cast(HealthLimits, given)


def health(application: AppArgument = None, *, limits: LimitOptions, common: Common) -> None:
    """Is work being done? Exit code 0: yes. 1: no, and what to do about it is printed.

    Looks at: the database and its tables, and whether it commits a write; live workers, if jobs are
    pending or running, or as many as are expected; pending jobs whose task or queue no live worker
    takes; how long jobs have been due; whether anything ends while work waits; the failure rate; paused
    queues with jobs; stuck jobs; silent workers. Warns of idle workers, and of several versions.
    """
    wanted = limits.given()
    with common.choose(application) as holdfast:
        try:
            refuse_absent(holdfast)
            found = holdfast.health(**wanted)
        except DatabaseUnavailable as problem:
            found = unreachable(str(problem))
    if not common.printed_json(found):
        lines = [(text, "problem", "bold red") for text in found.problems]
        lines += [(text, "warning", "yellow") for text in found.warnings]
        if found.ok:
            oldest = found.oldest_pending
            due = (
                "nothing is due" if oldest is None else f"the oldest has been due for {age(oldest)}"
            )
            lines.append((f"{found.workers} live workers; {due}", "healthy", "bold green"))
        for text, word, style in lines:
            console().print(Text.assemble((word, style), f"  {clean(text)}"), soft_wrap=True)
    raise typer.Exit(0 if found.ok else 1)
