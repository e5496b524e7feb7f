"""What is pending, by queue and type: a walk over the claim index that skips from kind to kind.

A step is a seek or a few, so the cost follows the number of kinds and not that of jobs. PostgreSQL
seeks what is greater by several columns. SQLite seeks by equal columns and one that is greater: there,
a command for each column that may be the greater one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from holdfast.engine.statements import Command, parse

_AT_ONCE = (
    "(queue, type, suspect, rank) > (:queue, :type, :suspect, :rank)"
    " ORDER BY queue, type, suspect, rank, run_at, id",
)
_BY_COLUMN = (
    "queue = :queue AND type = :type AND suspect = :suspect AND rank > :rank"
    " ORDER BY rank, run_at, id",
    "queue = :queue AND type = :type AND suspect > :suspect ORDER BY suspect, rank, run_at, id",
    "queue = :queue AND type > :type ORDER BY type, suspect, rank, run_at, id",
    "queue > :queue ORDER BY queue, type, suspect, rank, run_at, id",
)

Row = tuple[Any, ...]
RANKS = 50  # of one queue and type, and then the last: where jobs age, each has a rank of its own


_LAST = (
    "queue = :queue AND type = :type AND suspect = :suspect AND rank > :rank"
    " ORDER BY rank DESC, run_at DESC, id DESC"
)


def steps(table: str, *, at_once: bool) -> list[Command]:
    """Those to the next kind, and the one to the last rank of a kind."""
    return [
        parse(
            f"SELECT queue, type, suspect, rank, run_at FROM {table}"  # noqa: S608 - a name of ours
            f" WHERE status = 'pending' AND {step} LIMIT 1"
        )
        for step in (*(_AT_ONCE if at_once else _BY_COLUMN), _LAST)
    ]


def walk(
    known: Sequence[Command], ask: Callable[[Command, Mapping[str, Any]], Row | None]
) -> Iterator[Row]:
    """Queue, type, suspect, rank, and when the longest waiting job of these was due. `ask` runs a
    command and gives its row."""
    *nearer, last = known
    ranks = 0
    after: dict[str, Any] = {"queue": "", "type": "", "suspect": False, "rank": 0}
    while True:
        row = next((row for step in nearer if (row := ask(step, after)) is not None), None)
        if row is None:
            return
        yield row
        ranks = ranks + 1 if row[:3] == tuple(after.values())[:3] else 1
        after = dict(zip(after, row[:4], strict=True))
        if ranks == RANKS and (row := ask(last, after)) is not None:
            after["rank"] = row[3] - 1  # what waits there may have waited the longest
