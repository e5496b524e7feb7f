"""`holdfast errors`: what goes wrong, by kind."""

from typing import Annotated, Any

import typer
from rich.text import Text

from holdfast.cli.output import Column, clean, console, iso, print_json, print_table, when
from holdfast.cli.target import (
    JsonOption,
    Target,
)
from holdfast.errors import InvalidInput
from holdfast.jobs.error_groups import BROKEN, ErrorGroup, ErrorGroups

_COLUMNS = [
    Column("COUNT", right=True),
    Column("LAST", right=True),
    Column("TASKS", may_be_cut=True),
    Column("ERROR", may_be_cut=True),
    Column("WHERE", may_be_cut=True, from_width=100),
    Column("SAMPLE"),
]


def errors(
    type: Annotated[str | None, typer.Option("--type", help="Of this task only.")] = None,
    status: Annotated[
        list[str] | None, typer.Option("--status", help="failed or retrying; without: both.")
    ] = None,
    target: Target = Target(),
    as_json: JsonOption = False,
) -> None:
    """What goes wrong: the newest failures by exception, message and place, the most frequent first.

    Numbers, names in quotes, addresses and paths in messages do not count.
    """
    if wrong := set(status or ()) - set(BROKEN):
        raise InvalidInput(f"--status {sorted(wrong)[0]!r}: give failed or retrying")
    with target.opened() as holdfast:
        found = holdfast.jobs.errors(status=status or BROKEN, type=type)
        now = holdfast.engine.now()
    if as_json:
        print_json(_fields(found))
        return
    people = console().is_terminal

    def row(group: ErrorGroup) -> list[str | Text]:
        what = ": ".join(part for part in (group.exception, group.message) if part)
        return [
            str(group.count),
            when(group.last_at, now) if people else iso(group.last_at) or "",
            clean(", ".join(group.types)),
            clean(what),
            clean(group.frame or "-"),
            group.sample_ids[0],
        ]

    print_table(_COLUMNS, (row(group) for group in found.groups))
    if people and not found.complete:
        typer.echo(f"of the newest {found.looked_at} failures; there are more", err=True)


def _fields(found: ErrorGroups) -> dict[str, Any]:
    return {
        "groups": [
            {name: _plain(getattr(group, name)) for name in ErrorGroup.__dataclass_fields__}
            for group in found.groups
        ],
        "looked_at": found.looked_at,
        "complete": found.complete,
        "since": iso(found.since),
    }


def _plain(value: Any) -> Any:
    return iso(value) if hasattr(value, "tzinfo") else value
