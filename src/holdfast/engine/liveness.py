"""The verbs by which workers tell that they live, and give back what the dead ones held; as scripts."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from holdfast.engine.dialect import MICRO, Dialect, wake
from holdfast.engine.inspection import columns_to_job
from holdfast.engine.limiting import release
from holdfast.engine.outbox import emit
from holdfast.engine.script import Row, Run, Script
from holdfast.engine.values import Beat, Held, Report, Seen, Stacks, Swept
from holdfast.job import Claim, EventKind


def sweep(dialect: Dialect, dead: Sequence[Seen], limit: int, keep: float) -> Script[Swept]:
    """The mark comes first, under the worker's row lock: what it claims after that is refused, and
    what it claimed at the same moment is found by the next sweep."""
    now = dialect.now()
    buried: list[str] = []
    if dead:
        seen = [{"now": now, "id": worker.id, "beat_no": worker.beat_no} for worker in dead]
        marked = (yield Run("bury", {"now": now}, seen)).rows
        buried = [id for id, _ in marked]
        if crashed := [{"id": id} for id, left_at in marked if left_at is None]:
            yield Run("suspect", {}, crashed)
    fallen = (yield Run("fallen", {"limit": limit})).rows
    if not fallen:
        return Swept(buried, [])
    ids = json.dumps([row[0] for row in fallen])
    reply = yield Run("rescue", {"now": now, "ids": ids, "keep": round(keep * MICRO)})
    rescued = [columns_to_job(dialect, row) for row in reply.rows]
    if runs := [_lost_run(dialect, row, now) for row in fallen if row[5] is None]:
        yield Run("record_attempts", {"now": now}, runs)
    yield from emit(dialect, EventKind.RESCUED, [job.id for job in rescued])
    yield from wake(job.queue for job in rescued)
    yield from release(dialect, Counter(job.limit_key for job in rescued if job.limit_key))
    return Swept(buried, rescued)


def _lost_run(dialect: Dialect, row: Row, now: Any) -> dict[str, Any]:
    """A run that nobody has told the end of. (Of one with a verdict that is told when it is drawn.)"""
    id, claim_no, attempt, worker, started_at, _, orderly = row
    how = "left before this had ended" if orderly else "was lost while it ran this"
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
    yield Run("leave", {"now": dialect.now(), "id": worker})


def sentence(claim: Claim, verdict: str) -> Script[None]:
    yield Run("sentence", {"id": claim.id, "claim_no": claim.claim_no, "verdict": verdict})


def report(dialect: Dialect, reports: Sequence[Report]) -> Script[None]:
    now = dialect.now()
    rows = [{"now": now, **one._asdict()} for one in reports]
    changed = (yield Run("report", {"now": now}, rows, tell="id")).rows
    yield from emit(dialect, EventKind.PROGRESS, [row[0] for row in changed])


def beat(dialect: Dialect, worker: str, info: str) -> Script[Beat]:
    reply = yield Run("beat", {"now": dialect.now(), "id": worker, "info": info})
    asked = bool(reply.rows) and bool(reply.rows[0][1])
    return Beat(bool(reply.rows), (yield from held(worker)), asked)


def ask_stacks(dialect: Dialect, worker: str) -> Script[bool]:
    reply = yield Run("ask_stacks", {"now": dialect.now(), "id": worker})
    return bool(reply.rows)


def tell_stacks(dialect: Dialect, worker: str, text: str) -> Script[None]:
    yield Run("tell_stacks", {"now": dialect.now(), "id": worker, "text": text})


def stacks(dialect: Dialect, worker: str) -> Script[Stacks | None]:
    reply = yield Run("stacks", {"id": worker})
    for asked_at, at, text in reply.rows:
        return Stacks(
            None if asked_at is None else dialect.moment(asked_at),
            None if at is None else dialect.moment(at),
            text,
        )
    return None


def held(worker: str) -> Script[list[Held]]:
    reply = yield Run("held", {"worker": worker})
    return [Held(id, claim_no, bool(cancel)) for id, claim_no, cancel in reply.rows]


def prune_workers(dialect: Dialect, age: float) -> Script[None]:
    yield Run("prune_workers", {"now": dialect.now(), "age": round(age * MICRO)})
