"""Workers: heartbeats, death, and what happens to their jobs."""

from holdfast.core.clock import FakeClock
from holdfast.engine.engine import Engine
from holdfast.engine.records import Seen
from holdfast.jobs import outcome
from tests.support import engine_commands
from tests.support.jobs import WORKER, claim, claim_suspect, execute, insert, new, prune, running


def test_heartbeats_are_counted(engine: Engine, clock: FakeClock) -> None:
    assert engine.beat("w", '{"pid":1}').alive
    clock.advance(5)
    assert engine.beat("w", '{"pid":2}').alive
    [worker] = engine.workers()
    assert (worker.id, worker.beat_no, worker.info) == ("w", 2, '{"pid":2}')
    assert (worker.beat_at, worker.died_at) == (clock.now(), None)


def test_a_heartbeat_returns_the_held_jobs(engine: Engine) -> None:
    job = running(engine)
    assert engine.beat(WORKER, "{}").held == [(job.id, 1, False)]
    engine.finish([outcome.released(job)])
    assert engine.beat(WORKER, "{}").held == []


def test_a_heartbeat_delivers_a_request_for_stacks(engine: Engine, clock: FakeClock) -> None:
    assert not engine.ask_stacks("w")
    assert engine.stacks("w") is None
    engine.beat("w", "{}")
    assert engine.stacks("w") == (None, None, None)
    clock.advance(1)
    assert engine.ask_stacks("w")
    asked = clock.now()
    assert engine.beat("w", "{}").asked
    clock.advance(1)
    engine.tell_stacks("w", "job 1: line 7")
    assert engine.stacks("w") == (asked, clock.now(), "job 1: line 7")
    assert not engine.beat("w", "{}").asked
    clock.advance(1)
    assert engine.ask_stacks("w")
    assert engine.beat("w", "{}").asked


def test_dead_workers_are_not_asked_for_stacks(engine: Engine) -> None:
    engine.beat("w", "{}")
    engine.sweep([Seen("w", None)], limit=1)
    assert not engine.ask_stacks("w")


def test_a_silent_worker_is_declared_dead_and_its_jobs_are_released(engine: Engine) -> None:
    job = running(engine)
    [seen] = engine.workers()
    buried, rescued = engine.sweep([Seen(seen.id, seen.beat_no)], limit=10)
    assert (buried, [r.id for r in rescued]) == ([WORKER], [job.id])
    after = engine.get([job.id])[0]
    assert (after.status, after.attempts, after.claim_no) == ("pending", 0, 1)
    assert (after.worker_id, after.started_at, after.run_at) == (None, None, job.run_at)


def test_the_run_of_a_lost_worker_is_kept_as_an_attempt(engine: Engine, clock: FakeClock) -> None:
    """The attempt shows where the job ran, since when, and that its end is unknown."""
    job = running(engine)
    began = clock.now()
    clock.advance(7)
    engine.sweep([Seen(WORKER, None)], limit=10)
    [lost] = engine_commands.attempts(engine, job.id)
    assert (lost.claim_no, lost.attempt, lost.worker_id) == (1, 1, WORKER)
    assert (lost.started_at, lost.finished_at) == (began, clock.now())
    assert (lost.status, lost.error) == ("pending", "the worker was lost while it ran this")
    assert engine.get([job.id])[0].error is None  # it has not failed
    engine.sweep([], limit=10)
    [again] = claim_suspect(engine, worker="host-2-b")
    engine.leave("host-2-b")
    engine.sweep([Seen("host-2-b", None)], limit=10)
    newest = max(engine_commands.attempts(engine, job.id), key=lambda run: run.claim_no)
    assert (newest.claim_no, newest.attempt) == (again.claim_no, 1)
    assert newest.error == "the worker left before this had ended"
    assert len(engine_commands.attempts(engine, job.id)) == 2


def test_a_run_with_a_verdict_is_recorded_once(engine: Engine) -> None:
    """By the worker that claims it."""
    job = running(engine)
    engine.record_verdict(job.claim, "TimeoutError: 5 s")
    engine.sweep([Seen(WORKER, None)], limit=10)
    assert engine_commands.attempts(engine, job.id) == []


def test_a_worker_with_a_newer_heartbeat_is_not_declared_dead(engine: Engine) -> None:
    running(engine)
    [seen] = engine.workers()
    engine.beat(WORKER, "{}")
    assert engine.sweep([Seen(seen.id, seen.beat_no)], limit=10) == ([], [])
    assert engine.beat(WORKER, "{}").alive


def test_a_dead_worker_stays_dead(engine: Engine) -> None:
    engine.beat("w", "{}")
    engine.sweep([Seen("w", None)], limit=1)
    assert not engine.beat("w", "{}").alive
    assert engine.sweep([Seen("w", None)], limit=1).buried == []


def test_a_claim_that_raced_with_a_death_is_released_by_the_next_sweep(engine: Engine) -> None:
    """The claim committed at the same moment as the mark: its row is under a dead worker."""
    job = running(engine)
    execute(engine, "UPDATE {workers} SET died_at = beat_at")
    assert [rescued.id for rescued in engine.sweep([], limit=10).rescued] == [job.id]


def test_sweeps_are_bounded_and_continue(engine: Engine) -> None:
    engine.insert([new() for _ in range(25)])
    claim(engine, 25)
    sizes = [len(engine.sweep([Seen(WORKER, None)], limit=10).rescued) for _ in range(4)]
    assert sizes == [10, 10, 5, 0]


def test_a_job_with_a_cancel_request_is_not_run_again_after_a_rescue(engine: Engine) -> None:
    job = running(engine)
    engine_commands.cancel(engine, [job.id], keep=60.0)
    engine.sweep([Seen(WORKER, None)], limit=10)
    after = engine.get([job.id])[0]
    assert after.status == "cancelled"
    assert after.completed_at is not None
    assert after.keep_until is not None


def test_a_newer_request_survives_the_worker(engine: Engine) -> None:
    job = running(engine, key="k")
    insert(engine, key="k", payload='{"n":2}', on_conflict="replace")
    engine.sweep([Seen(WORKER, None)], limit=10)
    after = engine.get([job.id])[0]
    assert (after.status, after.payload, after.attempts) == ("pending", {"n": 2}, 0)
    [again] = claim_suspect(engine, worker="other")
    engine.finish([outcome.completed(again, keep=60.0)])
    assert engine.get([job.id])[0].status == "completed"


def test_dead_workers_are_deleted_after_a_day(engine: Engine, clock: FakeClock) -> None:
    engine.beat("old", "{}")
    engine.sweep([Seen("old", None)], limit=1)
    clock.advance(86_000)
    prune(engine)
    assert [worker.id for worker in engine.workers()] == ["old"]
    clock.advance(500)
    prune(engine)
    assert engine.workers() == []
