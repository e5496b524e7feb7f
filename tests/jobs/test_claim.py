"""Claiming: jobs are claimed in order, only if they may run, and never twice."""

from collections import Counter

import pytest

from holdfast.core.clock import FakeClock
from holdfast.engine.engine import Engine
from holdfast.engine.records import Seen
from holdfast.jobs import outcome
from tests.conftest import Database
from tests.support import engine_commands
from tests.support.engine_commands import claim_as
from tests.support.jobs import WORKER, claim, insert, new
from tests.support.threads import in_threads


def test_jobs_are_claimed_by_priority_then_age(engine: Engine, clock: FakeClock) -> None:
    expected = []
    for priority in (0, 5, -3, 5, 0):
        clock.advance(1)
        expected.append((-priority, insert(engine, priority=priority).id))
    taken = [job.id for _ in range(5) for job in claim(engine)]
    assert taken == [id for _, id in sorted(expected)]


def test_order_holds_across_types(engine: Engine) -> None:
    types = ["a", "b", "c"]
    made = [insert(engine, types[n % 3], priority=n % 2) for n in range(30)]
    order = sorted(made, key=lambda job: (job.rank, job.run_at, job.id))
    taken = claim(engine, 7, types=types) + claim(engine, 100, types=types)
    assert [job.id for job in taken] == [job.id for job in order]


def test_a_late_job_with_high_priority_is_claimed_next(engine: Engine) -> None:
    engine.insert([new() for _ in range(20)])
    claim(engine, 5)
    urgent = insert(engine, priority=9)
    assert claim(engine)[0].id == urgent.id


def test_a_claim_returns_the_whole_job(engine: Engine, clock: FakeClock) -> None:
    made = insert(engine, payload='{"a":[1,2]}')
    clock.advance(3)
    [job] = claim(engine)
    assert (job.id, job.status, job.worker_id) == (made.id, "running", WORKER)
    assert (job.attempts, job.claim_no, job.started_at) == (1, 1, clock.now())
    assert job.payload == {"a": [1, 2]}
    assert job == engine.get([job.id])[0]


def test_only_requested_types_are_claimed(engine: Engine) -> None:
    engine.insert([new("unknown") for _ in range(50)])
    known = insert(engine, "known")
    assert [job.id for job in claim(engine, 10, types=["known", "other"])] == [known.id]
    assert claim(engine, 10, types=["known"]) == []
    assert claim(engine, 10, types=[]) == []
    assert engine.counts()["pending"] == 50


def test_only_the_requested_queue_is_claimed(engine: Engine) -> None:
    there = insert(engine, queue="media")
    insert(engine)
    assert [job.id for job in claim(engine, 10, queue="media")] == [there.id]


def test_no_job_of_a_paused_queue_is_claimed(engine: Engine) -> None:
    insert(engine)
    engine_commands.pause(engine, "default", True)
    assert claim(engine) == []
    engine_commands.pause(engine, "default", False)
    assert len(claim(engine)) == 1


def test_an_unknown_or_dead_worker_claims_nothing(engine: Engine) -> None:
    insert(engine)
    assert claim_as(engine, "default", 1, worker="nobody", types=["send"]) == []
    engine.beat("w", "{}")
    engine.sweep([Seen("w", None)], limit=1)
    assert claim_as(engine, "default", 1, worker="w", types=["send"]) == []
    assert len(claim(engine)) == 1


def test_future_jobs_are_not_claimed(engine: Engine, clock: FakeClock) -> None:
    insert(engine, delay=60.0)
    assert claim(engine) == []
    clock.advance(60)
    engine.promote(10)
    assert len(claim(engine)) == 1


@pytest.mark.parametrize("separate", [False, True], ids=["one engine", "an engine each"])
def test_sixteen_racing_claimers_never_share_a_job(database: Database, separate: bool) -> None:
    first = database.engine()
    made = {job.id for job in first.insert([new() for _ in range(800)])}
    engines = [database.engine() if separate else first for _ in range(16)]
    for number, engine in enumerate(engines):
        engine.beat(f"w{number}", "{}")

    def work(number: int) -> list[str]:
        taken = []
        while jobs := claim_as(engines[number], "default", 7, worker=f"w{number}", types=["send"]):
            taken += [job.id for job in jobs]
            engines[number].finish([outcome.completed(job, keep=60.0) for job in jobs[::2]])
        return taken

    taken = Counter(id for part in in_threads(16, work) for id in part)
    assert set(taken) == made
    assert max(taken.values()) == 1
