"""The verbs that change jobs, as scripts. One logic for both engines: they differ in their SQL."""

import dataclasses
import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Protocol

from holdfast.engine.inspection import get
from holdfast.engine.script import Reply, Row, Run, Script
from holdfast.engine.values import Promoted
from holdfast.errors import DatabaseBusy, KeyConflict
from holdfast.job import FINISHED, TRANSITIONS, Body, Claim, Job, NewJob, Status
from holdfast.outcome import Applied, Finish, Outcome

MICRO = 1_000_000
_TARGETS = {outcome: Status(TRANSITIONS[outcome].target or "") for outcome in Outcome}
_GIVEN_BACK = frozenset({Outcome.SNOOZED, Outcome.RELEASED, Outcome.CRASHED})
_PLAIN: frozenset[str] = frozenset()
_HINT = frozenset({"hint"})
_TRIES = 50  # a key that changes hands this often while we look is another's bug


class Dialect(Protocol):
    """How one engine says times."""

    def now(self) -> Any:
        """The moment of the call as a parameter; None where the database's own clock decides."""

    def time(self, moment: datetime) -> Any:
        """A moment, as a parameter."""

    def moment(self, value: Any) -> datetime:
        """A moment, from a column."""

    bodies_apart: bool  #: payloads and results have tables of their own
    hints_by_the_way: bool  #: an insert can hint at one queue itself
    claims_in_one: bool  #: one statement finds jobs and makes them running


def insert(
    dialect: Dialect, jobs: Sequence[NewJob], *, hint: Iterable[str] = ()
) -> Script[list[Job]]:
    """`hint`: the queues to hint at."""
    queues = frozenset(hint)
    made = yield from _insert(dialect, jobs, queues)
    if not (dialect.hints_by_the_way and len(queues) == 1):
        yield from wake(queues)
    return made


def wake(queues: Iterable[str]) -> Script[None]:
    """Hint at queues: those who wait for them look again."""
    if names := frozenset(queues):
        yield Run("wake", {"queues": _queue_names(names)})


@lru_cache  # mostly the same few, at every enqueue
def _queue_names(queues: frozenset[str]) -> str:
    return json.dumps(sorted(queues))


def _insert(dialect: Dialect, jobs: Sequence[NewJob], hint: frozenset[str]) -> Script[list[Job]]:
    now = dialect.now()
    rows = [new_row(dialect, job, now) for job in jobs]
    params, options = {"now": now}, _PLAIN
    if dialect.hints_by_the_way and len(hint) == 1:
        params, options = {"now": now, "hint": next(iter(hint))}, _HINT
    reply = yield Run("insert", params, rows, options)
    if reply.changed == len(jobs):
        yield from _payloads(dialect, rows)
        return _inserted(dialect, jobs, now, reply)
    yield from wake(hint)  # what is replaced or found below was not inserted
    present = yield Run("present", {"ids": json.dumps([job.id for job in jobs])})
    there = {row[0] for row in present.rows}
    yield from _payloads(dialect, [row for row in rows if row["id"] in there])
    settled: list[Job] = []
    for job in jobs:
        if job.id in there:
            settled += [
                dataclasses.replace(j, created=True) for j in (yield from get(dialect, [job.id]))
            ]
        else:
            settled.append((yield from _settle(dialect, job)))
    return settled


def _settle(dialect: Dialect, job: NewJob) -> Script[Job]:
    """A job whose key was live: do what its policy says, until one of the two is certain."""
    for _ in range(_TRIES):
        holder = yield Run("holder", {"type": job.type, "key": job.key})
        if not holder.rows:
            now = dialect.now()
            rows = [new_row(dialect, job, now)]
            reply = yield Run("insert", {"now": now}, rows)
            if reply.changed:
                yield from _payloads(dialect, rows)
                return _inserted(dialect, [job], now, reply)[0]
            continue
        id, status = holder.rows[0]
        if job.on_conflict == "raise":
            raise KeyConflict(
                f"job {id} ({status}) of task {job.type!r} holds the key {job.key!r}; wait for it, "
                "or choose on_conflict='existing', 'replace' or 'debounce'"
            )
        if job.on_conflict != "existing":
            reply = yield Run("replace", {"now": dialect.now()}, [_replacement(dialect, job, id)])
            if not reply.rows:
                continue
        found = yield from get(dialect, [id])
        if found and found[0].status not in FINISHED:
            return found[0]
    raise DatabaseBusy(
        f"the key {job.key!r} of task {job.type!r} changed hands {_TRIES} times while it was "
        "looked at; inside a REPEATABLE READ transaction, enqueue before the first read"
    )


def _payloads(dialect: Dialect, rows: Sequence[dict[str, Any]]) -> Script[None]:
    if dialect.bodies_apart and rows:
        yield Run("insert_payloads", {}, rows)


def new_row(dialect: Dialect, job: NewJob, now: Any) -> dict[str, Any]:
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
    }


def _replacement(dialect: Dialect, job: NewJob, holder: str) -> dict[str, Any]:
    row = new_row(dialect, job, dialect.now())
    return row | {"holder": holder, "moves": job.on_conflict == "debounce"}


def _inserted(dialect: Dialect, jobs: Sequence[NewJob], now: Any, reply: Reply) -> list[Job]:
    """The jobs as they stand now. An engine whose clock decides told what it wrote."""
    told = {row[0]: row[1:4] for row in reply.rows}
    return [new_to_job(dialect, job, *told.get(job.id, (None, now, None))) for job in jobs]


def new_to_job(dialect: Dialect, job: NewJob, status: Any, now: Any, run_at: Any) -> Job:
    """The row that an insert wrote, without reading it."""
    created_at = dialect.moment(now)
    if run_at is not None:
        due = dialect.moment(run_at)
    else:
        due = job.run_at or created_at
        if job.delay and job.run_at is None:
            due = dialect.moment(now + round(job.delay * MICRO))
    return Job(
        id=job.id,
        type=job.type,
        queue=job.queue,
        status=Status(status)
        if status
        else Status.SCHEDULED
        if due > created_at
        else Status.PENDING,
        priority=job.priority,
        rank=-job.priority,
        key=job.key,
        entity_type=job.entity_type,
        entity_id=None if job.entity_id is None else json.loads(job.entity_id),
        attempts=0,
        max_attempts=job.max_attempts,
        crashes=0,
        claim_no=0,
        worker_id=None,
        timeout=job.timeout,
        created_at=created_at,
        updated_at=created_at,
        run_at=due,
        started_at=None,
        completed_at=None,
        keep_until=None,
        error=None,
        progress=None,
        message=None,
        cancel_requested=False,
        body=Body(job.payload),
        created=True,
    )


def finish(
    dialect: Dialect, finishes: Sequence[Finish], *, wait: bool = False
) -> Script[dict[Claim, Applied]]:
    """`wait`: for a row that another transaction holds; otherwise it is reported busy."""
    now = dialect.now()
    options = frozenset({"wait" if wait else "skip"})
    common: set[str] = set()
    completed = [finish for finish in finishes if finish.outcome is Outcome.COMPLETED]
    if completed:
        rows = [_complete_row(finish) for finish in completed]
        run = Run("complete", {"now": now}, rows, options, "id")
        common = {row[0] for row in (yield run).rows}
    done = common
    if len(done) < len(finishes):
        rows = [_finish_row(finish, now) for finish in finishes if finish.id not in common]
        run = Run("finish", {"now": now}, rows, options, "id")
        done = common | {row[0] for row in (yield run).rows}
    applied = _newest([finish for finish in finishes if finish.id in done], len(done))
    results = dict.fromkeys((Claim(f.id, f.claim_no) for f in applied), Applied.APPLIED)
    if len(applied) < len(finishes):
        missing = [f for f in finishes if Claim(f.id, f.claim_no) not in results]
        results |= yield from _missing(missing)
    if dialect.bodies_apart:
        yield from _results([finish for finish in applied if finish.result is not None], common)
    failures = [finish for finish in applied if finish.error is not None]
    if failures:
        rows = [_attempt_row(dialect, finish, now) for finish in failures]
        yield Run("record_attempts", {"now": now}, rows)
    chained = [job for finish in applied for job in finish.enqueue]
    if chained:
        yield from insert(dialect, chained, hint={job.queue for job in chained})
    return results


def _newest(finishes: list[Finish], jobs: int) -> list[Finish]:
    """Of so many jobs. One that is there with two claims can have been changed by the later only."""
    if len(finishes) == jobs:
        return finishes
    held: dict[str, int] = {}
    for finish in finishes:
        held[finish.id] = max(finish.claim_no, held.get(finish.id, 0))
    return [finish for finish in finishes if finish.claim_no == held[finish.id]]


def _results(finishes: Sequence[Finish], common: set[str]) -> Script[None]:
    """Keep results, but not of a run that is to be followed by another: beyond the common end, that
    is asked for."""
    if rest := [finish.id for finish in finishes if finish.id not in common]:
        reply = yield Run("finished", {"ids": json.dumps(rest)})
        common = common | {row[0] for row in reply.rows if row[3] == Status.COMPLETED}
    bodies = [{"id": f.id, "result": f.result} for f in finishes if f.id in common]
    if bodies:
        yield Run("insert_results", {}, bodies)


def _complete_row(finish: Finish) -> dict[str, Any]:
    return {
        "id": finish.id,
        "claim_no": finish.claim_no,
        "keep": int(finish.keep * MICRO),
        "result": finish.result,
    }


def _finish_row(finish: Finish, now: Any) -> dict[str, Any]:
    status = _TARGETS[finish.outcome]
    return {
        "now": now,
        "id": finish.id,
        "claim_no": finish.claim_no,
        "status": status.value,
        "final": status in FINISHED,
        "given_back": int(finish.outcome in _GIVEN_BACK),
        "crashed": int(finish.outcome is Outcome.CRASHED),
        "delay": round(finish.delay * MICRO),
        "keep": round(finish.keep * MICRO),
        "error": finish.error,
        "result": finish.result,
    }


def _attempt_row(dialect: Dialect, finish: Finish, now: Any) -> dict[str, Any]:
    return {
        "now": now,
        "id": finish.id,
        "claim_no": finish.claim_no,
        "attempt": finish.attempt,
        "worker_id": finish.worker_id,
        "started_at": None if finish.started_at is None else dialect.time(finish.started_at),
        "error": finish.error,
        "trace": finish.trace,
    }


def _missing(finishes: Sequence[Finish]) -> Script[dict[Claim, Applied]]:
    reply = yield Run("finished", {"ids": json.dumps([finish.id for finish in finishes])})
    rows = {row[0]: row[1:] for row in reply.rows}
    return {
        Claim(finish.id, finish.claim_no): _standing(finish.claim_no, rows.get(finish.id))
        for finish in finishes
    }


def _standing(claim_no: int, row: Row | None) -> Applied:
    if row is None:
        return Applied.LOST
    finish_no, held_no, status = row
    if finish_no == claim_no:
        return Applied.APPLIED  # sent before, and the reply was lost
    return Applied.BUSY if (held_no, status) == (claim_no, Status.RUNNING) else Applied.LOST


def promote(dialect: Dialect, limit: int) -> Script[Promoted]:
    now = dialect.now()
    moved = yield Run("promote", {"now": now, "limit": limit})
    due = yield from next_due(dialect)
    queues = frozenset(row[0] for row in moved.rows)
    yield from wake(queues)  # there may be more than we have slots for
    return Promoted(len(moved.rows), queues, due)


def next_due(dialect: Dialect) -> Script[float | None]:
    """Seconds until the next job is due; None: none waits."""
    due = yield Run("next_due", {"now": dialect.now()})
    return max(0.0, due.rows[0][0] / MICRO) if due.rows else None


def prune(
    dialect: Dialect, status: Status, *, after: str, before: str, limit: int
) -> Script[tuple[int, str | None]]:
    """How many went, and where to go on: None when the end was reached."""
    params = {
        "now": dialect.now(),
        "status": status.value,
        "after": after,
        "before": before,
        "scan": limit * 4,
        "limit": limit,
    }
    edge = (yield Run("prune_edge", params)).rows[0]
    gone = yield Run("prune", params)
    if len(gone.rows) == limit:
        return limit, max(row[0] for row in gone.rows)
    return len(gone.rows), edge[0] if edge[1] == limit * 4 else None


def cancel(dialect: Dialect, ids: Sequence[str], keep: float) -> Script[list[str]]:
    now = dialect.now()
    params = {"now": now, "keep": round(keep * MICRO)}
    rows = [params | {"job_id": id} for id in sorted(ids)]
    return [row[0] for row in (yield Run("cancel", params, rows)).rows]


def retry(dialect: Dialect, ids: Sequence[str]) -> Script[list[str]]:
    now = dialect.now()
    rows = [{"now": now, "job_id": id} for id in sorted(ids)]
    reply = yield Run("retry", {"now": now}, rows)
    yield from wake(row[1] for row in reply.rows)
    return [row[0] for row in reply.rows]


def delete(dialect: Dialect, ids: Sequence[str]) -> Script[list[str]]:
    rows = [{"job_id": id} for id in sorted(ids)]
    return [row[0] for row in (yield Run("delete", {}, rows)).rows]


def pause(dialect: Dialect, queue: str, paused: bool) -> Script[None]:
    yield Run("pause", {"now": dialect.now(), "name": queue, "paused": paused})
    if not paused:
        yield from wake([queue])
