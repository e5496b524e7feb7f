"""`app.health()`: is work being done, and if not, why; and why a single job waits.

It reads what workers tell of themselves and what is pending, at a cost that does not grow with the
table. Whoever is told that something is wrong is told what to do.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.duration import Duration, seconds
from holdfast.engine import Engine, QueueInfo, WorkerInfo, waiting
from holdfast.errors import DatabaseError
from holdfast.job import Job, Status

SILENCE = 15.0  # seconds without a sign of life, after which a worker does not count
CAP = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What was found. `problems` need somebody; `warnings` are worth knowing."""

    ok: bool
    problems: list[str]
    warnings: list[str] = field(default_factory=list)
    jobs: dict[Status, int] = field(default_factory=dict)  #: by status, each counted up to 10,000
    workers: int = 0  #: that live
    oldest_pending: float | None = None  #: seconds that the longest waiting job has been due
    unknown_types: list[str] = field(default_factory=list)  #: pending; no live worker knows them
    paused_queues: list[str] = field(default_factory=list)
    stuck_jobs: list[str] = field(
        default_factory=list
    )  #: past their timeout, and not to be stopped
    silent_workers: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerJob:
    id: str
    type: str
    stuck: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A worker, as it tells of itself. What it does not tell is None or empty."""

    id: str
    state: str  #: live, draining, silent, left or dead
    host: str | None
    pid: int | None
    queues: list[str]
    tasks: list[str] | None  #: the names that it knows
    slots: int | None
    running: int | None
    jobs: list[WorkerJob]  #: some of those that it runs
    started_at: datetime
    beat_at: datetime
    beat_age: float  #: seconds
    left_at: datetime | None
    died_at: datetime | None

    @property
    def alive(self) -> bool:
        return self.state in ("live", "draining")

    def serves(self, queue: str) -> bool:
        return self.state == "live" and (not self.queues or queue in self.queues)

    def knows(self, type: str) -> bool:
        return self.tasks is None or type in self.tasks


def view(worker: WorkerInfo, now: datetime) -> WorkerView:
    """What a worker's row says, at this moment."""
    told = json.loads(worker.info)
    age = max(0.0, (now - worker.beat_at).total_seconds())
    return WorkerView(
        id=worker.id,
        state=_state(worker, age, bool(told.get("draining"))),
        host=told.get("host"),
        pid=told.get("pid"),
        queues=list(told.get("queues", [])),
        tasks=told.get("tasks"),
        slots=told.get("slots"),
        running=told.get("running"),
        jobs=[
            WorkerJob(id=job["id"], type=job["type"], stuck=bool(job.get("stuck")))
            for job in told.get("jobs", [])
        ],
        started_at=worker.started_at,
        beat_at=worker.beat_at,
        beat_age=age,
        left_at=worker.left_at,
        died_at=worker.died_at,
    )


def _state(worker: WorkerInfo, age: float, draining: bool) -> str:
    if worker.died_at is not None:
        return "left" if worker.left_at is not None else "dead"
    if worker.left_at is not None:
        return "left"
    if age > SILENCE:
        return "silent"
    return "draining" if draining else "live"


def read_workers(engine: Engine) -> list[WorkerView]:
    """Every worker that is remembered, dead ones too."""
    now = engine.now()
    return [view(worker, now) for worker in engine.workers()]


def read_health(engine: Engine, max_age: Duration | None = None) -> Health:
    """All checks. A database that cannot be used is a finding, not an exception."""
    limit = None if max_age is None else seconds(max_age, what="max_age")
    try:
        return _judge(
            engine.counts(cap=CAP),
            read_workers(engine),
            engine.queues(cap=CAP),
            engine.backlog(),
            engine.now(),
            limit,
        )
    except DatabaseError as problem:
        return Health(ok=False, problems=[str(problem)])


def _judge(
    jobs: dict[Status, int],
    workers: Sequence[WorkerView],
    queues: Sequence[QueueInfo],
    backlog: Sequence[tuple[str, str, datetime]],
    now: datetime,
    max_age: float | None,
) -> Health:
    alive = [worker for worker in workers if worker.alive]
    waiting = [(queue, type, (now - due).total_seconds()) for queue, type, due in backlog]
    oldest = max((age for *_, age in waiting), default=None)
    unserved = list(dict.fromkeys(_unserved(waiting, workers)))
    problems = [
        *_idle(jobs, alive),
        *([text for _, text in unserved] if alive else []),
        *_too_old(waiting, max_age),
        *_paused(queues, waiting=True),
        *_stuck(alive),
        *_silent(workers),
    ]
    return Health(
        ok=not problems,
        problems=problems,
        warnings=_paused(queues, waiting=False),
        jobs=jobs,
        workers=len(alive),
        oldest_pending=None if oldest is None else max(0.0, oldest),
        unknown_types=sorted({type for type, _ in unserved if type is not None}),
        paused_queues=[queue.name for queue in queues if queue.paused_at is not None],
        stuck_jobs=[job.id for worker in alive for job in worker.jobs if job.stuck],
        silent_workers=[worker.id for worker in workers if worker.state == "silent"],
    )


def _idle(jobs: dict[Status, int], alive: Sequence[WorkerView]) -> Iterator[str]:
    pending, running = jobs[Status.PENDING], jobs[Status.RUNNING]
    if not alive and (pending or running):
        yield (
            f"no worker lives, while {pending} jobs are pending and {running} running: start one "
            "with 'holdfast worker MODULE:APP'"
        )


def _unserved(
    waiting: Iterable[tuple[str, str, float]], workers: Sequence[WorkerView]
) -> Iterator[tuple[str | None, str]]:
    """The type that nobody knows (None: its queue is the trouble), and what to say."""
    for queue, type, _ in waiting:
        serving = [worker for worker in workers if worker.serves(queue)]
        if not serving:
            yield None, f"no live worker serves queue {queue!r}: start one with '-q {queue}'"
        elif not any(worker.knows(type) for worker in serving):
            yield (
                type,
                f"no live worker knows task {type!r} (queue {queue!r}): start a worker whose "
                "application registers it, or cancel its jobs",
            )


def _too_old(waiting: Iterable[tuple[str, str, float]], max_age: float | None) -> Iterator[str]:
    if max_age is None:
        return
    oldest: dict[tuple[str, str], float] = {}
    for queue, type, age in waiting:
        if age > max_age:
            oldest[queue, type] = max(age, oldest.get((queue, type), 0.0))
    for (queue, type), age in oldest.items():
        yield (
            f"a job of task {type!r} in queue {queue!r} has been due for {age:.0f} s, over the limit "
            f"of {max_age:g} s: add workers or slots, or look at what holds them up"
        )


def _paused(queues: Iterable[QueueInfo], *, waiting: bool) -> list[str]:
    return [
        f"queue {queue.name!r} is paused since {queue.paused_at:%Y-%m-%d %H:%M} UTC"
        + (f" with {queue.depth} jobs pending" if queue.depth else "")
        + f": 'holdfast queues resume {queue.name}' lets it go on"
        for queue in queues
        if queue.paused_at is not None and bool(queue.depth) is waiting
    ]


def _stuck(alive: Iterable[WorkerView]) -> Iterator[str]:
    for worker in alive:
        for job in worker.jobs:
            if job.stuck:
                yield (
                    f"job {job.id} ({job.type}) is past its timeout and does not return in worker "
                    f"{worker.id}: a thread cannot be killed; run it under 'holdfast worker', or make "
                    "it look at ctx.cancelled"
                )


def _silent(workers: Iterable[WorkerView]) -> Iterator[str]:
    for worker in workers:
        if worker.state == "silent":
            yield (
                f"worker {worker.id} has been silent for {worker.beat_age:.0f} s: it hangs, was "
                "killed, or cannot reach the database; any other worker gives back what it holds"
            )


def why_it_waits(engine: Engine, job: Job) -> list[str]:
    """Why a job is not finished yet, in sentences; nothing for a finished one."""
    now = engine.now()
    match job.status:
        case Status.BLOCKED:
            return [_held_back(engine, job) or "it waits for another job"]
        case Status.SCHEDULED | Status.RETRYING:
            reasons = [_due(job, now)]
            if job.status is Status.RETRYING:
                reasons.append(f"its last run failed; {_attempts_left(job)}")
            return reasons
        case Status.PENDING:
            reasons = _why_pending(job, engine.queues(cap=1), read_workers(engine))
            limit = _held_back(engine, job)
            return reasons if limit is None else [*reasons[:-1], limit]
        case Status.RUNNING:
            return list(_why_running(job, read_workers(engine)))
        case _:
            return []


def _held_back(engine: Engine, job: Job) -> str | None:
    return engine.run(lambda: waiting.held_back(engine.dialect, job), write=False)


def _due(job: Job, now: datetime) -> str:
    if not job.enabled:
        why = "" if job.disabled_because is None else f" ({job.disabled_because})"
        return f"disabled{why}: its run of {job.run_at:%Y-%m-%d %H:%M:%S} UTC is kept for later"
    left = (job.run_at - now).total_seconds()
    moment = f"{job.run_at:%Y-%m-%d %H:%M:%S} UTC"
    if left > 0:
        return f"due at {moment}, in {left:.0f} s"
    return f"due since {moment}: the next look of a live worker makes it pending"


def _attempts_left(job: Job) -> str:
    return f"{max(0, job.max_attempts - job.attempts)} of {job.max_attempts} attempts are left"


def _why_pending(job: Job, queues: Iterable[QueueInfo], workers: Sequence[WorkerView]) -> list[str]:
    reasons = [
        f"queue {queue.name!r} is paused since {queue.paused_at:%Y-%m-%d %H:%M} UTC: 'holdfast "
        f"queues resume {queue.name}' lets it go on"
        for queue in queues
        if queue.name == job.queue and queue.paused_at is not None
    ]
    if not any(worker.alive for worker in workers):
        return [*reasons, "no worker lives: start one with 'holdfast worker MODULE:APP'"]
    if unserved := [text for _, text in _unserved([(job.queue, job.type, 0.0)], workers)]:
        return [*reasons, *unserved]
    if reasons:
        return reasons
    able = [worker for worker in workers if worker.serves(job.queue) and worker.knows(job.type)]
    running = sum(worker.running or 0 for worker in able)
    slots = sum(worker.slots or 0 for worker in able)
    alone = "; its process died under it before, so it runs alone" if job.crashes else ""
    return [f"it waits for a free slot: {running} of {slots} are taken where it can run{alone}"]


def _why_running(job: Job, workers: Iterable[WorkerView]) -> Iterator[str]:
    if job.cancel_requested:
        yield "it was asked to stop, and has not stopped yet"
    holder = next((worker for worker in workers if worker.id == job.worker_id), None)
    if holder is None or not holder.alive:
        state = "unknown" if holder is None else holder.state
        silence = "" if holder is None else f" (last heard of {holder.beat_age:.0f} s ago)"
        yield (
            f"its worker {job.worker_id} is {state}{silence}: another worker gives the job back "
            "within seconds, if one lives"
        )
    elif any(one.id == job.id and one.stuck for one in holder.jobs):
        yield f"it is past its timeout and does not return in worker {holder.id}"
