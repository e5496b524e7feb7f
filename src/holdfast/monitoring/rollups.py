"""Scripts that write and read roll-ups, the figures of each minute: each worker writes rows of its own,
and readers sum them (docs/decisions/0015)."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holdfast.engine.dialect import MICRO, Dialect
from holdfast.engine.script import Row, Run, Script
from holdfast.monitoring.metrics import KEPT, Point, Rollup, Share, Total, histogram_of

_COLUMNS = (
    *("type", "queue", "worker_id", "completed", "failed", "cancelled", "retried", "wait", "run"),
)


def roll_up(dialect: Dialect, rollups: Sequence[Rollup]) -> Script[None]:
    """Write roll-ups. Idempotent: they replace the rows of the same minute, worker, task and queue."""
    yield Run("roll_up", {}, [_row(dialect, rollup) for rollup in rollups])


def _row(dialect: Dialect, rollup: Rollup) -> dict[str, Any]:
    return {
        **{name: getattr(rollup, name) for name in _COLUMNS},
        "minute": dialect.time(rollup.minute),
        "waits": rollup.waits.to_json(),
        "runs": rollup.runs.to_json(),
    }


def prune(dialect: Dialect) -> Script[int]:
    """Delete the rows of the oldest minute, if it is older than a day; return their number."""
    params = {"now": dialect.now(), "kept": int(KEPT * MICRO)}
    return (yield Run("prune_rollups", params)).changed


def series(
    dialect: Dialect, since: datetime, until: datetime, type: str | None, queue: str | None
) -> Script[list[Point]]:
    between = {"since": dialect.time(since), "until": dialect.time(until)}
    params = {**between, "type": type, "queue": queue}
    wanted = (("only_type", type), ("only_queue", queue))
    options = frozenset(word for word, value in wanted if value is not None)
    reply = yield Run("series", params, options=options)
    return [_point(dialect, row) for row in reply.rows]


def _point(dialect: Dialect, row: Row) -> Point:
    at, completed, failed, cancelled, retried, wait, run = row
    ended = completed + failed + cancelled + retried
    return Point(
        at=dialect.moment(at),
        completed=completed,
        failed=failed,
        cancelled=cancelled,
        retried=retried,
        wait=wait / ended if ended else None,
        run=run / ended if ended else None,
    )


def totals(dialect: Dialect, since: datetime, until: datetime) -> Script[list[Total]]:
    reply = yield Run("totals", {"since": dialect.time(since), "until": dialect.time(until)})
    return [Total._make([*row[:8], *map(histogram_of, row[8:])]) for row in reply.rows]


def shares(dialect: Dialect, since: datetime) -> Script[list[Share]]:
    reply = yield Run("shares", {"since": dialect.time(since)})
    return [Share(*row) for row in reply.rows]


def overdue(dialect: Dialect) -> Script[tuple[str, str, datetime] | None]:
    """Return queue, type and due time of the job that should have been made pending the longest ago."""
    rows = (yield Run("overdue", {"now": dialect.now()})).rows
    return None if not rows else (rows[0][0], rows[0][1], dialect.moment(rows[0][2]))


def probe(dialect: Dialect) -> Script[None]:
    """Write a row, always the same one, so that the health check knows whether the database can be
    written."""
    yield Run("probe", {"name": "health", "now": dialect.now()})
