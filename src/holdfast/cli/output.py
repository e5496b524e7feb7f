"""What commands print: tables on a terminal, plain columns elsewhere, and JSON for programs."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any, Generic, TypeVar

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.app import Holdfast
from holdfast.core.log_format import escaped, escaped_json
from holdfast.jobs.job import Attempt, Job, Status
from holdfast.jobs.job_json import attempt_fields, iso, job_fields

T = TypeVar("T")
STYLES: Mapping[str, str] = {
    Status.BLOCKED: "magenta",
    Status.SCHEDULED: "blue",
    Status.RETRYING: "yellow",
    Status.PENDING: "cyan",
    Status.RUNNING: "bold blue",
    Status.COMPLETED: "green",
    Status.FAILED: "bold red",
    Status.CANCELLED: "dim",
}
PAGE = 100  # jobs whose payloads are read in one statement


# JSON


def to_json(value: Any, *, indent: int | None = 2) -> str:
    """Return a value as JSON: a record is an object of its fields, a time is ISO 8601."""
    # Letters beyond ASCII are escaped where the terminal or pipe could not take them.
    escape = "utf" not in (getattr(sys.stdout, "encoding", None) or "").lower()
    return escaped_json(json.dumps(value, indent=indent, ensure_ascii=escape, default=_encoded))


def _encoded(value: Any) -> Any:
    match value:
        case datetime():
            return iso(value)
        case Job():
            return job_fields(value)
        case Attempt():
            return attempt_fields(value)
    return select(value, value.__dataclass_fields__) if is_dataclass(value) else str(value)


def select(record: object, names: Iterable[str]) -> dict[str, Any]:
    """Return these attributes of a record."""
    return {name: getattr(record, name) for name in names}


def print_json(value: Any) -> None:
    typer.echo(to_json(value))


def print_json_line(value: Any) -> None:
    typer.echo(to_json(value, indent=None))


def print_json_array(values: Iterable[Any]) -> None:
    """Print an array one element at a time: it may be long."""
    separator = "["
    for value in values:
        typer.echo(f"{separator}\n{to_json(value)}", nl=False)
        separator = ","
    typer.echo("[]" if separator == "[" else "\n]")


def with_bodies(holdfast: Holdfast, jobs: Iterator[Job]) -> Iterator[Job]:
    """Yield the jobs with payloads and results, which are read a page at a time."""
    while page := list(islice(jobs, PAGE)):
        bodies = {job.id: job.body for job in holdfast.engine.get([job.id for job in page])}
        for job in page:
            if job.id in bodies:  # else it was deleted just now
                yield replace(job, body=bodies[job.id])


# text


def clean(value: object, *, lines: bool = False) -> str:
    """Return a stored text without control characters; in one line unless `lines` are wanted."""
    text = escaped(str(value))
    return text if lines else text.replace("\n", " ").replace("\t", " ")


def console(*, stderr: bool = False) -> Console:
    return Console(stderr=stderr, highlight=False, emoji=False, markup=False)


def hint(text: str) -> None:
    """Print to stderr, if stdout is a terminal, what programs need not know."""
    if console().is_terminal:
        typer.echo(text, err=True)


def age(seconds: float) -> str:
    """Return a duration in its largest unit: 7s, 3m, 2h, 1d."""
    seconds = abs(seconds)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def when(time: datetime, now: datetime) -> str:
    left = (time - now).total_seconds()
    return f"in {age(left)}" if left > 0 else f"{age(left)} ago"


def full_time(time: datetime, now: datetime) -> str:
    """Return a time, and how far away it is."""
    return f"{iso(time)} ({when(time, now)})"


def count(number: int, cap: int) -> str:
    return f"{number}+" if number >= cap else str(number)


def percent(job: Job) -> str:
    return "" if job.progress is None else f"{job.progress:.0f}%"


def progress(job: Job) -> str:
    """Return the progress of a job and its message: "40% half way"."""
    return f"{percent(job)} {job.message or ''}".strip()


def failures(number: int) -> Text:
    return Text(str(number), style="red" if number else "dim")


def status_text(status: str) -> Text:
    return Text(status, style=STYLES.get(status, ""))


@dataclass(frozen=True)
class Column(Generic[T]):
    """A heading, and how a record's cell is made: times are relative on a terminal, and None is '-'."""

    name: str
    value: Callable[[T], str | Text | int | datetime | None]
    right: bool = False
    may_be_cut: bool = False  #: where a terminal is too narrow; elsewhere nothing is
    from_width: int = 0  #: left out on terminals narrower than this

    def cell(self, record: T, now: datetime | None) -> str | Text:
        value = self.value(record)
        if isinstance(value, Text):
            return value
        if isinstance(value, datetime):
            value = iso(value) if now is None else when(value, now)
        return clean("" if value is None else value) or "-"


def print_table(
    columns: Sequence[Column[T]], records: Iterable[T], now: datetime | None = None
) -> None:
    """Print a row for each record. On a terminal, times are shown relative to `now`."""
    out = console()
    if not out.is_terminal:
        _print_plain(columns, [[column.cell(one, None) for column in columns] for one in records])
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    columns = [column for column in columns if out.width >= column.from_width]
    for column in columns:
        # Rich makes columns narrower that may wrap; their texts are cut instead.
        table.add_column(
            Text(column.name, no_wrap=True),
            justify="right" if column.right else "left",
            no_wrap=not column.may_be_cut,
            overflow="ellipsis",
        )
    for one in records:
        cells = (column.cell(one, now) for column in columns)
        table.add_row(*(Text.assemble(cell, no_wrap=True) for cell in cells))
    out.print(table)


def _print_plain(columns: Sequence[Column[T]], rows: Sequence[Sequence[str | Text]]) -> None:
    """Print columns with two spaces between them, nothing cut: for pipes and files."""
    cells = [[column.name for column in columns], *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    for row in cells:
        padded = (
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        )
        typer.echo("  ".join(padded).rstrip())
