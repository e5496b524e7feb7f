"""Promote, cancel, retry and delete jobs, and pause queues."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import Status
from holdfast.core.clock import FakeClock
from holdfast.engine.engine import Engine
from holdfast.engine.records import Filter
from holdfast.jobs import outcome
from tests.conftest import Database
from tests.support import engine_commands
from tests.support.jobs import claim, execute, in_status, insert, new, prune, running
from tests.support.threads import in_threads

YEARS = 100 * 365 * 86400.0  # ids are stamped by the real clock, the fake one runs years ahead


def test_promote_moves_due_jobs_and_returns_the_next_due_time(
    engine: Engine, clock: FakeClock
) -> None:
    engine.insert([new(delay=10.0), new(delay=20.0, queue="media"), new(delay=30.5)])
    assert engine.promote(10) == (0, frozenset(), 10.0)
    clock.advance(20)
    assert engine.promote(10) == (2, frozenset({"default", "media"}), 10.5)
    clock.advance(60)
    assert engine.promote(10) == (1, frozenset({"default"}), None)


def test_promote_is_bounded_and_reports_more_due_jobs(engine: Engine, clock: FakeClock) -> None:
    engine.insert([new(delay=1.0) for _ in range(7)])
    clock.advance(5)
    assert [engine.promote(3)[::2] for _ in range(3)] == [(3, 0.0), (3, 0.0), (1, None)]


def test_promoted_jobs_keep_their_order(engine: Engine, clock: FakeClock) -> None:
    late = insert(engine, delay=10.0)
    clock.advance(15)
    fresh = insert(engine)
    engine.promote(10)
    assert [job.id for job in claim(engine, 2)] == [late.id, fresh.id]


def test_concurrent_promoters_move_each_job_once(database: Database) -> None:
    engine = database.engine()
    engine.insert([new(delay=0.05) for _ in range(300)])
    engine.insert([new(delay=3600.0)])
    moved = in_threads(4, lambda _: sum(_promoted(engine) for _ in range(100)))
    while engine.counts()["scheduled"] > 1:
        moved.append(_promoted(engine))
    assert sum(moved) == 300
    assert engine.counts()["pending"] == 300


def _promoted(engine: Engine) -> int:
    return engine.promote(7).moved


def test_two_pruners_of_one_process_may_finish_at_the_same_time(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.finish([outcome.completed(running(engine), "1", keep=-1.0)])
    run, gone = engine.run, list[int]()

    def meanwhile(script: Any, *, write: bool) -> Any:
        """Another goes through the whole round while the first is in its first look."""
        monkeypatch.setattr(engine, "run", run)
        answer = run(script, write=write)
        gone.append(prune(engine))
        return answer

    monkeypatch.setattr(engine, "run", meanwhile)
    gone.append(prune(engine))
    assert sum(gone) == 1
    assert prune(engine) == 0


def test_prune_deletes_jobs_after_their_retention(engine: Engine, clock: FakeClock) -> None:
    short = running(engine)
    engine.finish([outcome.completed(short, "1", keep=60.0)])
    long = running(engine)
    engine.finish([outcome.failed(long, "E: no", "trace", keep=600.0)])
    waiting = insert(engine)
    clock.advance(59)
    assert prune(engine) == 0
    clock.advance(2)
    assert prune(engine) == 1
    assert engine.get([short.id]) == []
    clock.advance(600)
    assert prune(engine) == 1
    assert [job.id for job in engine.search(Filter()).jobs] == [waiting.id]
    assert execute(engine, "SELECT COUNT(*) FROM {attempts}") == [(0,)]
    if hasattr(engine, "path"):
        assert execute(engine, "SELECT COUNT(*) FROM {payloads}") == [(1,)]
        assert execute(engine, "SELECT COUNT(*) FROM {results}") == [(0,)]


def test_prune_looks_only_at_jobs_old_enough(engine: Engine, clock: FakeClock) -> None:
    job = running(engine)
    engine.finish([outcome.completed(job, "1", keep=0.0)])
    clock.advance(10)
    assert prune(engine, keep=YEARS) == 0
    assert prune(engine) == 1


def test_prune_is_bounded_and_skips_jobs_kept_longer(engine: Engine, clock: FakeClock) -> None:
    """Long-kept rows in front must not hide the others behind them."""
    engine.insert([new() for _ in range(60)])
    jobs = claim(engine, 60)
    kept, gone = jobs[:40], jobs[40:]
    engine.finish([outcome.completed(job, keep=9999.0) for job in kept])
    engine.finish([outcome.completed(job, keep=1.0) for job in gone])
    clock.advance(5)
    sizes = [prune(engine, limit=3) for _ in range(40)]
    assert max(sizes) == 3
    assert sum(sizes) == 20
    assert engine.counts()["completed"] == 40


def test_cancel_applies_to_waiting_and_running_jobs(engine: Engine) -> None:
    jobs = {status: in_status(engine, status, queue=f"q-{status}") for status in Status}
    concerned = engine_commands.cancel(engine, [job.id for job in jobs.values()], keep=60.0)
    unfinished = {s for s in Status if s not in ("completed", "failed", "cancelled")}
    assert set(concerned) == {jobs[status].id for status in unfinished}


def test_retry_resets_a_job(engine: Engine, clock: FakeClock) -> None:
    job = running(engine, key="k")
    engine.finish([outcome.failed(job, "E: no", keep=60.0)])
    clock.advance(5)
    assert engine_commands.retry(engine, [job.id]) == [job.id]
    after = engine.get([job.id])[0]
    assert (after.status, after.attempts, after.error) == ("pending", 0, None)
    assert (after.run_at, after.completed_at, after.keep_until) == (clock.now(), None, None)
    [again] = claim(engine)
    assert again.claim_no == 2


def test_retry_clears_the_result_and_the_cancel_request(engine: Engine) -> None:
    done = in_status(engine, Status.COMPLETED)
    stopped = in_status(engine, Status.CANCELLED, queue="other")
    engine_commands.retry(engine, [done.id, stopped.id])
    assert [job.result for job in engine.get([done.id])] == [None]
    assert not engine.get([stopped.id])[0].cancel_requested


def test_retry_skips_a_job_whose_key_is_live_again(engine: Engine) -> None:
    old = in_status(engine, Status.FAILED, key="k")
    other = in_status(engine, Status.FAILED, queue="other")
    insert(engine, key="k")
    assert engine_commands.retry(engine, [old.id, other.id]) == [other.id]
    assert engine.get([old.id])[0].status == "failed"


def test_retry_of_two_jobs_with_one_key_revives_one(engine: Engine) -> None:
    one = in_status(engine, Status.FAILED, key="k")
    two = in_status(engine, Status.FAILED, key="k")
    assert len(engine_commands.retry(engine, [one.id, two.id])) == 1
    assert sorted(job.status for job in engine.get([one.id, two.id])) == ["failed", "pending"]


def test_delete_removes_everything_of_a_job(engine: Engine) -> None:
    job = in_status(engine, Status.RETRYING)
    assert engine_commands.attempts(engine, job.id) != []
    unknown = new().id
    assert engine_commands.delete(engine, [job.id, unknown]) == [job.id]
    assert (engine.get([job.id]), engine_commands.attempts(engine, job.id)) == ([], [])


def test_queues_are_listed_with_depth_and_pauses(engine: Engine, clock: FakeClock) -> None:
    engine.insert([new(queue="a"), new(queue="a", type="other"), new(queue="c")])
    engine_commands.pause(engine, "b", True)
    engine_commands.pause(engine, "c", True)
    listed = [(queue.name, queue.depth, queue.paused_at) for queue in engine.queues()]
    assert listed == [("a", 2, None), ("b", 0, clock.now()), ("c", 1, clock.now())]
    assert [queue.depth for queue in engine.queues(cap=1)] == [1, 0, 1]
    engine_commands.pause(engine, "b", False)
    assert engine.queues()[1].paused_at is None


def test_counts_are_capped(engine: Engine) -> None:
    engine.insert([new() for _ in range(30)])
    claim(engine, 10)
    assert engine.counts()["pending"] == 20
    assert engine.counts(cap=5)["pending"] == 5
    assert engine.counts(cap=5)["running"] == 5
    assert engine.counts()["failed"] == 0


def test_counts_are_a_consistent_snapshot(database: Database) -> None:
    """A job that goes to and fro is always somewhere."""
    app, other = database.app(), database.engine()
    app.engine.insert([new()])
    counting = threading.Event()

    def move() -> None:
        while not counting.is_set():
            [job] = claim(other, 1)
            other.finish([outcome.released(job)])

    with ThreadPoolExecutor() as pool:
        moving = pool.submit(move)
        try:
            found = [sum(app.engine.counts().values()) for _ in range(500)]
            found += [app.jobs.count(status=["pending", "running"]) for _ in range(500)]
        finally:
            counting.set()
        moving.result()
    assert set(found) == {1}


@pytest.mark.parametrize("paused", [True, False])
def test_pausing_twice_is_harmless(engine: Engine, clock: FakeClock, paused: bool) -> None:
    engine_commands.pause(engine, "q", paused)
    before = engine.queues()
    clock.advance(5)
    engine_commands.pause(engine, "q", paused)
    assert engine.queues() == before
