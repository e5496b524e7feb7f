"""Scripts that change jobs: insert, promote, cancel, retry, delete, edit; and pause queues."""

import dataclasses
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.engine.dialect import MICRO, Dialect, wake
from holdfast.engine.records import Edit, Promoted
from holdfast.engine.script import Reply, Run, Script
from holdfast.errors import DatabaseBusy, KeyConflict
from holdfast.events.outbox import emit
from holdfast.jobs.job import FINISHED, EventKind, Job, NewJob, Status
from holdfast.jobs.read import get
from holdfast.jobs.rows import new_to_job
from holdfast.limits.scripts import AT_ONCE, release, unpark

_PLAIN, _SPECIAL = frozenset({"plain"}), frozenset({"special"})
_TRIES = 50  # a key that changes its holder this often is a bug of the application


def insert(
    dialect: Dialect, jobs: Sequence[NewJob], *, hint: Iterable[str] = ()
) -> Script[list[Job]]:
    """Insert jobs and return them; for a job whose key exists, return the job that has the key. `hint`:
    queues whose workers are woken."""
    queues = frozenset(hint)
    made = yield from _insert(dialect, jobs, queues)
    if not (dialect.insert_hints and len(queues) == 1):
        yield from wake(queues)
    return made


def _insert(dialect: Dialect, jobs: Sequence[NewJob], hint: frozenset[str]) -> Script[list[Job]]:
    now = dialect.now()
    rows = [new_row(dialect, job, now) for job in jobs]
    params, options = {"now": now}, _kind(jobs)
    if options is _SPECIAL and len(rows) > 1:
        # Two inserts of the same idempotency keys, in different orders, would wait for each other.
        rows.sort(key=lambda row: (row["idempotency_key"] or "", row["type"]))
    if dialect.insert_hints and len(hint) == 1:
        params, options = {"now": now, "hint": next(iter(hint))}, options | {"hint"}
    reply = yield Run("insert", params, rows, options)
    yield from _edges(jobs)
    if reply.changed == len(jobs):
        yield from _payloads(dialect, rows)
        yield from emit_enqueued(dialect, jobs)
        return _inserted(dialect, jobs, now, reply)
    yield from wake(hint)  # the insert sent no hint for jobs that are replaced below
    present = yield Run("present", {"ids": json.dumps([job.id for job in jobs])})
    there = {row[0] for row in present.rows}
    yield from _payloads(dialect, [row for row in rows if row["id"] in there])
    settled: list[Job] = []
    for job in jobs:
        if job.id in there:
            found = yield from get(dialect, [job.id])
            settled += [dataclasses.replace(one, created=True) for one in found]
            new = [one for one in found if _is_new(dialect, one, reply, now)]
            yield from emit_enqueued(dialect, new)
        else:
            settled.append((yield from _settle(dialect, job)))
    return settled


def _is_new(dialect: Dialect, job: Job, reply: Reply, now: Any) -> bool:
    """Return whether this insert added the job: a repeated insert must not write its event again."""
    if dialect.locks_rows:
        return any(row[0] == job.id for row in reply.rows)
    return job.created_at == dialect.moment(now)


def emit_enqueued(dialect: Dialect, jobs: Sequence[NewJob | Job]) -> Script[None]:
    """Write the events of jobs that were inserted."""
    yield from emit(dialect, EventKind.ENQUEUED, [job.id for job in jobs])


def _kind(jobs: Sequence[NewJob]) -> frozenset[str]:
    return _SPECIAL if any(job.special for job in jobs) else _PLAIN


def _settle(dialect: Dialect, job: NewJob) -> Script[Job]:
    """Handle a job that the insert left out. Return the job with its idempotency key, if there is one;
    else do what `on_conflict` says about the job with its key. Tries again while that job ends or
    begins meanwhile. Raises KeyConflict if a recurring job holds the key: neither may replace the
    other."""
    for _ in range(_TRIES):
        if (first := (yield from _first_one(dialect, job))) is not None:
            return first
        holder = yield Run("holder", {"type": job.type, "key": job.key})
        if not holder.rows:
            now = dialect.now()
            rows = [new_row(dialect, job, now)]
            reply = yield Run("insert", {"now": now}, rows, _kind([job]))
            if reply.changed:
                yield from _payloads(dialect, rows)
                yield from emit_enqueued(dialect, [job])
                return _inserted(dialect, [job], now, reply)[0]
            continue
        id, status, recurs = holder.rows[0]
        if recurs and job.schedule is None:
            raise KeyConflict(
                f"the recurring job {id} of task {job.type!r} holds the key {job.key!r}: choose "
                f"another key, or let the recurring job run now: using(key={job.key!r}).run_now()"
            )
        if job.on_conflict == "raise":
            raise KeyConflict(
                f"job {id} ({status}) of task {job.type!r} holds the key {job.key!r}; wait for it, "
                "or choose on_conflict='existing', 'replace' or 'debounce'"
            )
        if job.on_conflict != "existing":
            now = dialect.now()
            row = new_row(dialect, job, now) | {
                "holder": id,
                "moves": job.on_conflict == "debounce",
            }
            if not (yield Run("replace", {"now": now}, [row])).rows:
                continue
            yield from emit(dialect, EventKind.ENQUEUED, [id])
        found = yield from get(dialect, [id])
        if found and found[0].status not in FINISHED:
            return found[0]
    raise DatabaseBusy(
        f"the key {job.key or job.idempotency_key!r} of task {job.type!r} changed hands {_TRIES} times "
        "while it was looked at; inside a REPEATABLE READ transaction, enqueue before the first read"
    )


def _first_one(dialect: Dialect, job: NewJob) -> Script[Job | None]:
    """Return the job that has this job's idempotency key, in any status."""
    if job.idempotency_key is None:
        return None
    params = {"type": job.type, "idempotency_key": job.idempotency_key}
    reply = yield Run("first_by_idempotency_key", params)
    found = (yield from get(dialect, [row[0] for row in reply.rows])) if reply.rows else []
    return found[0] if found else None


def _edges(jobs: Sequence[NewJob]) -> Script[None]:
    """Insert the edges of a workflow: which job waits for which. (Jobs of a workflow have no key, so
    the insert of jobs leaves none of them out.)"""
    rows = [
        {"child_id": job.id, "parent_id": parent, "place": place, "policy": policy}
        for job in jobs
        for place, (parent, policy) in enumerate(job.after)
    ]
    if rows:
        yield Run("insert_edges", {}, rows)


def _payloads(dialect: Dialect, rows: Sequence[dict[str, Any]]) -> Script[None]:
    if dialect.bodies_apart and rows:
        yield Run("insert_payloads", {}, rows)


def new_row(dialect: Dialect, job: NewJob, now: Any) -> dict[str, Any]:
    """Return the parameters of a job for the statements that insert or replace it."""
    return {
        "now": now,
        "id": job.id,
        "type": job.type,
        "queue": job.queue,
        "priority": job.priority,
        "key": job.key,
        "entity_type": job.entity_type,
        "entity_id": job.entity_id,
        "max_attempts": job.max_attempts,
        "timeout": job.timeout,
        "run_at": None if job.run_at is None else dialect.time(job.run_at),
        "delay": round(job.delay * MICRO),
        "payload": job.payload,
        "schedule": job.schedule,
        "expires": None if job.expires is None else round(job.expires * MICRO),
        "aging": None if job.aging is None else round(job.aging * MICRO),
        "workflow_id": job.workflow_id,
        "node": job.node,
        "waits": job.waits,
        "idempotency_key": job.idempotency_key,
    }


def _inserted(dialect: Dialect, jobs: Sequence[NewJob], now: Any, reply: Reply) -> list[Job]:
    """Return the jobs as they were inserted. If the database's clock decides, the times come from the
    reply."""
    written = {row[0]: row[1:4] for row in reply.rows}
    return [new_to_job(dialect, job, *written.get(job.id, (None, now, None))) for job in jobs]


def promote(dialect: Dialect, limit: int) -> Script[Promoted]:
    """Make due jobs pending, and return parked jobs to the queue whose rate has capacity again."""
    params = {"now": dialect.now(), "limit": limit}
    moved = (yield Run("promote", params)).rows
    if keys := (yield Run("due_keys", params)).rows:
        moved += yield from unpark(dialect, {key: AT_ONCE for (key,) in keys})
    due = yield from next_due(dialect)
    queues = frozenset(row[0] for row in moved)
    yield from wake(queues)  # other workers may have free slots
    return Promoted(len(moved), queues, due)


def next_due(dialect: Dialect) -> Script[float | None]:
    """Return the seconds until the next job is due; None if no job waits for its time."""
    due = yield Run("next_due", {"now": dialect.now()})
    left = due.rows[0][0]
    return None if left is None else max(0.0, left / MICRO)


def cancel(
    dialect: Dialect,
    ids: Sequence[str],
    keep: float | Mapping[str, float],
    only: Collection[Status] = (),
) -> Script[list[str]]:
    """Cancel waiting jobs and ask running ones to stop; return the ids of both. `keep`: how many
    seconds cancelled jobs are kept, for all or for each. `only`: change only jobs in one of these
    statuses, since a job may have changed after the caller read it (also below)."""
    params = {"now": dialect.now(), **_only(only)}
    ages = keep if isinstance(keep, Mapping) else dict.fromkeys(ids, keep)
    rows = [{**params, "job_id": id, "keep": round(ages[id] * MICRO)} for id in sorted(ids)]
    cancelled = [row[0] for row in (yield Run("cancel", params, rows, _fence(only))).rows]
    yield from emit(dialect, EventKind.CANCELLED, cancelled, final=True)  # not of running jobs
    return cancelled


def retry(dialect: Dialect, ids: Sequence[str], only: Collection[Status] = ()) -> Script[list[str]]:
    """Run jobs again from the beginning; return the ids of those changed."""
    params = {"now": dialect.now(), **_only(only)}
    rows = [{**params, "job_id": id} for id in sorted(ids)]
    reply = yield Run("retry", params, rows, _fence(only))
    yield from wake(row[1] for row in reply.rows)
    yield from emit(dialect, EventKind.ENQUEUED, [row[0] for row in reply.rows])
    return [row[0] for row in reply.rows]


def delete(
    dialect: Dialect, ids: Sequence[str], only: Collection[Status] = ()
) -> Script[list[str]]:
    """Delete jobs in any status; return the ids of those deleted."""
    params = _only(only)
    rows = [{**params, "job_id": id} for id in sorted(ids)]
    gone = (yield Run("delete", params, rows, _fence(only))).rows
    running = Counter(key for _, key, status, _ in gone if status == Status.RUNNING and key)
    yield from release(dialect, running)
    return [row[0] for row in gone]


def _only(statuses: Collection[Status]) -> dict[str, Any]:
    return {"statuses": json.dumps(sorted(statuses))} if statuses else {}


def _fence(statuses: Collection[Status]) -> frozenset[str]:
    return frozenset({"only"} if statuses else ())


def edit(dialect: Dialect, id: str, change: Edit) -> Script[list[str]]:
    """Change a waiting job; return its id, or nothing if it could not be changed."""
    params = {
        "now": dialect.now(),
        "id": id,
        "priority": change.priority,
        "queue": change.queue,
        "run_at": None if change.run_at is None else dialect.time(change.run_at),
        "delay": None if change.delay is None else round(change.delay * MICRO),
        "aging": None if change.aging is None else round(change.aging * MICRO),
    }
    reply = yield Run("edit", params)
    yield from wake(row[1] for row in reply.rows)
    yield from emit(dialect, EventKind.ENQUEUED, [row[0] for row in reply.rows])
    return [row[0] for row in reply.rows]


def pause(
    dialect: Dialect,
    queue: str,
    paused: bool,
    *,
    until: datetime | None = None,
    during: float | None = None,
) -> Script[None]:
    """Pause a queue, for good, `until` a moment or `during` some seconds; or resume it."""
    params = {
        "now": dialect.now(),
        "name": queue,
        "paused": paused,
        "resume_at": None if until is None else dialect.time(until),
        "resume_in": None if during is None else round(during * MICRO),
    }
    yield Run("pause", params)
    if not paused:
        yield from wake([queue])
