"""The state machine: every verb against every status, on both engines, as `TRANSITIONS` says."""

import json
from dataclasses import replace
from typing import Any

import pytest

from holdfast.core.clock import FakeClock
from holdfast.core.ids import new_id
from holdfast.engine.engine import Engine
from holdfast.engine.records import Edit, Seen
from holdfast.engine.script import Run, Script
from holdfast.jobs import commands, outcome
from holdfast.jobs.job import TRANSITIONS, Job, Status
from holdfast.jobs.outcome import Outcome, Policy
from holdfast.limits import scripts as limit_scripts
from tests.support import engine_commands
from tests.support.jobs import WORKER, claim, execute, in_status, new, prune

HOUR = 3600.0
WORKFLOW = new_id()
HOURLY = '{"every":3600.0}'
POLICY = Policy(backoff=lambda attempts: 60.0, keep=dict.fromkeys(Status, 60.0))
FINISHES = {
    Outcome.COMPLETED: lambda job: outcome.completed(job, "1", keep=60.0),
    Outcome.RETRY_LATER: lambda job: outcome.retry_later(job, "E: no", delay=60.0),
    Outcome.SNOOZED: lambda job: outcome.snoozed(job, delay=60.0),
    Outcome.FAILED: lambda job: outcome.failed(job, "E: no", keep=60.0),
    Outcome.STOPPED: lambda job: outcome.stopped(job, keep=60.0),
    Outcome.RELEASED: outcome.released,
    Outcome.UNREADABLE: lambda job: outcome.unreadable(job, "E: no", delay=60.0),
    Outcome.CRASHED: lambda job: outcome.crashed(job, "E: gone", delay=60.0),
    Outcome.RECURRED: lambda job: outcome.decide(
        replace(job, schedule=HOURLY), outcome.Returned(None), POLICY, job.run_at
    ),
}


def apply(engine: Engine, clock: FakeClock, verb: str, job: Job) -> None:
    """Send one verb to one job, as its caller would."""
    match verb:
        case "promote":
            clock.advance(2 * HOUR)
            engine.promote(10)
        case "claim":
            claim(engine, 10)
        case "rescue":
            engine.sweep([Seen(WORKER, None)], limit=10)
        case "prune":
            clock.advance(2 * HOUR)
            prune(engine)
        case "cancel" | "request_cancel":
            engine_commands.cancel(engine, [job.id], keep=60.0)
        case "retry":
            engine_commands.retry(engine, [job.id])
        case "delete":
            engine_commands.delete(engine, [job.id])
        case "postpone":
            edit = Edit(delay=60.0)
            engine.run(lambda: commands.edit(engine.dialect, job.id, edit), write=True)
        case "hasten":
            edit = Edit(delay=0.0)
            engine.run(lambda: commands.edit(engine.dialect, job.id, edit), write=True)
        case "park":
            asked: list[dict[str, Any]] = [{"id": job.id, "limit_key": "k"}]
            engine.run(lambda: _write("park", engine, asked), write=True)
        case "unpark":
            engine.run(lambda: limit_scripts.unpark(engine.dialect, {"k": 1}), write=True)
        case "free":
            ids = json.dumps([job.id])
            engine.run(lambda: _once("free", engine, ids=ids), write=True)
        case "drop":
            asked = [{"now": engine.dialect.now(), "id": job.id, "error": "no", "keep": 60_000_000}]
            engine.run(lambda: _write("drop", engine, asked), write=True)
        case "reopen":
            engine.run(lambda: _once("reopen", engine, workflow=WORKFLOW), write=True)
        case "debounce" | "request_rerun":
            engine.insert([new(key="k", on_conflict="debounce", delay=60.0, payload="{}")])
        case _:
            engine.finish([FINISHES[Outcome(verb)](job)])


def _write(statement: str, engine: Engine, batch: list[dict[str, Any]]) -> Script[None]:
    yield Run(statement, {"now": engine.dialect.now()}, batch, tell="id")


def _once(statement: str, engine: Engine, **params: str) -> Script[None]:
    yield Run(statement, {"now": engine.dialect.now(), **params})


def prepare(engine: Engine, verb: str, job: Job) -> None:
    """What a verb needs to concern it at all, whatever its status."""
    if verb in ("unpark", "postpone"):
        execute(engine, "UPDATE {jobs} SET limit_key = 'k' WHERE id = :id", id=job.id)
    if verb == "reopen":  # a job of a workflow that waits for another
        sql = "UPDATE {jobs} SET workflow_id = :workflow, node = '@failed' WHERE id = :id"
        execute(engine, sql, id=job.id, workflow=WORKFLOW)
    if verb == "recurred":
        sql = "UPDATE {jobs} SET schedule = :schedule WHERE id = :id"
        execute(engine, sql, id=job.id, schedule=HOURLY)


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize("verb", sorted(TRANSITIONS))
def test_every_command_on_every_status(
    engine: Engine, clock: FakeClock, verb: str, status: Status
) -> None:
    """Legal: the job goes where the table says. Illegal: nothing of it changes."""
    job = in_status(engine, status, key="k")
    prepare(engine, verb, job)
    before = engine.get([job.id])[0]
    clock.advance(1)
    apply(engine, clock, verb, job)
    after = engine.get([job.id])
    legal = expected(verb, status)
    if legal is NOTHING:
        assert after == [before]
    elif legal is None:
        assert after == []
    else:
        assert after[0].status is legal
        assert after[0] != before or legal is status is Status.PENDING


NOTHING = object()  # the verb does not concern a job in that status
# Another time alone changes nothing else of them.
EDITED_IN_PLACE = {("postpone", Status.RETRYING), ("hasten", Status.BLOCKED)}
TWINS = {"cancel": "request_cancel", "debounce": "request_rerun"}  # one call, two transitions


def expected(verb: str, status: Status) -> object:
    if verb in ("debounce", "request_rerun") and status is Status.BLOCKED:
        return Status.BLOCKED  # it takes the newer request, and goes on waiting
    if (verb, status) in EDITED_IN_PLACE:
        return status
    names = {verb, TWINS.get(verb, verb)} | {one for one, two in TWINS.items() if two == verb}
    for name in names:
        if status in TRANSITIONS[name].sources:
            return TRANSITIONS[name].target
    return NOTHING


def test_only_an_operators_retry_leaves_a_final_status() -> None:
    for verb, (sources, _) in TRANSITIONS.items():
        if sources & {Status.COMPLETED, Status.FAILED, Status.CANCELLED}:
            assert verb in {"retry", "delete", "prune", "reopen"}
