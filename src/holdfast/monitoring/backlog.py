"""The script that reads the backlog: the queues and types that have pending jobs.

It walks over the claim index and skips from one kind (a queue and a type) to the next. A step is one
seek or a few, so the cost grows with the number of kinds, not of jobs. PostgreSQL seeks a greater row
of several columns. SQLite seeks by equal columns and one greater column: there, a step tries each
column that may be the greater one.
"""

from datetime import datetime
from typing import Any

from holdfast.engine.dialect import Dialect
from holdfast.engine.script import Row, Run, Script

# Steps in one queue and type before the walk skips to the last rank: where jobs age, each has its own.
RANKS = 50
_ALL_COLUMNS = ("next_by_columns",)
_EACH_COLUMN = ("next_rank", "next_level", "next_type", "next_queue")


def read_backlog(dialect: Dialect, limit: int = 1000) -> Script[list[tuple[str, str, datetime]]]:
    """Return up to `limit` kinds: queue, type, and when the longest waiting of these jobs was due."""
    found: list[tuple[str, str, datetime]] = []
    ranks = 0
    after: dict[str, Any] = {"queue": "", "type": "", "suspect": False, "rank": 0}
    while len(found) < limit:
        row = yield from _next(after, _ALL_COLUMNS if dialect.seeks_rows else _EACH_COLUMN)
        if row is None:
            break
        found.append((row[0], row[1], dialect.moment(row[4])))
        ranks = ranks + 1 if row[:3] == tuple(after.values())[:3] else 1
        after = dict(zip(after, row[:4], strict=True))
        if ranks == RANKS and (last := (yield from _next(after, ("last_rank",)))) is not None:
            after["rank"] = last[3] - 1  # jobs of the last rank may have waited the longest
    return found


def _next(after: dict[str, Any], steps: tuple[str, ...]) -> Script[Row | None]:
    for step in steps:
        reply = yield Run("next_pending", after, options=frozenset({step}))
        if reply.rows:
            return reply.rows[0]
    return None
