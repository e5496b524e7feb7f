"""Scripts that repair times after the database's clock was set back: they are too far ahead then.

A row that was last written later than now proves that the clock was set back. If the end of a run wrote
it, the next run was counted from that time, and is counted from now instead. Times that were chosen
(`run_at=`, `start=`, `reschedule`, an edit, cron, `ctx.next_run(at=...)`) stay.
"""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from holdfast.engine.dialect import MICRO, Dialect, wake
from holdfast.engine.script import Row, Run, Script
from holdfast.schedules.next_run import from_json

BATCH = 1000  #: waiting jobs or keys of limits that one transaction reads
TOLERANCE = timedelta(seconds=2)  #: smaller differences do not count as a step
_SAME = timedelta(
    seconds=1
)  # between the row's last write and the record of its run: one transaction

Cursor = tuple[Any, str]  #: run_at and id of the last job that was read


class Moved(NamedTuple):
    moved: int  #: jobs whose next run was moved
    after: Cursor | None  #: the last job that was read; None: that was all


def read_clock(dialect: Dialect) -> Script[datetime]:
    """Return the time of the database's clock."""
    return dialect.moment((yield Run("clock", {"now": dialect.now()})).rows[0][0])


def bring_forward(dialect: Dialect, after: Cursor | None, limit: int = BATCH) -> Script[Moved]:
    """Count the next runs of some waiting jobs from now, if they are too far ahead after a step
    back."""
    now = yield from read_clock(dialect)
    place = (dialect.time(now), "") if after is None else after
    params = {"now": dialect.now(), "run_at": place[0], "id": place[1] or None, "limit": limit}
    rows = (yield Run("ahead", params)).rows
    edge = (yield Run("ahead_edge", params)).rows
    moves = [move for row in rows if (move := _move(dialect, row, now)) is not None]
    moved = (yield Run("bring_forward", {"now": dialect.now()}, moves)).rows if moves else []
    if moved:
        yield from wake(["*"])
    last = [(dialect.time(dialect.moment(run_at)), id) for run_at, id in edge]
    return Moved(len(moved), last[0] if last else None)


def _move(dialect: Dialect, row: Row, now: datetime) -> dict[str, Any] | None:
    """Return the sooner run of a waiting job, if its row was written later than now and by the end of a
    run; None if it stays."""
    id, run_at, due_at, updated_at, schedule, finished_at = row
    run_at, written, ended = map(dialect.moment, (run_at, updated_at, finished_at))
    due_at = None if due_at is None or schedule is None else dialect.moment(due_at)
    ahead = written - now
    if ahead <= TOLERANCE or abs(ended - written) > _SAME:
        return None  # no step, or something else wrote it after the run
    if schedule is not None:
        if due_at is None:
            return None  # its run chose the time
        if from_json(schedule).cron is None:
            due_at -= ahead
        elif due_at > written:
            return None  # a time of cron; an earlier one means a retry
    return {
        "now": dialect.now(),
        "id": id,
        "run_at": dialect.time(run_at - ahead),
        "due_at": None if due_at is None else dialect.time(due_at),
        "written": dialect.time(written),
    }


def wake_keys_early(dialect: Dialect, after: str, limit: int = BATCH) -> Script[str]:
    """Wake some keys whose rate would have capacity only later than its period allows. Returns the last
    key that was read; "": that was all."""
    edge, seen = (yield Run("keys_edge", {"after": after, "limit": limit})).rows[0]
    params = {"now": dialect.now(), "after": after, "limit": limit, "margin": MICRO}
    if (yield Run("wake_keys_early", params)).rows:
        yield from wake(["*"])
    return edge if seen == limit else ""
