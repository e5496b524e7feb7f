"""Scripts of workers: heartbeats, progress, declaring workers dead, and returning their jobs to the
queues."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from holdfast.engine.dialect import MICRO, Dialect, wake
from holdfast.engine.records import Beat, Held, Report, Seen, Stacks, Swept
from holdfast.engine.script import Row, Run, Script
from holdfast.events.outbox import emit
from holdfast.jobs.job import Claim, EventKind
from holdfast.jobs.rows import columns_to_job, decoder
from holdfast.limits.scripts import release

_stacks = decoder(Stacks, "asked_at, at, text")


def sweep(dialect: Dialect, dead: Sequence[Seen], limit: int, keep: float) -> Script[Swept]:
    """Mark workers dead and return the jobs of dead workers to the queues. The mark comes first, under
    the lock of the worker's row: later claims of the worker are refused, and the next sweep finds jobs
    that it claimed at the same time."""
    now = dialect.now()
    marked_dead: list[str] = []
    if dead:
        rows = [{"now": now, "id": worker.id, "beat_no": worker.beat_no} for worker in dead]
        marked = (yield Run("mark_dead", {"now": now}, rows)).rows
        marked_dead = [id for id, _, _ in marked]
        yield from _suspect(dead, marked)
    lost = (yield Run("held_by_dead", {"limit": limit})).rows
    if not lost:
        return Swept(marked_dead, [])
    ids = json.dumps([row[0] for row in lost])
    reply = yield Run("rescue", {"now": now, "ids": ids, "keep": round(keep * MICRO)})
    rescued = [columns_to_job(dialect, row) for row in reply.rows]
    begun = {worker.id: worker.begun for worker in dead if worker.begun is not None}
    if runs := [_lost_run(dialect, row, now, begun) for row in lost if row[5] is None]:
        yield Run("record_attempts", {"now": now}, runs)
    yield from emit(dialect, EventKind.RESCUED, [job.id for job in rescued])
    yield from wake(job.queue for job in rescued)
    yield from release(dialect, Counter(job.limit_key for job in rescued if job.limit_key))
    return Swept(marked_dead, rescued)


def _suspect(dead: Sequence[Seen], marked: Sequence[Row]) -> Script[None]:
    """Record a death for each job that may have caused the death of its worker (docs/decisions/0021).
    This comes before any job is returned to its queue: if the jobs of a worker were returned in several
    steps first, the last job would look as if it had been alone in the process."""
    seen = {worker.id: worker for worker in dead}
    victims = []
    for id, left_at, info in marked:
        worker = seen[id]
        if left_at is not None or (worker.beat_no is not None and _is_supervised(info)):
            continue  # the worker deregistered, or its supervisor died too: no job caused that
        begun, crash = worker.begun, worker.crash
        alone = False
        if crash is not None:
            alone = len((yield from held(id)) if begun is None else begun) == 1
        claims = None if begun is None else json.dumps([f"{job}:{number}" for job, number in begun])
        victims.append({"id": id, "begun": claims, "alone": int(alone), "crash": crash})
    if victims:
        yield Run("suspect", {}, victims)


def _is_supervised(info: str) -> bool:
    """Return whether the worker has a supervisor, which would have seen the death of its process."""
    try:
        return json.loads(info).get("supervised") is True
    except (ValueError, AttributeError):
        return False


def _lost_run(
    dialect: Dialect, row: Row, now: Any, begun: Mapping[str, Collection[Claim]]
) -> dict[str, Any]:
    """Return the record of a run that a dead worker did not end, for `app.jobs.attempts`. (A run with a
    verdict gets none here: the worker of the next claim records it.)"""
    id, claim_no, attempt, worker, started_at, _, orderly = row
    how = "left before this had ended" if orderly else "was lost while it ran this"
    if worker in begun and Claim(id, claim_no) not in begun[worker] and not orderly:
        how = "was lost before this had begun"
    return {
        "now": now,
        "id": id,
        "claim_no": claim_no,
        "attempt": attempt,
        "worker_id": worker,
        "started_at": None if started_at is None else dialect.time(dialect.moment(started_at)),
        "error": f"the worker {how}",
        "trace": None,
    }


def leave(dialect: Dialect, worker: str) -> Script[None]:
    """Deregister a worker."""
    yield Run("leave", {"now": dialect.now(), "id": worker})


def record_verdict(claim: Claim, verdict: str) -> Script[None]:
    """Store how a run ended, for the worker of the next claim to record."""
    yield Run("record_verdict", {"id": claim.id, "claim_no": claim.claim_no, "verdict": verdict})


def report(dialect: Dialect, reports: Sequence[Report]) -> Script[None]:
    """Write the progress of runs whose claims still hold."""
    now = dialect.now()
    rows = [{"now": now, **one._asdict()} for one in reports]
    changed = (yield Run("report", {"now": now}, rows, tell="id")).rows
    yield from emit(dialect, EventKind.PROGRESS, [row[0] for row in changed])


def beat(dialect: Dialect, worker: str, info: str) -> Script[Beat]:
    """Write a heartbeat; return whether the worker counts as alive, its claims, and whether an operator
    asks for the stacks of its runs."""
    reply = yield Run("beat", {"now": dialect.now(), "id": worker, "info": info})
    asked = bool(reply.rows) and bool(reply.rows[0][1])
    return Beat(bool(reply.rows), (yield from held(worker)), asked)


def ask_stacks(dialect: Dialect, worker: str) -> Script[bool]:
    """Ask a worker for the stacks of its runs; return False if the worker is not alive."""
    reply = yield Run("ask_stacks", {"now": dialect.now(), "id": worker})
    return bool(reply.rows)


def tell_stacks(dialect: Dialect, worker: str, text: str) -> Script[None]:
    """Store the stacks of a worker's runs."""
    yield Run("tell_stacks", {"now": dialect.now(), "id": worker, "text": text})


def stacks(dialect: Dialect, worker: str) -> Script[Stacks | None]:
    """Return the stacks of a worker's runs, as last stored."""
    rows = (yield Run("stacks", {"id": worker})).rows
    return _stacks(dialect.moment, rows[0]) if rows else None


def held(worker: str) -> Script[list[Held]]:
    """Return the claims of a worker."""
    reply = yield Run("held", {"worker": worker})
    return [Held(id, claim_no, bool(cancel)) for id, claim_no, cancel in reply.rows]


def prune_workers(dialect: Dialect, age: float) -> Script[None]:
    """Delete the rows of workers that died over `age` seconds ago and hold no job."""
    yield Run("prune_workers", {"now": dialect.now(), "age": round(age * MICRO)})
