"""Finishing: the fence, what each outcome writes, chained jobs, and batches that one locked row cannot
block."""

import contextlib
import dataclasses
import sqlite3
from datetime import timedelta

import psycopg
import pytest

from holdfast.core.clock import FakeClock
from holdfast.engine.engine import Engine
from holdfast.engine.records import Filter, Seen
from holdfast.jobs import finish as finish_scripts
from holdfast.jobs import outcome
from holdfast.jobs.job import Job
from holdfast.jobs.outcome import Applied
from tests.conftest import Database
from tests.support import engine_commands
from tests.support.jobs import WORKER, claim, claim_suspect, insert, new, running

APPLIED, LOST, BUSY = Applied.APPLIED, Applied.LOST, Applied.BUSY


def result(engine: Engine, finish: outcome.Finish) -> Applied:
    [answer] = engine.finish([finish]).values()
    return answer


def test_completed(engine: Engine, clock: FakeClock) -> None:
    job = running(engine)
    clock.advance(2)
    assert result(engine, outcome.completed(job, '{"ok":true}', keep=60.0)) is APPLIED
    after = engine.get([job.id])[0]
    assert (after.status, after.result, after.error) == ("completed", {"ok": True}, None)
    assert after.completed_at == clock.now()
    assert after.keep_until == clock.now() + timedelta(seconds=60)
    assert (after.worker_id, after.started_at, after.attempts) == (WORKER, job.started_at, 1)


def test_retry_later(engine: Engine, clock: FakeClock) -> None:
    job = running(engine)
    clock.advance(2)
    engine.finish([outcome.retry_later(job, "ValueError: no", "Traceback...", delay=5.0)])
    after = engine.get([job.id])[0]
    assert (after.status, after.error, after.attempts) == ("retrying", "ValueError: no", 1)
    assert after.run_at == clock.now() + timedelta(seconds=5)
    assert (after.worker_id, after.started_at, after.completed_at) == (None, None, None)
    [kept] = engine_commands.attempts(engine, job.id)
    assert (kept.attempt, kept.claim_no, kept.worker_id) == (1, 1, WORKER)
    assert (kept.error, kept.trace, kept.status) == ("ValueError: no", "Traceback...", "retrying")
    assert (kept.started_at, kept.finished_at) == (job.started_at, clock.now())


def test_failed(engine: Engine, clock: FakeClock) -> None:
    job = running(engine)
    engine.finish([outcome.failed(job, "ValueError: no", keep=60.0)])
    after = engine.get([job.id])[0]
    assert (after.status, after.error) == ("failed", "ValueError: no")
    assert (after.completed_at, after.worker_id) == (clock.now(), WORKER)
    assert [kept.status for kept in engine_commands.attempts(engine, job.id)] == ["failed"]


@pytest.mark.parametrize("released", [True, False])
def test_released_and_snoozed_give_the_attempt_back(
    engine: Engine, clock: FakeClock, released: bool
) -> None:
    job = running(engine)
    clock.advance(1)
    engine.finish([outcome.released(job) if released else outcome.snoozed(job, delay=9.0)])
    after = engine.get([job.id])[0]
    assert (after.attempts, after.claim_no, after.worker_id) == (0, 1, None)
    if released:
        assert (after.status, after.run_at) == ("pending", job.run_at)
    else:
        assert (after.status, after.run_at) == ("scheduled", clock.now() + timedelta(seconds=9))
    assert engine_commands.attempts(engine, job.id) == []


def test_success_clears_the_error_of_earlier_attempts(engine: Engine, clock: FakeClock) -> None:
    job = running(engine)
    engine.finish([outcome.retry_later(job, "E: 1", delay=0.0)])
    engine.promote(1)
    [again] = claim(engine)
    engine.finish([outcome.completed(again, "1", keep=60.0)])
    after = engine.get([job.id])[0]
    assert (after.error, after.attempts) == (None, 2)
    assert [kept.error for kept in engine_commands.attempts(engine, job.id)] == ["E: 1"]


def every_finish(job: Job) -> list[outcome.Finish]:
    return [
        outcome.completed(job, '"stale"', keep=60.0, enqueue=(new("child"),)),
        outcome.retry_later(job, "E: stale", delay=1.0),
        outcome.failed(job, "E: stale", keep=60.0),
        outcome.snoozed(job, delay=1.0),
        outcome.stopped(job, keep=60.0),
        outcome.released(job),
        outcome.crashed(job, "E: stale", delay=1.0),
    ]


def test_a_stale_claim_changes_nothing(engine: Engine) -> None:
    """A worker was declared dead, another runs the job: the first one's word counts no more."""
    stale = running(engine)
    engine.sweep([Seen(WORKER, None)], limit=10)
    rescued, runs = engine.get([stale.id])[0], engine_commands.attempts(engine, stale.id)
    for finish in every_finish(stale):
        assert result(engine, finish) is LOST
    assert engine.get([stale.id])[0] == rescued

    [again] = claim_suspect(engine, worker="other")
    for finish in every_finish(stale):
        assert result(engine, finish) is LOST
    assert engine.get([stale.id])[0] == again
    assert engine_commands.attempts(engine, stale.id) == runs
    assert [run.error for run in runs] == ["the worker was lost while it ran this"]
    assert engine.search(Filter(type="child")).jobs == []
    assert result(engine, outcome.completed(again, "1", keep=60.0)) is APPLIED


def test_a_repeated_finish_counts_as_applied_once(engine: Engine) -> None:
    job = running(engine)
    finish = outcome.completed(job, "1", keep=60.0, enqueue=(new("child"),))
    assert [result(engine, finish) for _ in range(3)] == [APPLIED] * 3
    assert len(engine.search(Filter(type="child")).jobs) == 1
    other = running(engine)
    release = outcome.released(other)
    assert [result(engine, release) for _ in range(2)] == [APPLIED] * 2
    [again] = claim(engine)
    assert result(engine, release) is LOST or engine.get([again.id])[0].status == "running"


def test_the_finish_of_a_deleted_job_is_lost_quietly(engine: Engine) -> None:
    job = running(engine)
    engine_commands.delete(engine, [job.id])
    assert result(engine, outcome.completed(job, "1", keep=60.0)) is LOST
    assert engine_commands.attempts(engine, job.id) == []


def test_jobs_enqueued_by_a_job_commit_with_its_finish(engine: Engine) -> None:
    job = running(engine)
    child = new("child", key="c", payload='{"of":1}')
    engine.finish([outcome.completed(job, "1", keep=60.0, enqueue=(child, new("child")))])
    assert [job.payload for job in claim(engine, 5, types=["child"])] == [{"of": 1}, {"n": 1}]


@pytest.mark.parametrize("kind", ["retry_later", "snoozed", "released", "stopped", "crashed"])
def test_a_job_with_a_cancel_request_is_cancelled_instead_of_retried(
    engine: Engine, clock: FakeClock, kind: str
) -> None:
    job = running(engine)
    assert engine_commands.cancel(engine, [job.id], keep=60.0) == [job.id]
    assert engine.get([job.id])[0].cancel_requested
    assert engine.beat(WORKER, "{}").held == [(job.id, 1, True)]
    engine.finish([finish for finish in every_finish(job) if finish.outcome == kind])
    after = engine.get([job.id])[0]
    assert (after.status, after.completed_at) == ("cancelled", clock.now())
    assert after.keep_until is not None


@pytest.mark.parametrize("kind", ["completed", "failed"])
def test_a_job_that_ended_before_it_could_be_cancelled_keeps_its_end(
    engine: Engine, kind: str
) -> None:
    job = running(engine)
    engine_commands.cancel(engine, [job.id], keep=60.0)
    engine.finish([finish for finish in every_finish(job) if finish.outcome == kind])
    assert engine.get([job.id])[0].status == kind


def test_the_newest_fifty_attempts_are_kept(engine: Engine) -> None:
    insert(engine, max_attempts=100)
    for number in range(60):
        [job] = claim(engine)
        engine.finish([outcome.retry_later(job, f"E: {number}", delay=0.0)])
        engine.promote(1)
    kept = engine_commands.attempts(engine, job.id)
    assert [attempt.error for attempt in kept] == [f"E: {n}" for n in range(59, 9, -1)]


def test_a_batch_may_have_all_outcomes(engine: Engine) -> None:
    engine.insert([new() for _ in range(7)])
    jobs = claim(engine, 7)
    finishes = [every_finish(job)[number] for number, job in enumerate(jobs)]
    assert set(engine.finish(finishes).values()) == {APPLIED}
    statuses = [job.status for job in engine.get([job.id for job in jobs])]
    assert statuses == [
        *("completed", "retrying", "failed", "scheduled"),
        *("cancelled", "pending", "retrying"),
    ]


def test_completions_with_follow_up_work_in_a_batch(engine: Engine) -> None:
    """Most of a batch completes in one statement; what that passes over is written all the same."""
    engine.insert([new(), new(), new(key="k"), new(), new()])
    plain, stale, replaced, judged, gone = claim(engine, 5)
    engine.finish([outcome.released(stale)])
    insert(engine, key="k", payload='{"n":2}', on_conflict="replace")
    engine.record_verdict(judged.claim, "E: late")
    engine_commands.delete(engine, [gone.id])
    jobs = [plain, stale, replaced, judged, gone, plain]
    answers = engine.finish([outcome.completed(job, "1", keep=60.0) for job in jobs])
    # The stale one was given back by its own worker: sent again, it counts as applied.
    expected = {job.claim: APPLIED for job in (plain, stale, replaced, judged)}
    assert answers == expected | {gone.claim: LOST}
    after = engine.get([plain.id, stale.id, replaced.id, judged.id])
    assert [job.status for job in after] == ["completed", "pending", "pending", "completed"]
    assert [job.result for job in after] == [1, None, None, 1]
    assert (after[2].payload, after[3].verdict) == ({"n": 2}, None)


@pytest.mark.parametrize("kind", ["completed", "retry_later"])
def test_two_claims_of_one_job_in_a_batch_apply_the_newest(engine: Engine, kind: str) -> None:
    """After an outage a worker may send the end of a run that it lost with that of the next one."""
    insert(engine)
    [stale] = claim(engine)
    engine.leave(WORKER)
    engine.sweep([Seen(WORKER, None)], limit=10)
    [job] = claim(engine, worker="w")
    old = [finish for finish in every_finish(stale) if finish.outcome == kind]
    mine = outcome.completed(job, '"mine"', keep=60.0, enqueue=(new("mine"),))
    for batch in ([*old, mine], [mine, *old]):
        assert engine.finish(batch) == {stale.claim: LOST, job.claim: APPLIED}
    after = engine.get([job.id])[0]
    assert (after.status, after.result) == ("completed", "mine")
    [lost] = engine_commands.attempts(engine, job.id)
    assert lost.error == "the worker left before this had ended"
    assert engine.search(Filter(type="child")).jobs == []
    assert len(engine.search(Filter(type="mine")).jobs) == 1


def test_a_result_belongs_to_the_run_that_completed_the_job(engine: Engine) -> None:
    """Not of one before it, which was made to run again when it had returned."""
    job = running(engine, key="k")
    insert(engine, key="k", payload='{"n":2}', on_conflict="replace")
    engine.finish([outcome.completed(job, '"old"', keep=60.0)])
    [again] = claim(engine)
    engine.finish([outcome.completed(again, None, keep=60.0)])
    after = engine.get([job.id])[0]
    assert (after.status, after.result) == ("completed", None)


def test_one_invalid_member_of_a_batch_harms_no_other(engine: Engine) -> None:
    """What the database refuses of one finish fails that job, with the reason, and no other."""
    engine.insert([new() for _ in range(5)])
    jobs = claim(engine, 5)
    finishes = [outcome.completed(job, "1", keep=60.0) for job in jobs]
    poison = new("child", priority=2**70)
    finishes[2] = dataclasses.replace(finishes[2], enqueue=(new("child"), poison))
    assert set(engine.finish(finishes).values()) == {APPLIED}
    after = engine.get([job.id for job in jobs])
    assert [job.status for job in after] == ["completed", "completed", "failed", *["completed"] * 2]
    assert "the finish could not be written" in (after[2].error or "")
    assert engine.search(Filter(type="child")).jobs == []


def test_a_transaction_with_a_lock_on_one_row_delays_only_its_finish(database: Database) -> None:
    """PostgreSQL: the other finishes are written immediately, the one that is locked when it is free.
    SQLite has one writer: the whole batch waits for it, and is then written."""
    engine = database.engine()
    engine.insert([new() for _ in range(5)])
    jobs = claim(engine, 5)
    finishes = [outcome.completed(job, "1", keep=60.0) for job in jobs]
    with contextlib.ExitStack() as stack:
        if database.kind == "postgres":
            holder = stack.enter_context(psycopg.connect(database.url))
            holder.execute(
                f"SELECT 1 FROM {database.schema}.jobs WHERE id = %s FOR UPDATE", [jobs[2].id]
            )
            answers = engine.finish(finishes)
            assert [answers[job.claim] for job in jobs] == [
                APPLIED,
                APPLIED,
                BUSY,
                APPLIED,
                APPLIED,
            ]
            assert engine.get([jobs[2].id])[0].status == "running"
        else:
            holder = stack.enter_context(contextlib.closing(sqlite3.connect(database.path)))
            holder.execute("BEGIN IMMEDIATE")
        holder.rollback()
        answers = engine.finish(finishes)
    assert set(answers.values()) == {APPLIED}
    assert {job.status for job in engine.get([job.id for job in jobs])} == {"completed"}


@pytest.mark.parametrize("commits", [True, False])
def test_a_finish_on_the_callers_transaction(database: Database, commits: bool) -> None:
    """The caller's row, the finish and what it enqueues are there together, or not at all."""
    engine = database.engine()
    job, stale = running(engine), running(engine)
    engine.leave(WORKER)
    engine.sweep([Seen(WORKER, None)], limit=10)
    [job, _] = claim(engine, 2, worker="other")
    finish = outcome.completed(job, '"mine"', keep=60.0, enqueue=(new("child"),))
    connect = psycopg.connect if database.kind == "postgres" else sqlite3.connect
    target = database.url if database.kind == "postgres" else database.path
    with contextlib.closing(connect(target)) as mine:
        transaction = engine.adopt(mine)
        answers = transaction.run(finish_scripts.finish(engine.dialect, [finish], tx=True))
        assert answers == {job.claim: APPLIED}
        lost = finish_scripts.finish(engine.dialect, [outcome.completed(stale, keep=1.0)], tx=True)
        assert transaction.run(lost) == {stale.claim: LOST}
        assert engine.get([job.id])[0].status == "running"
        mine.commit() if commits else mine.rollback()
    after = engine.get([job.id])[0]
    assert after.status == ("completed" if commits else "running")
    assert after.result == ("mine" if commits else None)
    assert len(engine.search(Filter(type="child")).jobs) == int(commits)
