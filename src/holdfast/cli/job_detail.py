"""How `holdfast jobs show` and `schedules show` present one job."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from holdfast.app import Holdfast
from holdfast.cli.commands.logs import print_lines
from holdfast.cli.commands.schedules import schedule_details
from holdfast.cli.output import clean, console, full_time, progress, select, status_text, to_json
from holdfast.cli.target import Common
from holdfast.jobs.job import Attempt, Job
from holdfast.jobs.job_json import iso, job_fields
from holdfast.monitoring.health import why_it_waits

LOG_LINES = 20  # the last ones; `jobs logs` prints all
RUNS = 10  # of a recurring job, shown; all that are kept are in the JSON
_MOMENTS = (
    *("created_at", "updated_at", "run_at", "due_at", "expires_at", "last_run_at", "started_at"),
    "completed_at",
)


def show_job(holdfast: Holdfast, id: str, common: Common) -> None:
    """Print all of one job, with its failed runs; of a recurring job, with its last runs."""
    job = holdfast.jobs.get(id)
    runs = holdfast.jobs.attempts(id)
    waits = why_it_waits(holdfast.engine, job)
    failures = [run for run in runs if run.error is not None]
    fields = {**job_fields(job), "waits": waits, "failures": failures}
    if job.schedule is not None:  # of which every run is kept
        fields["runs"] = runs
    if common.printed_json(fields):
        return
    lines = holdfast.jobs.logs(id, limit=LOG_LINES, newest=True)
    out = console()
    reasons = [("waits", Text(clean(reason))) for reason in waits]
    _print_fields(out, [*_fields(job, holdfast.engine.now()), *reasons])
    _print_runs(out, job, runs)
    if lines:
        out.print()
        out.print(Text("the last lines of its log", style="bold"))
        print_lines(out, lines)


def _fields(job: Job, now: datetime) -> Iterator[tuple[str, Text]]:
    status = status_text(job.status)
    if job.cancel_requested and job.completed_at is None:
        status.append(" (asked to stop)")
    errors = select(job, ("error", "prune_error", "last_error"))
    if job.last_error == job.error:
        errors["last_error"] = None
    found: dict[str, object] = {
        **select(job, ("id", "type")),
        "status": status,
        **select(job, ("queue", "priority", "key", "idempotency_key")),
        "entity": job.entity_type and f"{job.entity_type}:{to_json(job.entity_id)}",
        "attempts": f"{job.attempts} of {job.max_attempts}",
        "crashes": job.crashes or None,
        "worker": job.worker_id,
        "limit_key": job.limit_key,
        **schedule_details(job),
        "workflow": job.workflow_id and f"{job.workflow_id} ({job.node})",
        **{name: at and full_time(at, now) for name, at in select(job, _MOMENTS).items()},
        "progress": progress(job) or None,
        "payload": to_json(job.payload, indent=None),
        "result": None if job.result is None else to_json(job.result, indent=None),
        **{
            name: error and Text(clean(error, lines=True), style="red")
            for name, error in errors.items()
        },
    }
    for name, value in found.items():
        if value is not None:
            yield name, value if isinstance(value, Text) else Text(clean(value))


def _print_fields(out: Console, rows: Sequence[tuple[str, Text]]) -> None:
    if not out.is_terminal:
        for name, value in rows:
            out.print(f"{name}: {value}", soft_wrap=True)
        return
    columns = (Column(style="bold", no_wrap=True), Column(overflow="fold"))
    table = Table(*columns, box=None, show_header=False, pad_edge=False, padding=(0, 1))
    for row in rows:
        table.add_row(*row)
    out.print(table)


def _print_runs(out: Console, job: Job, runs: Sequence[Attempt]) -> None:
    """Print the runs that failed; of a recurring job, the last runs."""
    recurs = job.schedule is not None
    for run in runs[:RUNS] if recurs else runs:
        took = ""
        if run.started_at is not None:
            took = f", after {(run.finished_at - run.started_at).total_seconds():.1f} s"
        name = "run" if recurs else f"attempt {run.attempt}"
        ended = f"then {run.status}" if run.error is not None else "without an error"
        out.print()
        title = f"{name}: {iso(run.finished_at)}{took}, {ended}"
        out.print(Text(title, style="bold"), soft_wrap=True)
        if run.error is not None:
            out.print(Text(clean(run.error, lines=True), style="red"), soft_wrap=True)
        if run.trace:
            out.print(Text(clean(run.trace.rstrip(), lines=True), style="dim"), soft_wrap=True)
    if recurs and len(runs) > RUNS:
        out.print(f"\nand {len(runs) - RUNS} runs before; --json has them", style="dim")
