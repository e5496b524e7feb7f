"""Jobs whose process died under them: deaths and crashes are counted, and claims tell them apart."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast import Limit, Status
from holdfast.core.clock import FakeClock
from holdfast.engine.engine import Engine
from holdfast.engine.records import Seen
from holdfast.jobs import outcome
from holdfast.jobs.job import Job
from tests.conftest import Database
from tests.limits.test_limits import rule
from tests.support import engine_commands
from tests.support.jobs import WORKER, claim, claim_suspect, execute, insert, new, running
from tests.support.threads import in_threads

CRASH = "its process died: SIGSEGV"


def bury(
    engine: Engine,
    worker: str = WORKER,
    *,
    begun: Sequence[Job] | None = None,
    crash: str | None = CRASH,
) -> list[str]:
    """Its process was waited for; the ids of the jobs that it gave back."""
    claims = None if begun is None else tuple(job.claim for job in begun)
    swept = engine.sweep([Seen(worker, None, claims, crash)], limit=100)
    return [job.id for job in swept.rescued]


def record(engine: Engine, *jobs: Job) -> list[tuple[int, int, bool]]:
    """Deaths, crashes, and whether a claim passes over it, of each."""
    found = engine.get([job.id for job in jobs])
    return [(job.deaths, job.crashes, is_suspect(engine, job)) for job in found]


def with_deaths(engine: Engine, deaths: int, **fields: object) -> Job:
    """A pending job with so many deaths on record."""
    job = suspect(engine, **fields)
    sql = "UPDATE {jobs} SET deaths = :deaths, crashes = 0 WHERE id = :id"
    execute(engine, sql, deaths=deaths, id=job.id)
    return job


def suspect(engine: Engine, **fields: object) -> Job:
    """A job whose worker died with it, and nothing beside it."""
    job = running(engine, **fields)
    bury(engine, WORKER)
    execute(engine, "DELETE FROM {workers} WHERE id = :id", id=WORKER)  # so that it may come back
    return engine.get([job.id])[0]


def is_suspect(engine: Engine, job: Job) -> bool:
    [(found,)] = execute(engine, "SELECT suspect FROM {jobs} WHERE id = :id", id=job.id)
    return bool(found)


# claims


def test_a_claim_never_returns_a_suspect(engine: Engine) -> None:
    job = suspect(engine, priority=9)
    innocent = insert(engine)
    assert [taken.id for taken in claim(engine, 10, worker="w")] == [innocent.id]
    assert claim(engine, 10, worker="w", types=["send", "other"]) == []
    assert engine.get([job.id])[0].status == "pending"


def test_a_claim_of_many_types_never_returns_a_suspect(engine: Engine) -> None:
    suspect(engine, type="a", priority=9)
    innocent = [insert(engine, type) for type in ("a", "b", "a")]
    taken = claim(engine, 10, worker="w", types=["a", "b"])
    assert [job.id for job in taken] == [job.id for job in innocent]


def test_claiming_a_suspect_returns_the_whole_job(engine: Engine, clock: FakeClock) -> None:
    made = suspect(engine, payload='{"a":[1,2]}')
    clock.advance(3)
    [job] = claim_suspect(engine, worker="w")
    assert (job.id, job.status, job.worker_id) == (made.id, "running", "w")
    assert (job.attempts, job.claim_no, job.crashes, job.deaths) == (1, 2, 1, 1)
    assert (job.started_at, job.payload) == (clock.now(), {"a": [1, 2]})
    assert job == engine.get([job.id])[0]
    assert engine.held("w") == [(job.id, 2, False)]


def test_suspects_are_claimed_one_at_a_time_in_running_order(engine: Engine) -> None:
    engine.insert([new(priority=priority) for priority in (0, 5, -3)])
    held = claim(engine, 3)
    bury(engine)
    taken = [claim_suspect(engine, worker="w") for _ in range(4)]
    assert [len(jobs) for jobs in taken] == [1, 1, 1, 0]
    assert [job.id for jobs in taken for job in jobs] == [job.id for job in held]


def test_several_suspects_are_claimed_together_in_running_order(engine: Engine) -> None:
    engine.insert([new(priority=priority, queue=queue) for priority in (0, 5) for queue in "ab"])
    for queue in "ab":
        claim(engine, 2, queue=queue)
    bury(engine)
    taken = claim_suspect(engine, worker="w", queues=["a", "b"], limit=3)
    assert [(job.priority, job.queue) for job in taken] == [(5, "a"), (5, "b"), (0, "a")]
    assert [job.priority for job in claim_suspect(engine, worker="w", queues="ab", limit=3)] == [0]
    assert claim_suspect(engine, worker="w", queues="ab", limit=0) == []


def test_a_claim_takes_only_suspects_of_its_level(engine: Engine) -> None:
    """One that a worker of the version before left behind has no deaths on record: the first level."""
    jobs = {deaths: with_deaths(engine, deaths) for deaths in (0, 1, 2, 3, 7)}
    levels = {
        level: [job.id for job in claim_suspect(engine, worker="w", level=level, limit=9)]
        for level in (3, 2, 1)
    }
    assert levels == {
        3: [jobs[3].id, jobs[7].id],
        2: [jobs[2].id],
        1: [jobs[0].id, jobs[1].id],
    }


def test_limits_hold_for_suspects_claimed_together(engine: Engine) -> None:
    rules = {"send": rule("send", Limit(2)), "keyed": rule("keyed", Limit(1, per="tenant"))}
    engine.insert([new() for _ in range(4)])
    engine.insert([new("keyed", payload=f'{{"tenant": "{one}"}}') for one in "aab"])
    held = claim(engine, 9, types=["send", "keyed"])
    bury(engine)
    engine.beat("w", "{}")
    options = {"worker": "w", "types": ["send", "keyed"], "rules": rules}
    taken = engine.claimer.claim_suspects(["default"], 9, **options)
    assert sorted(job.type for job in taken) == ["keyed", "keyed", "send", "send"]
    assert {job.payload["tenant"] for job in taken if job.type == "keyed"} == {"a", "b"}
    assert engine.claimer.claim_suspects(["default"], 9, **options) == []
    [status] = {job.status for job in engine.get([job.id for job in held]) if job not in taken} - {
        Status.RUNNING
    }
    assert status is Status.PENDING, "one that a limit holds back is not parked"
    engine.finish([outcome.completed(job, keep=60.0) for job in taken])
    assert len(engine.claimer.claim_suspects(["default"], 9, **options)) == 3


def test_jobs_that_are_not_suspect_are_not_claimed_as_suspects(engine: Engine) -> None:
    insert(engine)
    assert claim_suspect(engine) == []


def test_only_suspects_of_known_types_and_queues_are_claimed(engine: Engine) -> None:
    insert(engine, "known", queue="media")
    insert(engine, "unknown", queue="media", priority=5)
    insert(engine, "known", queue="elsewhere", priority=5)
    for queue in ("media", "elsewhere"):
        claim(engine, 10, types=["known", "unknown"], queue=queue)
    bury(engine)
    assert claim_suspect(engine, worker="w", queues=["media"], types=["other"]) == []
    assert claim_suspect(engine, worker="w", queues=["default"], types=["known"]) == []
    assert claim_suspect(engine, worker="w", queues=[], types=["known"]) == []
    assert claim_suspect(engine, worker="w", queues=["media"], types=[]) == []
    [job] = claim_suspect(engine, worker="w", queues=["media", "x"], types=["known", "other"])
    assert (job.type, job.queue) == ("known", "media")
    assert claim_suspect(engine, worker="w", queues=["media", "x"], types=["known"]) == []


def test_a_paused_queue_hides_only_its_own_suspects(engine: Engine) -> None:
    suspect(engine, priority=9)
    other = suspect(engine, queue="media")
    engine_commands.pause(engine, "default", True)
    queues = ["default", "media"]
    assert [job.id for job in claim_suspect(engine, queues=queues)] == [other.id]
    assert claim_suspect(engine, queues=queues) == []
    engine_commands.pause(engine, "default", False)
    assert len(claim_suspect(engine, queues=queues)) == 1


def test_an_unknown_or_dead_worker_claims_no_suspect(engine: Engine) -> None:
    suspect(engine)
    assert engine.claimer.claim_suspects(["default"], 1, worker="nobody", types=["send"]) == []
    engine.beat("w", "{}")
    bury(engine, "w")
    assert engine.claimer.claim_suspects(["default"], 1, worker="w", types=["send"]) == []
    assert len(claim_suspect(engine, worker="other")) == 1


def test_racing_workers_never_share_a_suspect(database: Database) -> None:
    engine = database.engine()
    engine.insert([new() for _ in range(60)])
    made = sorted(job.id for job in claim(engine, 60))
    bury(engine)

    def work(number: int) -> list[str]:
        taken: list[str] = []
        while jobs := claim_suspect(engine, worker=f"w{number}", limit=1 + number % 3):
            taken += [job.id for job in jobs]
        return taken

    taken = [id for part in in_threads(6, work) for id in part]
    while jobs := claim_suspect(engine, worker="last"):  # a row held at that moment is passed over
        taken += [job.id for job in jobs]
    assert sorted(taken) == made


def test_waiting_suspects_are_counted_by_queue_type_and_level(engine: Engine) -> None:
    assert engine.suspects() == []
    for queue, type, deaths in [("a", "x", 1), ("a", "y", 2), ("b", "x", 5), ("a", "x", 1)]:
        with_deaths(engine, deaths, type=type, queue=queue)
    insert(engine, "innocent")
    expected = [("a", "x", 1, 2), ("a", "y", 2, 1), ("b", "x", 3, 1)]
    assert sorted(engine.suspects()) == expected
    [held] = claim_suspect(engine, worker="w", queues=["b"], types=["x"])
    assert sorted(engine.suspects()) == expected[:2]
    engine.finish([outcome.completed(held, keep=60.0)])
    assert sorted(engine.suspects()) == expected[:2]


def test_suspects_of_a_paused_queue_are_not_counted(engine: Engine) -> None:
    """Processes would be started for them, that find nothing to do."""
    suspect(engine)
    suspect(engine, queue="media")
    engine_commands.pause(engine, "default", True)
    assert [one.queue for one in engine.suspects()] == ["media"]
    engine_commands.pause(engine, "default", False)
    assert len(engine.suspects()) == 2


# suspicion


def test_a_crash_is_counted_if_the_job_ran_alone(engine: Engine) -> None:
    job = running(engine)
    assert bury(engine) == [job.id]
    after = engine.get([job.id])[0]
    assert (after.status, after.crashes, after.attempts) == ("pending", 1, 0)
    assert is_suspect(engine, job)


def test_jobs_that_died_together_become_suspects_without_a_crash(engine: Engine) -> None:
    engine.insert([new(queue=queue) for queue in ("default", "media", "default")])
    held = claim(engine, 5) + claim(engine, 5, queue="media")
    assert len(held) == 3
    bury(engine)
    after = engine.get([job.id for job in held])
    assert [job.crashes for job in after] == [0, 0, 0]
    assert [is_suspect(engine, job) for job in after] == [True] * 3


def test_workers_declared_dead_together_are_judged_separately(engine: Engine) -> None:
    engine.insert([new() for _ in range(3)])
    [alone] = claim(engine, 1, worker="w1")
    two = claim(engine, 2, worker="w2")
    engine.sweep([Seen(name, None, None, CRASH) for name in ("w1", "w2")], limit=10)
    assert engine.get([alone.id])[0].crashes == 1
    assert [job.crashes for job in engine.get([job.id for job in two])] == [0, 0]


def test_finished_jobs_do_not_count_as_running_beside(engine: Engine) -> None:
    engine.insert([new(), new()])
    done, left = claim(engine, 2)
    engine.finish([outcome.completed(done, keep=60.0)])
    bury(engine)
    assert [job.crashes for job in engine.get([left.id])] == [1]
    assert not is_suspect(engine, done)


def test_two_sweeps_count_a_crash_once(engine: Engine) -> None:
    """Nor does one that had to be cut in two, whose last row would look as if it had been alone."""
    job = running(engine)
    bury(engine)
    bury(engine)
    assert engine.get([job.id])[0].crashes == 1
    engine.insert([new(), new()])
    held = claim(engine, 2, worker="w")
    dead = [Seen("w", None, None, CRASH)]
    sizes = [len(engine.sweep(dead, limit=1).rescued) for _ in range(3)]
    assert sizes == [1, 1, 0]
    assert [job.crashes for job in engine.get([job.id for job in held])] == [0, 0]


def test_crashes_add_up_while_a_job_runs_alone(engine: Engine) -> None:
    job = running(engine)
    bury(engine)
    for number in (2, 3):
        [again] = claim_suspect(engine, worker=f"w{number}")
        bury(engine, f"w{number}")
        after = engine.get([job.id])[0]
        assert (again.crashes, after.crashes, after.attempts) == (number - 1, number, 0)


def test_a_deregistered_worker_makes_no_suspects(engine: Engine, clock: FakeClock) -> None:
    job = running(engine)
    engine.leave(WORKER)
    [worker] = engine.workers()
    assert (worker.left_at, worker.died_at) == (clock.now(), None)
    assert bury(engine) == [job.id]
    after = engine.get([job.id])[0]
    assert (after.status, after.crashes, after.attempts) == ("pending", 0, 0)
    assert not is_suspect(engine, job)
    assert [taken.id for taken in claim(engine, worker="w")] == [job.id]


def test_dead_and_unknown_workers_cannot_deregister(engine: Engine) -> None:
    engine.leave("nobody")
    assert engine.workers() == []
    job = running(engine)
    bury(engine)
    engine.leave(WORKER)
    assert [worker.left_at for worker in engine.workers()] == [None]
    assert is_suspect(engine, job)


def test_a_deregistering_and_a_crashing_worker_are_distinguished(engine: Engine) -> None:
    engine.insert([new(), new()])
    [left] = claim(engine, worker="leaves")
    [lost] = claim(engine, worker="crashes")
    engine.leave("leaves")
    engine.sweep([Seen(name, None, None, CRASH) for name in ("leaves", "crashes")], limit=10)
    assert [is_suspect(engine, job) for job in (left, lost)] == [False, True]
    assert [job.crashes for job in engine.get([left.id, lost.id])] == [0, 1]


def test_only_started_jobs_become_suspects(engine: Engine) -> None:
    """The others are given back, and run among the ordinary ones."""
    engine.insert([new() for _ in range(4)])
    one, two, three, four = claim(engine, 4)
    assert len(bury(engine, begun=[one, three])) == 4
    begun, waiting = (1, 0, True), (0, 0, False)
    assert record(engine, one, two, three, four) == [begun, waiting, begun, waiting]
    assert {job.id for job in claim(engine, 9, worker="w")} == {two.id, four.id}
    errors = [engine_commands.attempts(engine, job.id)[0].error for job in (one, two)]
    lost = "the worker was lost"
    assert errors == [f"{lost} while it ran this", f"{lost} before this had begun"]


def test_the_only_started_job_has_its_crash_counted(engine: Engine) -> None:
    engine.insert([new() for _ in range(3)])
    one, two, three = claim(engine, 3)
    bury(engine, begun=[two])
    assert record(engine, one, two, three) == [(0, 0, False), (1, 1, True), (0, 0, False)]
    assert engine.get([two.id])[0].error == CRASH


def test_a_lost_claim_counts_as_not_started(engine: Engine) -> None:
    job = running(engine)
    bury(engine, begun=[replace(job, claim_no=job.claim_no + 1)])
    assert record(engine, job) == [(0, 0, False)]


@pytest.mark.parametrize("crash", [CRASH, None], ids=["crash", "kill"])
def test_a_death_without_started_jobs_makes_no_suspects(engine: Engine, crash: str | None) -> None:
    """Its jobs had ended, and waited to be written, or were still to begin."""
    jobs = [running(engine) for _ in range(3)]
    bury(engine, begun=[], crash=crash)
    assert record(engine, *jobs) == [(0, 0, False)] * 3


def test_a_kill_from_outside_is_a_death_and_no_crash(engine: Engine) -> None:
    job = running(engine)
    for deaths in range(1, 6):
        bury(engine, engine.get([job.id])[0].worker_id or "", crash=None)
        assert record(engine, job) == [(deaths, 0, True)]
        assert engine.get([job.id])[0].attempts == 0
        claim_suspect(engine, worker=f"w{deaths}", level=min(deaths, 3))


def test_the_silence_of_an_embedded_worker_is_a_death_and_no_crash(engine: Engine) -> None:
    job = running(engine)
    [seen] = engine.workers()
    engine.sweep([Seen(seen.id, seen.beat_no)], limit=10)
    assert record(engine, job) == [(1, 0, True)]


@pytest.mark.parametrize("info", ['{"supervised": true}', "{}", "[]", "no JSON"])
def test_the_silence_of_a_supervised_worker_is_neither_a_death_nor_a_crash(
    engine: Engine, info: str
) -> None:
    """Its supervisor is silent, too: the machine is gone, or the whole process tree was killed."""
    engine.insert([new() for _ in range(3)])
    jobs = claim(engine, 3)
    engine.beat(WORKER, info)
    [seen] = engine.workers()
    engine.sweep([Seen(seen.id, seen.beat_no)], limit=10)
    if "true" not in info:
        assert record(engine, *jobs) == [(1, 0, True)] * 3
        return
    assert record(engine, *jobs) == [(0, 0, False)] * 3
    assert len(claim(engine, 9, worker="w")) == 3


def test_a_live_worker_makes_no_suspects(engine: Engine) -> None:
    job = running(engine)
    [seen] = engine.workers()
    engine.beat(WORKER, "{}")
    engine.sweep([Seen(seen.id, seen.beat_no)], limit=10)
    after = engine.get([job.id])[0]
    assert (after.status, after.crashes, is_suspect(engine, job)) == ("running", 0, False)


def test_a_sweep_wakes_the_queues_of_released_jobs(database: Database) -> None:
    engine, other = database.engine(), database.engine()
    running(other, queue="media")
    wakeups = engine.wakeups()
    while wakeups.wait(0.2):
        pass
    other.sweep([Seen(WORKER, None)], limit=10)
    assert wakeups.wait(10.0) & {"media", "*"}


# what ends it

FINISHES = {
    "completed": lambda job: outcome.completed(job, "1", keep=60.0),
    "retry_later": lambda job: outcome.retry_later(job, "E: no", delay=0.0),
    "snoozed": lambda job: outcome.snoozed(job, delay=0.0),
    "failed": lambda job: outcome.failed(job, "E: no", keep=60.0),
    "stopped": lambda job: outcome.stopped(job, keep=60.0),
    "released": outcome.released,
    "crashed": lambda job: outcome.crashed(job, "E: gone", delay=0.0),
    "killed": lambda job: outcome.crashed(job, "E: gone", delay=0.0, own=False),
}


NO_END_OF_ITS_OWN = {"released", "crashed", "killed"}


@pytest.mark.parametrize("kind", sorted(FINISHES))
def test_every_end_by_itself_clears_the_suspicion(engine: Engine, kind: str) -> None:
    with_deaths(engine, 2)
    [job] = claim_suspect(engine)
    engine.finish([FINISHES[kind](job)])
    engine.promote(10)
    after = engine.get([job.id])[0]
    taken = [taken.id for taken in claim(engine)]
    if kind in NO_END_OF_ITS_OWN:  # the worker stopped it, or yet another process died
        deaths = {"released": 2}.get(kind, 3)
        assert record(engine, job) == [(deaths, int(kind == "crashed"), True)]
        assert taken == []
    else:
        assert record(engine, job) == [(0, 0, False)]
        assert taken == [job.id] * (after.status == "pending")


@pytest.mark.parametrize("kind", sorted(FINISHES))
def test_only_an_end_by_itself_that_continues_the_job_clears_its_crashes(
    engine: Engine, kind: str
) -> None:
    """Three crashes in a row count. A finished job keeps its counters, for inspection."""
    suspect(engine)
    [job] = claim_suspect(engine)
    engine.finish([FINISHES[kind](job)])
    after = engine.get([job.id])[0]
    cleared = kind not in NO_END_OF_ITS_OWN and after.completed_at is None
    assert after.crashes == (0 if cleared else 1 + (kind == "crashed"))


def test_an_operators_retry_clears_deaths_and_crashes(engine: Engine) -> None:
    job = suspect(engine)
    engine_commands.cancel(engine, [job.id], keep=60.0)
    assert engine.get([job.id])[0].crashes == 1
    execute(engine, "UPDATE {jobs} SET verdict = 'E: late'")
    assert engine_commands.retry(engine, [job.id]) == [job.id]
    after = engine.get([job.id])[0]
    assert (after.status, after.crashes, after.deaths) == ("pending", 0, 0)
    assert after.verdict is None
    assert [taken.id for taken in claim(engine)] == [job.id]


def test_suspicion_survives_a_wait(engine: Engine, clock: FakeClock) -> None:
    """A newer request that is to run later was waiting behind the run that crashed."""
    job = running(engine, key="k")
    insert(engine, key="k", on_conflict="debounce", delay=30.0)
    bury(engine)
    assert engine.get([job.id])[0].status is Status.SCHEDULED
    assert engine.suspects() == []
    clock.advance(30)
    engine.promote(10)
    assert claim(engine, 10, worker="w") == []
    assert [taken.id for taken in claim_suspect(engine, worker="w")] == [job.id]


def test_a_cancelled_suspect_ends_immediately(engine: Engine) -> None:
    job = running(engine)
    engine_commands.cancel(engine, [job.id], keep=60.0)
    bury(engine)
    assert engine.get([job.id])[0].status is Status.CANCELLED
    assert engine.suspects() == []


# its own process died


def test_a_crash_spends_no_attempt_and_is_counted(engine: Engine, clock: FakeClock) -> None:
    job = running(engine)
    clock.advance(2)
    engine.finish([outcome.crashed(job, "its process died: signal 9", delay=5.0)])
    after = engine.get([job.id])[0]
    assert (after.status, after.attempts) == ("retrying", 0)
    assert record(engine, job) == [(1, 1, False)], "it has a process of its own already"
    assert (after.error, after.run_at) == (
        "its process died: signal 9",
        clock.now() + timedelta(seconds=5),
    )
    assert (after.worker_id, after.started_at, after.completed_at) == (None, None, None)
    [kept] = engine_commands.attempts(engine, job.id)
    assert (kept.attempt, kept.status, kept.error) == (1, "retrying", "its process died: signal 9")
    assert engine.promote(10).moved == 0
    clock.advance(5)
    assert engine.promote(10).moved == 1
    [again] = claim(engine)
    assert (again.id, again.attempts, again.crashes, again.claim_no) == (job.id, 1, 1, 2)
    engine.finish([outcome.completed(again, keep=60.0)])
    assert record(engine, job) == [(0, 1, False)]


def test_a_repeated_crash_report_is_counted_once(engine: Engine) -> None:
    job = running(engine)
    for _ in range(3):
        [answer] = engine.finish([outcome.crashed(job, "E: gone", delay=5.0)]).values()
        assert answer is outcome.Applied.APPLIED
    assert engine.get([job.id])[0].crashes == 1


def test_a_job_with_a_cancel_request_is_cancelled_when_it_crashes(engine: Engine) -> None:
    job = running(engine)
    engine_commands.cancel(engine, [job.id], keep=60.0)
    engine.finish([outcome.crashed(job, "E: gone", delay=5.0)])
    after = engine.get([job.id])[0]
    assert (after.status, after.crashes) == ("cancelled", 1)
    assert after.keep_until is not None


# verdicts


def test_a_verdict_is_returned_by_the_next_claim(engine: Engine) -> None:
    job = running(engine)
    assert job.verdict is None
    engine.record_verdict(job.claim, "TimeoutError: 5 s")
    engine.leave(WORKER)
    bury(engine)
    [again] = claim(engine, worker="w")
    assert (again.id, again.verdict, again.attempts) == (job.id, "TimeoutError: 5 s", 1)
    engine.finish([outcome.retry_later(again, "TimeoutError: 5 s", delay=0.0)])
    assert engine.get([job.id])[0].verdict is None
    engine.promote(1)
    assert [job.verdict for job in claim(engine, worker="w")] == [None]


def test_a_suspect_keeps_its_verdict(engine: Engine) -> None:
    job = running(engine)
    engine.record_verdict(job.claim, "E: late")
    bury(engine)
    assert [again.verdict for again in claim_suspect(engine, worker="w")] == ["E: late"]


@pytest.mark.parametrize("kind", sorted(FINISHES))
def test_every_end_clears_the_verdict(engine: Engine, kind: str) -> None:
    job = running(engine)
    engine.record_verdict(job.claim, "E: late")
    engine.finish([FINISHES[kind](job)])
    assert engine.get([job.id])[0].verdict is None


def test_a_verdict_for_a_lost_claim_changes_nothing(engine: Engine) -> None:
    stale = running(engine)
    engine.leave(WORKER)
    bury(engine)
    engine.record_verdict(stale.claim, "E: stale")
    [again] = claim(engine, worker="w")
    engine.record_verdict(stale.claim, "E: stale")
    assert engine.get([stale.id])[0] == again
    engine.finish([outcome.completed(again, "1", keep=60.0)])
    engine.record_verdict(again.claim, "E: stale")
    assert engine.get([stale.id])[0].verdict is None
    engine_commands.delete(engine, [stale.id])
    engine.record_verdict(again.claim, "E: stale")


def test_a_newer_request_is_not_affected_by_the_previous_runs_verdict(engine: Engine) -> None:
    """It came while the old one ran and was given up: the new payload must run."""
    job = running(engine, key="k")
    engine.record_verdict(job.claim, "E: late")
    insert(engine, key="k", payload='{"n":2}', on_conflict="replace")
    engine.leave(WORKER)
    bury(engine)
    [again] = claim(engine, worker="w")
    assert (again.payload, again.verdict) == ({"n": 2}, None)


def test_a_newer_request_for_a_waiting_job_clears_the_verdict(engine: Engine) -> None:
    job = running(engine, key="k")
    engine.record_verdict(job.claim, "E: late")
    engine.leave(WORKER)
    bury(engine)
    insert(engine, key="k", payload='{"n":2}', on_conflict="replace")
    [again] = claim(engine, worker="w")
    assert (again.id, again.payload, again.verdict) == (job.id, {"n": 2}, None)


# why it waits


@pytest.mark.parametrize(
    ("deaths", "words"),
    [
        (1, "died under it once: it waits for a process in which it runs with at most 16 others"),
        (2, "died under it 2 times: it waits for a process in which it runs with at most 4 others"),
        (3, "died under it 3 times: it waits for a process in which it runs alone"),
        (9, "died under it 9 times: it waits for a process in which it runs alone"),
    ],
)
def test_the_reason_why_a_suspect_waits(database: Database, deaths: int, words: str) -> None:
    app = database.app()
    job = with_deaths(app.engine, deaths)
    app.engine.beat("w", '{"queues": ["default"], "tasks": ["send"], "slots": 10}')
    [reason] = app.jobs.why(job.id)
    assert words in reason
