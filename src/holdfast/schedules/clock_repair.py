"""Scripts that repair times after a clock step: if the database's clock was set back, the next runs of
jobs are too far ahead. worker/housekeeping/clock_service.py notices the step and runs them.

A row that was last written later than now proves that the clock was set back. If the end of a run wrote
the row, the next run was counted from that time, and is counted from now instead. Times that a caller
or a schedule named (`run_at=`, `start=`, `reschedule`, an edit, cron, `ctx.next_run(at=...)`) stay.
"""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from holdfast.engine.dialect import MICRO, Dialect, wake
from holdfast.engine.script import Row, Run, Script
from holdfast.schedules.next_run import from_json

BATCH = 1000  #: waiting jobs or keys of limits that one transaction reads
TOLERANCE = timedelta(seconds=2)  #: smaller differences do not count as a step
# A row and the record of its run that were written less than this apart come from one transaction.
_SAME = timedelta(seconds=1)

Cursor = tuple[Any, str]  #: run_at and id of the last job that was read


class Moved(NamedTuple):
    moved: int  #: jobs whose next run was moved
    after: Cursor | None  #: the last job that was read; None: there are no more


def read_clock(dialect: Dialect) -> Script[datetime]:
    """Return the time of the database's clock."""
    return dialect.moment((yield Run("clock", {"now": dialect.now()})).rows[0][0])


def bring_forward(dialect: Dialect, after: Cursor | None, limit: int = BATCH) -> Script[Moved]:
    """Count the next runs of `limit` waiting jobs from now, if they are too far ahead because the clock
    was set back."""
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
    """Return the parameters that let a waiting job run sooner, if the end of a run wrote its row later
    than now; None if its time stays."""
    id, run_at, due_at, updated_at, schedule, finished_at = row
    run_at, written, ended = map(dialect.moment, (run_at, updated_at, finished_at))
    due_at = None if due_at is None or schedule is None else dialect.moment(due_at)
    ahead = written - now
    if ahead <= TOLERANCE or abs(ended - written) > _SAME:
        return None  # the clock was not set back, or the row was written again after the run
    if schedule is not None:
        if due_at is None:
            return None  # its run chose the time
        if from_json(schedule).cron is None:
            due_at -= ahead
        elif due_at > written:
            return None  # cron names this time; an earlier time means that this is a retry
    return {
        "now": dialect.now(),
        "id": id,
        "run_at": dialect.time(run_at - ahead),
        "due_at": None if due_at is None else dialect.time(due_at),
        "written": dialect.time(written),
    }


def wake_keys_early(dialect: Dialect, after: str, limit: int = BATCH) -> Script[str]:
    """Wake keys of rate limits that would have capacity only later than the rate's period allows. Looks
    at `limit` keys behind `after`; returns the last one, or "" if there are no more."""
    edge, seen = (yield Run("keys_edge", {"after": after, "limit": limit})).rows[0]
    params = {"now": dialect.now(), "after": after, "limit": limit, "margin": MICRO}
    if (yield Run("wake_keys_early", params)).rows:
        yield from wake(["*"])
    return edge if seen == limit else ""
