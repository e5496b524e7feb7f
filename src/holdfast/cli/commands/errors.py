"""`holdfast errors`: the newest failures, grouped by exception, message and place."""

from typing import Annotated

import typer

from holdfast.cli.output import Column, hint, print_json, print_table
from holdfast.cli.target import Common
from holdfast.errors import InvalidInput
from holdfast.jobs.error_groups import BROKEN, ErrorGroup

_COLUMNS: list[Column[ErrorGroup]] = [
    Column("COUNT", lambda group: group.count, right=True),
    Column("LAST", lambda group: group.last_at, right=True),
    Column("TASKS", lambda group: ", ".join(group.types), may_be_cut=True),
    Column(
        "ERROR",
        lambda group: ": ".join(filter(None, (group.exception, group.message))),
        may_be_cut=True,
    ),
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
    if common.as_json:
        print_json(found)
        return
    print_table(_COLUMNS, found.groups, now)
    if not found.complete:
        hint(f"of the newest {found.looked_at} failures; there are more")
