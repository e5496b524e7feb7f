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
    """Return a value as JSON: a record is an object of its fields, a moment is ISO 8601."""
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
    sys.stdout.flush()


def print_json_array(values: Iterable[Any]) -> None:
    """An array, printed as it comes: it may be long."""
    separator = "["
    for value in values:
        typer.echo(f"{separator}\n{to_json(value)}", nl=False)
        separator = ","
    typer.echo("[]" if separator == "[" else "\n]")


def print_jobs(
    holdfast: Holdfast,
    jobs: Iterator[Job],
    columns: Sequence["Column[Job]"],
    limit: int,
    as_json: bool,
) -> int:
    """Print at most `limit` jobs, and return how many there were, or `limit` + 1. JSON has payloads and
    results, which lists leave out."""
    if as_json:
        print_json_array(_whole(holdfast, islice(jobs, limit)))
        return 0
    found = list(islice(jobs, limit + 1))
    print_table(columns, found[:limit], holdfast.engine.now())
    return len(found)


def _whole(holdfast: Holdfast, jobs: Iterator[Job]) -> Iterator[Job]:
    """With payloads and results; read some at a time."""
    while page := list(islice(jobs, PAGE)):
        bodies = {job.id: job.body for job in holdfast.engine.get([job.id for job in page])}
        for job in page:
            if job.id in bodies:  # else it was deleted just now
                yield replace(job, body=bodies[job.id])


# text


def clean(value: object, *, lines: bool = False) -> str:
    """A stored text, made harmless; in one line unless `lines` are wanted."""
    text = escaped(str(value))
    return text if lines else text.replace("\n", " ").replace("\t", " ")


def console(*, stderr: bool = False) -> Console:
    return Console(stderr=stderr, highlight=False, emoji=False, markup=False)


def hint(text: str) -> None:
    """Say on stderr what people may want to know, and programs do not."""
    if console().is_terminal:
        typer.echo(text, err=True)


def age(seconds: float) -> str:
    """7 s, 3 m, 2 h: as short as can be."""
    seconds = abs(seconds)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def when(moment: datetime, now: datetime) -> str:
    left = (moment - now).total_seconds()
    return f"in {age(left)}" if left > 0 else f"{age(left)} ago"


def both(moment: datetime, now: datetime) -> str:
    """A moment, and how far away it is."""
    return f"{iso(moment)} ({when(moment, now)})"


def count(number: int, cap: int) -> str:
    return f"{number}+" if number >= cap else str(number)


def percent(job: Job) -> str:
    return "" if job.progress is None else f"{job.progress:.0f}%"


def progress(job: Job) -> str:
    """How far a job has come: 40% half way."""
    return f"{percent(job)} {job.message or ''}".strip()


def status_text(status: str) -> Text:
    return Text(status, style=STYLES.get(status, ""))


@dataclass(frozen=True)
class Column(Generic[T]):
    """A heading, and how a record's cell is found: a moment is relative for people, and None is '-'."""

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
    """Print a row for each record. On a terminal, moments are told by their distance from `now`."""
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
    """Columns with two spaces between them, nothing cut: for pipes and files."""
    cells = [[column.name for column in columns], *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    for row in cells:
        padded = (
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        )
        typer.echo("  ".join(padded).rstrip())
