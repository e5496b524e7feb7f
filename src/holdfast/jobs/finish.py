"""The script that writes how runs ended: a batch of finishes, each only while its claim holds, with the
attempts, events and jobs that follow from them."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.engine.dialect import MICRO, Dialect
from holdfast.engine.script import Row, Run, Script
from holdfast.events.outbox import emit
from holdfast.jobs.commands import insert
from holdfast.jobs.job import FINISHED, TRANSITIONS, Claim, EventKind, Status
from holdfast.jobs.outcome import Applied, Finish, Outcome, kind_of
from holdfast.limits.scripts import release

_TARGETS = {outcome: Status(TRANSITIONS[outcome].target or "") for outcome in Outcome}
_GIVEN_BACK = frozenset({Outcome.SNOOZED, Outcome.RELEASED, Outcome.UNREADABLE, Outcome.CRASHED})
# Outcomes after which a job stays `suspect`: the worker stopped the run, or the process died.
_NO_END_OF_ITS_OWN = frozenset({Outcome.RELEASED, Outcome.UNREADABLE, Outcome.CRASHED})


def finish(
    dialect: Dialect, finishes: Sequence[Finish], *, tx: bool = False
) -> Script[dict[Claim, Applied]]:
    """Write finishes, and return for each claim whether its finish was applied.

    `tx`: the script runs in a caller's transaction. Then it waits for a row that another transaction
    has locked, instead of reporting BUSY. It does not lock keys of limits, which would stay locked
    until the caller commits: the worker sends the finish again after the commit, which gives back the
    capacity of the keys.
    """
    now = dialect.now()
    options = frozenset({"wait" if tx else "skip"})
    common: set[str] = set()
    completed = [finish for finish in finishes if finish.outcome is Outcome.COMPLETED]
    if completed:
        rows = [_complete_row(finish) for finish in completed]
        run = Run("complete", {"now": now}, rows, options, "id")
        common = {row[0] for row in (yield run).rows}
    recurred = [finish for finish in finishes if finish.recur is not None]
    if recurred:
        rows = [_recur_row(dialect, finish, now) for finish in recurred]
        run = Run("recur", {"now": now}, rows, options, "id")
        common |= {row[0] for row in (yield run).rows}
    done = common
    rest = [finish for finish in finishes if finish.id not in common and finish.recur is None]
    if rest:
        rows = [_finish_row(finish, now) for finish in rest]
        run = Run("finish", {"now": now}, rows, options, "id")
        done = common | {row[0] for row in (yield run).rows}
    applied = _newest([finish for finish in finishes if finish.id in done], len(done))
    results = dict.fromkeys((Claim(f.id, f.claim_no) for f in applied), Applied.APPLIED)
    if len(applied) < len(finishes):
        missing = [f for f in finishes if Claim(f.id, f.claim_no) not in results]
        results |= yield from _missing(missing)
    if dialect.bodies_apart:
        yield from _results([finish for finish in applied if finish.result is not None], common)
    kept = [finish for finish in applied if _is_kept(finish)]
    if kept:
        rows = [_attempt_row(dialect, finish, now) for finish in kept]
        yield Run("record_attempts", {"now": now}, rows)
    yield from _emit_ends(dialect, applied)
    chained = [job for finish in applied for job in finish.enqueue]
    if chained:
        yield from insert(dialect, chained, hint={job.queue for job in chained})
    if not tx and not dialect.locks_rows:  # PostgresEngine._finish does so later
        yield from release(dialect, freed(finishes, results))
    return results


def _is_kept(finish: Finish) -> bool:
    """Return whether `app.jobs.attempts` lists the run. (A payload that was not read is no run: a
    thousand such jobs would write a thousand rows every 30 seconds.)"""
    if finish.outcome is Outcome.UNREADABLE:
        return False
    return finish.error is not None or finish.is_run_of_recurring


def _emit_ends(dialect: Dialect, finishes: Sequence[Finish]) -> Script[None]:
    if dialect.followers.is_silent:
        return
    ended: dict[EventKind, list[str]] = {}
    for finish in finishes:
        ended.setdefault(kind_of(finish), []).append(finish.id)
    for kind, ids in ended.items():
        yield from emit(dialect, kind, ids)


def freed(finishes: Sequence[Finish], results: Mapping[Claim, Applied]) -> Mapping[str, int]:
    """Return how many runs ended under each key of a limit, including runs whose finish a caller's
    transaction has written before."""
    return Counter(
        finish.limit_key
        for finish in finishes
        if finish.limit_key is not None
        and results[Claim(finish.id, finish.claim_no)] is Applied.APPLIED
    )


def _newest(finishes: list[Finish], jobs: int) -> list[Finish]:
    """Return the finishes that were applied, one for each of `jobs` jobs. If the batch has two claims
    of one job, only the newer claim can have been applied."""
    if len(finishes) == jobs:
        return finishes
    held: dict[str, int] = {}
    for finish in finishes:
        held[finish.id] = max(finish.claim_no, held.get(finish.id, 0))
    return [finish for finish in finishes if finish.claim_no == held[finish.id]]


def _results(finishes: Sequence[Finish], common: set[str]) -> Script[None]:
    """Store results. A job that is not in `common` may be pending again, and keeps no result then: read
    its status first."""
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


def _recur_row(dialect: Dialect, finish: Finish, now: Any) -> dict[str, Any]:
    recur = finish.recur
    assert recur is not None  # noqa: S101 - the caller chose them by it
    return {
        "now": now,
        "id": finish.id,
        "claim_no": finish.claim_no,
        "run_at": dialect.time(recur.run_at),
        "due_at": None if recur.due_at is None else dialect.time(recur.due_at),
        "worker_now": None if recur.worker_now is None else dialect.time(recur.worker_now),
        "ran": recur.ran,
        "failed": finish.error is not None,
        "stopped": recur.stopped,
        "died": int(recur.died),
        "crashed": int(recur.died and finish.own),
        "because": recur.because,
        "error": finish.error,
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
        "unreadable": finish.outcome is Outcome.UNREADABLE,
        "crashed": int(finish.outcome is Outcome.CRASHED and finish.own),
        "died": int(finish.outcome is Outcome.CRASHED),
        "blameless": finish.outcome not in _NO_END_OF_ITS_OWN,
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
        Claim(finish.id, finish.claim_no): _applied(finish.claim_no, rows.get(finish.id))
        for finish in finishes
    }


def _applied(claim_no: int, row: Row | None) -> Applied:
    if row is None:
        return Applied.LOST
    finish_no, held_no, status = row
    if finish_no == claim_no:
        return Applied.APPLIED  # sent before, and the reply was lost
    return Applied.BUSY if (held_no, status) == (claim_no, Status.RUNNING) else Applied.LOST
