"""The progress of runs, and the jobs that a worker holds according to the database."""

import time

import psycopg
import pytest

from holdfast.core.clock import FakeClock
from holdfast.engine.engine import Engine
from holdfast.engine.records import Report
from holdfast.jobs import outcome
from holdfast.jobs.job import Job
from tests.conftest import Database
from tests.support import engine_commands
from tests.support.jobs import WORKER, claim, insert, new, running
from tests.support.threads import in_threads


def progress(engine: Engine, *jobs: Job) -> list[tuple[float | None, str | None]]:
    return [(job.progress, job.message) for job in engine.get([job.id for job in jobs])]


def test_progress_reports_are_written_in_one_batch(engine: Engine, clock: FakeClock) -> None:
    engine.insert([new() for _ in range(3)])
    jobs = claim(engine, 3)
    clock.advance(2)
    engine.report(
        [Report(*jobs[0].claim, 12.5, "half of a half"), Report(*jobs[1].claim, 1.0, None)]
    )
    assert progress(engine, *jobs) == [(12.5, "half of a half"), (1.0, None), (None, None)]
    assert [job.updated_at == clock.now() for job in engine.get([job.id for job in jobs])] == [
        *(True, True, False),
    ]
    engine.report([Report(*jobs[0].claim, None, "no number")])
    assert progress(engine, jobs[0]) == [(None, "no number")]


def test_a_progress_report_changes_nothing_else(engine: Engine) -> None:
    job = running(engine)
    engine.report([Report(*job.claim, 50.0, "half")])
    after = engine.get([job.id])[0]
    assert (after.status, after.claim_no, after.attempts) == ("running", 1, 1)
    assert engine.held(WORKER) == [(job.id, 1, False)]


def test_an_empty_batch_of_reports_writes_nothing(engine: Engine) -> None:
    job = running(engine)
    before = engine.get([job.id])
    engine.report([])
    assert engine.get([job.id]) == before


def test_a_progress_report_of_a_lost_claim_changes_nothing(engine: Engine) -> None:
    stale, gone = running(engine), running(engine)
    engine_commands.delete(engine, [gone.id])
    engine.finish([outcome.released(stale)])
    reports = [Report(*job.claim, 50.0, "stale") for job in (stale, gone)]
    engine.report(reports)
    [again] = claim(engine)
    engine.report(reports)
    assert progress(engine, again) == [(None, None)]
    engine.report([Report(*again.claim, 1.0, "mine"), *reports])
    assert progress(engine, stale) == [(1.0, "mine")]
    engine.finish([outcome.completed(again, keep=60.0)])
    engine.report([Report(*again.claim, 99.0, "late")])
    assert progress(engine, stale) == [(1.0, "mine")]


def test_the_next_claim_clears_the_progress(engine: Engine) -> None:
    job = running(engine)
    engine.report([Report(*job.claim, 50.0, "half")])
    engine.finish([outcome.retry_later(job, "E: no", delay=0.0)])
    assert progress(engine, job) == [(50.0, "half")]  # how far it came until it failed
    engine.promote(1)
    [again] = claim(engine)
    assert (again.progress, again.message) == (None, None)


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_a_row_locked_by_another_client_is_skipped(database: Database) -> None:
    """The other jobs are reported immediately: a lock must not stop the watch over running jobs."""
    engine = database.engine()
    engine.insert([new() for _ in range(3)])
    jobs = claim(engine, 3)
    reports = [Report(*job.claim, 50.0, "half") for job in jobs]
    with psycopg.connect(database.url) as holder:
        holder.execute(
            f"SELECT 1 FROM {database.schema}.jobs WHERE id = %s FOR UPDATE", [jobs[1].id]
        )
        began = time.monotonic()
        engine.report(reports)
        assert time.monotonic() - began < 1.0
        assert progress(engine, *jobs) == [(50.0, "half"), (None, None), (50.0, "half")]
        holder.rollback()
    engine.report(reports)
    assert progress(engine, *jobs) == [(50.0, "half")] * 3


def test_reports_and_finishes_of_one_worker_do_not_deadlock(database: Database) -> None:
    engine = database.engine()
    engine.insert([new() for _ in range(400)])
    jobs = claim(engine, 400)

    def work(number: int) -> None:
        for start in range(0, 400, 40):
            batch = jobs[start : start + 40]
            if number % 2:
                engine.report([Report(*job.claim, 50.0, None) for job in reversed(batch)])
            else:
                engine.finish([outcome.completed(job, keep=60.0) for job in batch])

    in_threads(4, work)
    engine.finish([outcome.completed(job, keep=60.0) for job in jobs])
    assert engine.counts()["completed"] == 400


def test_the_held_jobs_of_a_worker_are_listed(engine: Engine) -> None:
    assert engine.held(WORKER) == []
    engine.insert([new() for _ in range(4)])
    mine = claim(engine, 3)
    claim(engine, 1, worker="other")
    engine_commands.cancel(engine, [mine[1].id], keep=60.0)
    engine.finish([outcome.completed(mine[2], keep=60.0)])
    held = [(mine[0].id, 1, False), (mine[1].id, 1, True)]
    assert sorted(engine.held(WORKER)) == sorted(held)
    before = engine.workers()
    engine.held(WORKER)
    assert engine.workers() == before  # to look is no sign of life


def test_the_next_due_time_is_returned(engine: Engine, clock: FakeClock) -> None:
    assert engine.next_due() is None
    insert(engine)
    assert engine.next_due() is None  # pending: there is nothing to wait for
    job = running(engine, queue="other")
    engine.insert([new(delay=30.5), new(delay=10.0)])
    assert engine.next_due() == 10.0
    engine.finish([outcome.retry_later(job, "E: no", delay=4.0)])
    assert engine.next_due() == 4.0
    clock.advance(4)
    assert engine.next_due() == 0.0
    clock.advance(100)
    assert engine.next_due() == 0.0
    assert engine.get([job.id])[0].status == "retrying"  # to look moves nothing
    engine.promote(10)
    assert engine.next_due() is None


def test_the_next_due_job_may_be_a_snoozed_or_crashed_one(engine: Engine) -> None:
    one, two = running(engine), running(engine)
    engine.finish([outcome.snoozed(one, delay=7.0), outcome.crashed(two, "E: gone", delay=3.0)])
    assert engine.next_due() == 3.0
    engine_commands.cancel(engine, [two.id], keep=60.0)
    assert engine.next_due() == 7.0
