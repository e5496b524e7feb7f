"""`app.health()`: is work being done, and if not, why; and why a single job waits.

It reads the reports of workers, the backlog and the figures of recent work, at a cost that does not
grow with the table. Every problem comes with its remedy.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypedDict

from holdfast.core.duration import Duration
from holdfast.engine.engine import Engine
from holdfast.errors import DatabaseError
from holdfast.jobs import wait_reason
from holdfast.jobs.job import Job, Status
from holdfast.jobs.outcome import SHARED
from holdfast.monitoring.health_checks import Check, pause_of, run_checks, unserved
from holdfast.monitoring.snapshot import Snapshot
from holdfast.monitoring.worker_status import WorkerView
from holdfast.settings import Thresholds


class HealthLimits(TypedDict, total=False):
    """The parameters of `app.health()`, which override those of `Holdfast(health=...)`."""

    max_age: Duration | None  #: the longest that a job may have been due; None: no limit
    stall: Duration | None  #: in which a run must end while work waits; None: no check
    failure_rate: float  #: share of finished jobs that failed, at which the check fails; 0.05
    window: Duration  #: over which rates and shares are measured, from 1m to 24h
    expected_workers: int | None  #: live workers that there should be
    spread: float  #: part of an equal share that each worker of a queue should do; 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The result of all checks. `problems` need action; `warnings` are worth knowing."""

    ok: bool
    problems: list[str]
    warnings: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)  #: each check, with its measurement
    jobs: dict[Status, int] = field(default_factory=dict)  #: by status, each counted up to 10,000
    workers: int = 0  #: live workers
    oldest_pending: float | None = None  #: seconds that the longest waiting job has been due
    unknown_types: list[str] = field(
        default_factory=list
    )  #: pending, and not known to any live worker
    paused_queues: list[str] = field(default_factory=list)
    stuck_jobs: list[str] = field(default_factory=list)  #: past their timeout, and still running
    silent_workers: list[str] = field(default_factory=list)


def read_health(snapshot: Snapshot, limits: Thresholds) -> Health:
    """Run all checks. A database that cannot be used is a problem in the result, not an exception."""
    try:
        jobs = snapshot.jobs  # read before the first check tries to write, which may wait for long
        checked = run_checks(snapshot, limits)
        unknown = unserved(snapshot.waiting, snapshot.workers)
    except DatabaseError as problem:
        return unreachable(str(problem))
    problems = [text for check, texts in checked if not check.warning for text in texts]
    reached = Check(name="database", ok=True, detail="it answers")
    return Health(
        ok=not problems,
        problems=problems,
        warnings=[text for check, texts in checked if check.warning for text in texts],
        checks=[reached, *(check for check, _ in checked)],
        jobs=jobs,
        workers=len(snapshot.alive),
        oldest_pending=max(snapshot.longest.values(), default=None),
        unknown_types=sorted({type for type, _ in unknown if type is not None}),
        paused_queues=[queue.name for queue in snapshot.queues if queue.paused_at is not None],
        stuck_jobs=list(dict.fromkeys(id for worker in snapshot.alive for id in worker.stuck)),
        silent_workers=[worker.id for worker in snapshot.workers if worker.state == "silent"],
    )


def unreachable(problem: str) -> Health:
    """Return the result for a database that cannot be used."""
    check = Check(name="database", ok=False, detail=problem)
    return Health(ok=False, problems=[problem], checks=[check])


def why_it_waits(engine: Engine, job: Job) -> list[str]:
    """Return the reasons why a job is not finished yet, in sentences; none for a finished job."""
    reasons = _why(engine, job)
    if reasons and job.unreadable_since is not None:
        reasons.append(
            f"no worker could read its payload since {_utc(job.unreadable_since)}: {job.error}"
        )
    return reasons


def _why(engine: Engine, job: Job) -> list[str]:
    match job.status:
        case Status.BLOCKED:
            held_back = engine.read(wait_reason.held_back, job)
            return [*_pauses(engine, job), held_back or "it waits for another job"]
        case Status.SCHEDULED:
            return [_due(job, engine.now())]
        case Status.RETRYING:
            left = f"{max(0, job.max_attempts - job.attempts)} of {job.max_attempts}"
            return [_due(job, engine.now()), f"its last run failed; {left} attempts are left"]
        case Status.PENDING:
            pauses = _pauses(engine, job)
            if (limit := engine.read(wait_reason.held_back, job)) is not None:
                return [*pauses, limit]
            return _why_pending(job, pauses, Snapshot(engine).workers)
        case Status.RUNNING:
            return list(_why_running(job, Snapshot(engine).workers))
        case _:
            return []


def _due(job: Job, now: datetime) -> str:
    if not job.enabled:
        why = "" if job.disabled_because is None else f" ({job.disabled_because})"
        return f"disabled{why}: its run of {_utc(job.run_at)} is kept for later"
    left = (job.run_at - now).total_seconds()
    if left > 0:
        return f"due at {_utc(job.run_at)}, in {left:.0f} s"
    return f"due since {_utc(job.run_at)}: the next look of a live worker makes it pending"


def _utc(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _pauses(engine: Engine, job: Job) -> list[str]:
    """Return the pause of the job's queue, if it is paused, and when the pause ends by itself."""
    return [
        pause_of(
            queue, f" and resumes by itself at {_utc(queue.resume_at)}" if queue.resume_at else ""
        )
        for queue in engine.queues(cap=1)
        if queue.name == job.queue and queue.paused_at is not None
    ]


def _why_pending(job: Job, pauses: list[str], workers: Sequence[WorkerView]) -> list[str]:
    if not any(worker.alive for worker in workers):
        return [*pauses, "no worker lives: start one with 'holdfast worker MODULE:APP'"]
    if unable := [text for _, text in unserved([(job.queue, job.type, 0.0)], workers)]:
        return [*pauses, *unable]
    if pauses:
        return pauses
    able = [worker for worker in workers if worker.serves(job.queue) and worker.knows(job.type)]
    running = sum(worker.running or 0 for worker in able)
    slots = sum(worker.slots or 0 for worker in able)
    if job.deaths:
        return [_company(job.deaths)]
    return [f"it waits for a free slot: {running} of {slots} are taken where it can run"]


def _company(deaths: int) -> str:
    """Return why a job with deaths on record waits (docs/decisions/0021)."""
    others = SHARED[min(deaths, max(SHARED))] - 1
    company = f"with at most {others} others of which that is true" if others else "alone"
    times = "once" if deaths == 1 else f"{deaths} times"
    return f"its process died under it {times}: it waits for a process in which it runs {company}"


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
    elif job.id in holder.stuck:
        yield f"it is past its timeout and does not return in worker {holder.id}"
