"""Why a job waits, in words: derived when somebody asks, from a few bounded looks."""

import json
from collections.abc import Sequence

from holdfast.engine.dialect import Dialect
from holdfast.engine.inspection import queues, workers
from holdfast.engine.limiting import listing, peek
from holdfast.engine.script import Run, Script
from holdfast.engine.values import LimitInfo, WorkerInfo
from holdfast.job import FINISHED, Job, Status
from holdfast.limits import QUEUE, Room

CAP = 10_000


def why(dialect: Dialect, job: Job) -> Script[str | None]:
    """None: it does not wait."""
    if job.status in FINISHED or job.status is Status.RUNNING:
        return None
    if job.status in (Status.SCHEDULED, Status.RETRYING):
        when = job.run_at.isoformat(timespec="seconds")
        if not job.enabled:
            reason = "" if job.message is None else f" ({job.message})"
            return f"it is disabled{reason}; its run of {when} is kept"
        return f"its time is {when}"
    if job.status is Status.BLOCKED:
        if job.limit_key is None:
            return "it waits for another job"
        found = yield from peek(dialect, [job.limit_key], "keyed")
        return (yield from _full(dialect, job, job.limit_key, found.get(job.limit_key)))
    return (yield from _pending(dialect, job))


def _pending(dialect: Dialect, job: Job) -> Script[str]:
    for queue in (yield from queues(dialect, 1)):
        if queue.name == job.queue and queue.paused_at is not None:
            until = "" if queue.resume_at is None else f" until {queue.resume_at.isoformat()}"
            return f"queue {job.queue!r} is paused{until}"
    known = yield from workers(dialect)
    if (nobody := _nobody(job, known)) is not None:
        return nobody
    limits: Sequence[LimitInfo] = yield from listing(CAP)
    names = [limit.name for limit in limits if job.type in limit.tasks and not limit.keyed]
    found = yield from peek(dialect, [*names, QUEUE + job.queue], "whole")
    for name, room in found.items():
        if not room.left:
            return (yield from _full(dialect, job, name, room))
    before = yield from place(dialect, job, CAP)
    return f"it waits for a free worker: {_ordinal(before + 1)} in line of its task"


def _nobody(job: Job, known: Sequence[WorkerInfo]) -> str | None:
    alive = [json.loads(worker.info) for worker in known if worker.died_at is None]
    if not alive:
        return "no worker is alive"
    if not any(job.type in info.get("tasks", ()) for info in alive):
        return f"no live worker knows task {job.type!r}"
    if not any(job.queue in info.get("queues", ()) for info in alive):
        return f"no live worker serves queue {job.queue!r}"
    return None


def _full(dialect: Dialect, job: Job, name: str, room: Room | None) -> Script[str]:
    before = yield from place(dialect, job, CAP)
    line = f"{_ordinal(before + 1)} in line"
    if room is None or room.left:
        return f"limit {name}: has room, {line}"
    if room.waits_for_rate:
        return f"limit {name}: rate {room.rate} is spent for {room.until_next():.0f} s, {line}"
    return f"limit {name}: {room.running} of {room.most} running, {line}"


def place(dialect: Dialect, job: Job, cap: int) -> Script[int]:
    """How many stand in front of it, counted up to a cap."""
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
