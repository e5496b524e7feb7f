"""Scripts that tell why a job waits, and its place in line: for `app.jobs.why` and the dashboard. They
compute both at each call, from a few bounded reads."""

from collections.abc import Sequence

from holdfast.engine.dialect import Dialect
from holdfast.engine.records import Parent
from holdfast.engine.script import Run, Script
from holdfast.jobs.job import Job, Status
from holdfast.limits.admission import Capacity
from holdfast.limits.limit import QUEUE
from holdfast.limits.scripts import listing, peek
from holdfast.workflows import scripts as workflow_scripts

CAP = 10_000
_NAMED = 5  # parents that the reason names


def held_back(dialect: Dialect, job: Job) -> Script[str | None]:
    """Return the limit or the parents that a job waits for, such as "limit tmdb-api: 4 of 4 running,
    17th in line"; None if it waits for neither."""
    if job.status is Status.BLOCKED and job.limit_key is not None:
        found = yield from peek(dialect, [job.limit_key], "keyed")
        return (yield from _full(dialect, job, job.limit_key, found.get(job.limit_key)))
    if job.status is Status.BLOCKED and job.workflow_id is not None:
        return _parents((yield from workflow_scripts.parents(job.id)))
    if job.status is not Status.PENDING:
        return None
    limits = yield from listing(1)
    names = [limit.name for limit in limits if job.type in limit.tasks and not limit.keyed]
    capacities = yield from peek(dialect, [*names, QUEUE + job.queue], "whole")
    for name, capacity in capacities.items():
        if not capacity.left:
            return (yield from _full(dialect, job, name, capacity))
    return None


def _parents(parents: Sequence[Parent]) -> str | None:
    """Return the reason of a job that waits for its parents."""
    waiting = [parent for parent in parents if parent.outcome is None]
    if not waiting:
        return "waits for its workflow"
    for parent in waiting:
        if parent.status in (None, Status.FAILED, Status.CANCELLED) and parent.policy == "hold":
            what = "was deleted" if parent.status is None else parent.status
            return (
                f"held: {parent.node or parent.id}, which it waits for, {what}; retry that one, or "
                "release this one"
            )
    names = ", ".join(f"{parent.node} ({parent.status})" for parent in waiting[:_NAMED])
    more = f" and {len(waiting) - _NAMED} more" if len(waiting) > _NAMED else ""
    jobs = "1 job" if len(waiting) == 1 else f"{len(waiting)} jobs"
    return f"waits for {jobs}: {names}{more}"


def _full(dialect: Dialect, job: Job, name: str, capacity: Capacity | None) -> Script[str]:
    before = yield from place(dialect, job, CAP)
    line = f"{_ordinal(before + 1)} in line"
    if capacity is None or capacity.left:
        return f"limit {name}: has room again, {line}"
    if capacity.waits_for_rate:
        wait = f"{capacity.until_next():.0f} s"
        return f"limit {name}: the rate {capacity.rate} is spent for {wait}, {line}"
    return f"limit {name}: {capacity.running} of {capacity.most} running, {line}"


def place(dialect: Dialect, job: Job, cap: int) -> Script[int]:
    """Return how many jobs are in front of a job, counted up to a cap."""
    params = {
        "limit_key": job.limit_key,
        "queue": job.queue,
        "type": job.type,
        "rank": job.rank,
        "run_at": dialect.time(job.run_at),
        "id": job.id,
        "cap": cap,
    }
    walk = "parked" if job.status is Status.BLOCKED else "pending"
    total: int = (yield Run("place", params, options=frozenset({walk}))).rows[0][0]
    return total


def _ordinal(number: int) -> str:
    if number > CAP:
        return f"over {CAP}th"
    ending = (
        "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{ending}"
