"""How `holdfast jobs show` presents one job."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.cli.output import clean, console, iso, status_text, to_json, when
from holdfast.job import Attempt, Job


def print_job(job: Job, waits: Sequence[str], failures: Sequence[Attempt], now: datetime) -> None:
    out = console()
    rows = [*_fields(job, now), *(("waits", Text(reason)) for reason in waits)]
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
    for failure in failures:
        _print_failure(out, failure)


def _fields(job: Job, now: datetime) -> Iterator[tuple[str, Text]]:
    yield "id", Text(job.id)
    yield "type", Text(job.type)
    status = status_text(job.status)
    if job.cancel_requested and job.completed_at is None:
        status.append(" (asked to stop)")
    yield "status", status
    yield "queue", Text(job.queue)
    yield "priority", Text(str(job.priority))
    if job.key is not None:
        yield "key", Text(clean(job.key))
    if job.entity_type is not None:
        yield "entity", Text(clean(f"{job.entity_type}:{to_json(job.entity_id)}"))
    yield "attempts", Text(f"{job.attempts} of {job.max_attempts}")
    if job.crashes:
        yield "crashes", Text(str(job.crashes))
    if job.worker_id is not None:
        yield "worker", Text(job.worker_id)
    for name in ("created_at", "updated_at", "run_at", "started_at", "completed_at"):
        moment: datetime | None = getattr(job, name)
        if moment is not None:
            yield name, Text(f"{iso(moment)} ({when(moment, now)})")
    if job.progress is not None or job.message is not None:
        percent = "" if job.progress is None else f"{job.progress:.0f}% "
        yield "progress", Text(clean(f"{percent}{job.message or ''}"))
    yield "payload", Text(clean(to_json(job.payload, indent=None)))
    if job.result is not None:
        yield "result", Text(clean(to_json(job.result, indent=None)))
    if job.error is not None:
        yield "error", Text(clean(job.error, lines=True), style="red")


def _print_failure(out: Console, failure: Attempt) -> None:
    took = ""
    if failure.started_at is not None:
        took = f", after {(failure.finished_at - failure.started_at).total_seconds():.1f} s"
    title = f"attempt {failure.attempt}: {iso(failure.finished_at)}{took}, then {failure.status}"
    out.print()
    out.print(Text(title, style="bold"), soft_wrap=True)
    out.print(Text(clean(failure.error, lines=True), style="red"), soft_wrap=True)
    if failure.trace:
        out.print(Text(clean(failure.trace.rstrip(), lines=True), style="dim"), soft_wrap=True)
