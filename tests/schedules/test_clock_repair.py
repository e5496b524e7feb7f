"""A step back of the database's clock: rates and intervals continue, explicitly chosen times are
kept."""

from datetime import timedelta
from typing import Any

import pytest

from holdfast import Limit
from holdfast.core.clock import FakeClock
from holdfast.engine.engine import Engine
from holdfast.engine.records import Edit
from holdfast.jobs import commands, outcome
from holdfast.jobs.job import FINISHED, Job, Status
from holdfast.jobs.outcome import Policy
from holdfast.limits.limit import Rule, make_rule
from holdfast.schedules import clock_repair
from holdfast.schedules import scripts as schedule_scripts
from tests.conftest import Database
from tests.support.engine_commands import claim_as
from tests.support.jobs import WORKER, new, running

HOUR = 3600.0
POLICY = Policy(backoff=lambda failures: 10.0, keep=dict.fromkeys(FINISHED, 60.0))


def fetch(engine: Engine, rules: dict[str, Rule], limit: int = 10) -> list[Job]:
    engine.beat(WORKER, "{}")
    return engine.claimer.fetch("default", limit, worker=WORKER, types=["send"], rules=rules).jobs


def rules_of(*limits: Limit) -> dict[str, Rule]:
    rule = make_rule("send", limits, ["n"], lambda payload: {})
    assert rule is not None
    return {"send": rule}


def repair(engine: Engine, limit: int = 100) -> int:
    """Do what a worker does after a step back; return how many next runs were moved."""
    moved, after, key = 0, None, ""
    while True:
        found = engine.write(clock_repair.bring_forward, after, limit)
        moved, after = moved + found.moved, found.after
        if after is None:
            break
    while True:
        key = engine.write(clock_repair.wake_keys_early, key, limit)
        if not key:
            return moved


# rates


def test_a_rate_continues_after_one_period(engine: Engine, clock: FakeClock) -> None:
    rules = rules_of(Limit(rate="3/m"))
    engine.insert([new() for _ in range(20)])
    assert len(fetch(engine, rules)) == 3
    clock.advance(-HOUR)
    assert fetch(engine, rules) == []  # by the new clock, they have just started
    found = engine.claimer.fetch("default", 9, worker=WORKER, types=["send"], rules=rules)
    assert found.due is not None
    assert found.due <= 61.0
    clock.advance(59)
    assert fetch(engine, rules) == []
    clock.advance(2)
    assert len(fetch(engine, rules)) == 3
    assert fetch(engine, rules) == []


def test_a_key_waiting_for_its_rate_continues_after_one_period(
    engine: Engine, clock: FakeClock
) -> None:
    rules = rules_of(Limit(rate="2/m", per="n"))
    engine.insert([new() for _ in range(9)])
    assert len(fetch(engine, rules)) == 2
    clock.advance(-HOUR)
    repair(engine)
    engine.promote(100)
    assert fetch(engine, rules) == []
    clock.advance(62)
    engine.promote(100)
    assert len(fetch(engine, rules)) == 2
    clock.advance(30)
    engine.promote(100)
    assert fetch(engine, rules) == []


def test_a_key_waiting_a_regular_period_is_unchanged(engine: Engine, clock: FakeClock) -> None:
    rules = rules_of(Limit(rate="2/m", per="n"))
    engine.insert([new() for _ in range(9)])
    assert len(fetch(engine, rules)) == 2
    due = engine.next_due()
    repair(engine)
    assert engine.next_due() == due


# recurring jobs


def recurring(engine: Engine, schedule: str, **fields: Any) -> Job:
    return running(engine, key="k", schedule=schedule, **fields)


def next_of(engine: Engine, job: Job, ended: Any) -> Job:
    """The row after a run that ended so."""
    engine.finish([outcome.decide(job, ended, POLICY, engine.clock.now())])
    return engine.get([job.id])[0]


def away(engine: Engine, job: Job) -> float:
    """Seconds until it runs."""
    return (engine.get([job.id])[0].run_at - engine.clock.now()).total_seconds()


def test_an_interval_is_counted_from_now(engine: Engine, clock: FakeClock) -> None:
    job = next_of(engine, recurring(engine, '{"every":300}'), outcome.Returned(None))
    assert away(engine, job) == 300
    clock.advance(-HOUR)
    assert away(engine, job) == 300 + HOUR
    assert repair(engine) == 1
    assert away(engine, job) == 300
    row = engine.get([job.id])[0]
    assert row.due_at == row.run_at
    assert repair(engine) == 0
    clock.advance(300)
    assert engine.promote(10).moved == 1


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_scheduling_again_keeps_the_evidence_of_the_step(
    engine: Engine, clock: FakeClock, before: bool
) -> None:
    """An application schedules its jobs when it starts, maybe before a worker notices the step."""

    def ask() -> None:
        clock.advance(5)
        again = new(key="k", schedule='{"every":300}')
        engine.run(lambda: schedule_scripts.schedule(engine.dialect, again), write=True)

    job = next_of(engine, recurring(engine, '{"every":300}'), outcome.Returned(None))
    if before:
        ask()
    clock.advance(-HOUR)
    if not before:
        ask()
    assert repair(engine) == 1
    assert away(engine, job) <= 300


def test_enabling_a_job_keeps_the_evidence_of_the_step(engine: Engine, clock: FakeClock) -> None:
    job = next_of(engine, recurring(engine, '{"every":300}'), outcome.Returned(None))
    clock.advance(-HOUR)
    for enabled in (False, True):
        row = engine.get([job.id])[0]
        engine.run(
            lambda row=row, enabled=enabled: schedule_scripts.set_enabled(
                engine.dialect, row, enabled
            ),  # type: ignore[misc]
            write=True,
        )
    assert repair(engine) == 1
    assert away(engine, job) <= 300


def test_a_step_back_during_a_run_is_corrected(engine: Engine, clock: FakeClock) -> None:
    """Whether the worker counts by the new clock, or by the old one."""
    for behind in (0.0, HOUR):
        job = running(engine, type=f"t{behind:g}", key="k", schedule='{"every":300}')
        clock.advance(-HOUR)
        now = engine.clock.now() + timedelta(seconds=behind)
        engine.finish([outcome.decide(job, outcome.Returned(None), POLICY, now)])
        assert away(engine, job) == 300


def test_a_retry_waits_for_its_delay(engine: Engine, clock: FakeClock) -> None:
    job = running(engine)
    engine.finish([outcome.retry_later(job, "E: no", delay=30.0)])
    clock.advance(-HOUR)
    assert away(engine, job) == 30 + HOUR
    assert repair(engine) == 1
    assert away(engine, job) == 30
    assert engine.get([job.id])[0].status is Status.RETRYING


def test_a_failed_run_of_a_nightly_job_is_retried_in_time(engine: Engine, clock: FakeClock) -> None:
    job = recurring(engine, '{"cron":"0 3 * * *"}')
    job = next_of(engine, job, outcome.Raised("E: no", None))
    assert away(engine, job) == 10
    clock.advance(-HOUR)
    assert repair(engine) == 1
    assert away(engine, job) == 10
    assert engine.get([job.id])[0].due_at == job.due_at


def moments_that_stay(engine: Engine, case: str) -> Job:
    at = engine.clock.now() + timedelta(minutes=5)
    match case:
        case "cron":
            job = recurring(engine, '{"cron":"*/5 * * * *"}')
            return next_of(engine, job, outcome.Returned(None))
        case "next_run(at=)":
            job = recurring(engine, '{"every":300}')
            return next_of(engine, job, outcome.Returned(None, next_run=at))
        case "start=":
            return engine.insert([new(key="k", schedule='{"every":300}', run_at=at)])[0]
        case "run_at=":
            return engine.insert([new(run_at=at)])[0]
        case "delay=":
            return engine.insert([new(delay=300.0)])[0]
        case "rescheduled":
            job = next_of(engine, recurring(engine, '{"every":300}'), outcome.Returned(None))
            engine.clock.advance(5)  # type: ignore[attr-defined]
            engine.run(
                lambda: schedule_scripts.move(engine.dialect, job.type, "k", at, 0.0), write=True
            )
            return engine.get([job.id])[0]
        case "edited":
            job = running(engine)
            engine.finish([outcome.retry_later(job, "E: no", delay=30.0)])
            engine.clock.advance(5)  # type: ignore[attr-defined]
            change = Edit(run_at=at)
            engine.run(lambda: commands.edit(engine.dialect, job.id, change), write=True)
            return engine.get([job.id])[0]
    raise AssertionError(case)


@pytest.mark.parametrize(
    "case", ["cron", "next_run(at=)", "start=", "run_at=", "delay=", "rescheduled", "edited"]
)
def test_an_explicitly_chosen_time_is_unchanged(
    engine: Engine, clock: FakeClock, case: str
) -> None:
    job = moments_that_stay(engine, case)
    clock.advance(-HOUR)
    assert repair(engine) == 0
    assert engine.get([job.id])[0].run_at == job.run_at


def test_without_a_step_nothing_changes(engine: Engine, clock: FakeClock) -> None:
    job = next_of(engine, recurring(engine, '{"every":300}'), outcome.Returned(None))
    clock.advance(100)
    assert repair(engine) == 0
    assert away(engine, job) == 200


def test_the_walk_continues_after_the_previous_batch(engine: Engine, clock: FakeClock) -> None:
    jobs = engine.insert([new() for _ in range(25)])
    engine.beat(WORKER, "{}")
    held = claim_as(engine, "default", 25, worker=WORKER, types=["send"])
    engine.finish([outcome.retry_later(job, "E: no", delay=30.0) for job in held])
    clock.advance(-HOUR)
    assert repair(engine, limit=10) == 25
    assert {away(engine, job) for job in jobs} == {30.0}


def test_a_next_run_chosen_by_a_run_is_counted_from_that_run(
    engine: Engine, clock: FakeClock
) -> None:
    """Its row has no due time: the chosen time counts as one."""
    at = clock.now() + timedelta(seconds=100)
    job = next_of(engine, recurring(engine, '{"every":300}'), outcome.Returned(None, next_run=at))
    assert (job.run_at, job.due_at) == (at, None)
    clock.advance(100)
    engine.promote(10)
    engine.beat(WORKER, "{}")
    [again] = claim_as(engine, "default", 1, worker=WORKER, types=["send"])
    clock.advance(7)
    assert next_of(engine, again, outcome.Returned(None)).run_at == at + timedelta(seconds=300)


# what a rate promises


@pytest.mark.parametrize(
    "limit",
    [Limit(rate="5/s"), Limit(rate="5/s", per="n"), Limit(20, rate="5/s", per="n", fair=True)],
    ids=["whole", "keyed", "fair"],
)
def test_a_rate_bounds_the_starts_in_every_period_across_a_step(
    database: Database, limit: Limit
) -> None:
    """By `started_at`, with the real clock: not one more in any second, wherever it begins."""
    app = database.app()

    @app.task(rate=limit)
    def work(n: int) -> None: ...

    work.enqueue_many([{"n": 1}] * 22)
    with app.worker() as worker:
        assert worker.join(60.0)
    starts = sorted(job.started_at for job in app.jobs.search() if job.started_at)
    assert len(starts) == 22
    gaps = [later - first for first, later in zip(starts, starts[5:], strict=False)]
    assert min(gaps) >= timedelta(seconds=1)
