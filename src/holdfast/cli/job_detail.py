"""How `holdfast jobs show` presents one job."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.cli.commands.logs import print_lines
from holdfast.cli.output import both, clean, console, iso, status_text, to_json
from holdfast.errors import InvalidInput
from holdfast.jobs.job import Attempt, Job, LogLine
from holdfast.schedules.next_run import from_json, in_words

_MOMENTS = (
    *("created_at", "updated_at", "run_at", "due_at", "expires_at", "last_run_at", "started_at"),
    "completed_at",
)
RUNS = 10  # of a recurring job, shown; all that are kept are in the JSON


def print_job(
    job: Job,
    waits: Sequence[str],
    runs: Sequence[Attempt],
    lines: Sequence[LogLine],
    now: datetime,
) -> None:
    out = console()
    rows = [*_fields(job, now), *(("waits", Text(clean(reason))) for reason in waits)]
    if out.is_terminal:
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in rows:
            table.add_row(name, value)
        out.print(table)
    else:
        for name, value in rows:
            out.print(f"{name}: {value}", soft_wrap=True)
    for run in runs if job.schedule is None else runs[:RUNS]:
        _print_run(out, run, "attempt {}" if job.schedule is None else "run")
    if job.schedule is not None and len(runs) > RUNS:
        out.print(f"\nand {len(runs) - RUNS} runs before; --json has them", style="dim")
    if lines:
        out.print()
        out.print(Text("the last lines of its log", style="bold"))
        print_lines(out, lines)


def words(job: Job) -> str:
    """The schedule of a recurring job, for people."""
    try:
        return clean(in_words(from_json(job.schedule or "{}")))
    except InvalidInput:  # another release wrote it, and the rest can still be shown
        return clean(job.schedule)


def enabled(job: Job) -> Text:
    """Whether a recurring job is; where somebody said why it is not, that too."""
    if job.enabled:
        return Text("yes")
    reason = f" ({clean(job.disabled_because)})" if job.disabled_because else ""
    return Text(f"no{reason}", style="yellow")


def _fields(job: Job, now: datetime) -> Iterator[tuple[str, Text]]:
    yield "id", Text(job.id)
    yield "type", Text(clean(job.type))
    status = status_text(job.status)
    if job.cancel_requested and job.completed_at is None:
        status.append(" (asked to stop)")
    yield "status", status
    yield "queue", Text(clean(job.queue))
    yield "priority", Text(str(job.priority))
    if job.key is not None:
        yield "key", Text(clean(job.key))
    if job.idempotency_key is not None:
        yield "idempotency_key", Text(clean(job.idempotency_key))
    if job.entity_type is not None:
        yield "entity", Text(clean(f"{job.entity_type}:{to_json(job.entity_id)}"))
    yield "attempts", Text(f"{job.attempts} of {job.max_attempts}")
    if job.crashes:
        yield "crashes", Text(str(job.crashes))
    if job.worker_id is not None:
        yield "worker", Text(clean(job.worker_id))
    if job.limit_key is not None:
        yield "limit_key", Text(clean(job.limit_key))
    if job.schedule is not None:
        yield "schedule", Text(words(job))
        yield "enabled", enabled(job)
        yield "failures", Text(f"{job.consecutive_failures} in a row")
    if job.workflow_id is not None:
        yield "workflow", Text(f"{job.workflow_id} ({clean(job.node)})")
    for name in _MOMENTS:
        moment: datetime | None = getattr(job, name)
        if moment is not None:
            yield name, Text(both(moment, now))
    if job.progress is not None or job.message is not None:
        percent = "" if job.progress is None else f"{job.progress:.0f}% "
        yield "progress", Text(clean(f"{percent}{job.message or ''}"))
    yield "payload", Text(clean(to_json(job.payload, indent=None)))
    if job.result is not None:
        yield "result", Text(clean(to_json(job.result, indent=None)))
    if job.error is not None:
        yield "error", Text(clean(job.error, lines=True), style="red")
    if job.prune_error is not None:
        yield "prune_error", Text(clean(job.prune_error, lines=True), style="red")
    if job.last_error is not None and job.last_error != job.error:
        yield "last_error", Text(clean(job.last_error, lines=True), style="red")


def _print_run(out: Console, run: Attempt, name: str) -> None:
    """One that failed; of a recurring job, any."""
    took = ""
    if run.started_at is not None:
        took = f", after {(run.finished_at - run.started_at).total_seconds():.1f} s"
    ended = f"then {run.status}" if run.error is not None else "without an error"
    title = f"{name.format(run.attempt)}: {iso(run.finished_at)}{took}, {ended}"
    out.print()
    out.print(Text(title, style="bold"), soft_wrap=True)
    if run.error is not None:
        out.print(Text(clean(run.error, lines=True), style="red"), soft_wrap=True)
    if run.trace:
        out.print(Text(clean(run.trace.rstrip(), lines=True), style="dim"), soft_wrap=True)
