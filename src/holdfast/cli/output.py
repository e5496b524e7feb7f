"""What commands print: tables on a terminal, plain columns elsewhere, and JSON for programs."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.core.log_format import escaped, escaped_json
from holdfast.jobs.job import Status
from holdfast.jobs.job_json import attempt_fields as attempt_fields
from holdfast.jobs.job_json import iso as iso
from holdfast.jobs.job_json import job_fields as job_fields
from holdfast.jobs.job_json import plain as plain

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
_NARROWEST = 4  # columns, below which nothing can be told


# JSON


def to_json(value: Any, *, indent: int | None = 2) -> str:
    # Letters beyond ASCII are escaped where the terminal or pipe could not take them.
    escape = "utf" not in (getattr(sys.stdout, "encoding", None) or "").lower()
    return escaped_json(json.dumps(value, indent=indent, ensure_ascii=escape, default=str))


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


# text


def clean(value: object, *, lines: bool = False) -> str:
    """A stored text, made harmless; in one line unless `lines` are wanted."""
    text = escaped(str(value))
    return text if lines else text.replace("\n", " ").replace("\t", " ")


def console() -> Console:
    return Console(highlight=False, emoji=False, markup=False)


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


def status_text(status: str) -> Text:
    return Text(status, style=STYLES.get(status, ""))


@dataclass(frozen=True)
class Column:
    name: str
    right: bool = False
    may_be_cut: bool = False  #: where a terminal is too narrow; elsewhere nothing is
    from_width: int = 0  #: left out on terminals narrower than this


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[str | Text]]) -> None:
    out = console()
    cells = [[cell if isinstance(cell, Text) else clean(cell) for cell in row] for row in rows]
    if not out.is_terminal:
        _print_plain(columns, cells)
        return
    shown = [index for index, column in enumerate(columns) if out.width >= column.from_width]
    needs = [
        max(cell_len(str(cell)) for cell in (columns[index].name, *(row[index] for row in cells)))
        for index in shown
    ]
    widths = fit(needs, [columns[index].may_be_cut for index in shown], out.width)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for index, width in zip(shown, widths, strict=True):
        column = columns[index]
        justify: Literal["left", "right"] = "right" if column.right else "left"
        table.add_column(
            column.name, justify=justify, no_wrap=True, overflow="ellipsis", width=width
        )
    for row in cells:
        table.add_row(*(row[index] for index in shown))
    out.print(table)


def fit(needs: Sequence[int], may_be_cut: Sequence[bool], room: int) -> list[int]:
    """Widths of columns: those that may be cut share what the others leave, the small ones whole."""
    widths = list(needs)
    free = room - 2 * (len(needs) - 1)
    free -= sum(need for need, cut in zip(needs, may_be_cut, strict=True) if not cut)
    cuttable = sorted((index for index, cut in enumerate(may_be_cut) if cut), key=needs.__getitem__)
    for place, index in enumerate(cuttable):
        share = max(_NARROWEST, free // (len(cuttable) - place))
        widths[index] = min(needs[index], share)
        free -= widths[index]
    return widths


def _print_plain(columns: Sequence[Column], rows: Sequence[Sequence[str | Text]]) -> None:
    """Columns with two spaces between them, nothing cut: for pipes and files."""
    cells = [[column.name for column in columns], *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    for row in cells:
        padded = (
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        )
        typer.echo("  ".join(padded).rstrip())
