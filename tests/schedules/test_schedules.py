"""Recurring jobs: one row each, which comes back whatever happens; on both engines."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import (
    Backoff,
    Context,
    Discard,
    Holdfast,
    InvalidInput,
    Job,
    JobNotFound,
    KeyConflict,
    Retry,
    Snooze,
)
from holdfast.core.clock import FakeClock
from holdfast.engine.records import Seen
from holdfast.testing import drain
from tests.conftest import Database
from tests.support.engine_commands import claim_as
from tests.support.jobs import prune

START = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def app(database: Database, clock: FakeClock) -> Iterator[Holdfast]:
    with database.app(clock=clock) as app:
        yield app


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def run(app: Holdfast) -> list[Job]:
    return drain(app, raise_errors=False)


def make(app: Holdfast, **options: Any) -> Any:
    @app.task(**options)
    def fetch(feed: int = 0) -> int:
        return feed

    return fetch


def test_schedule_makes_one_row_that_is_due_now(app: Holdfast):
    feed = make(app).using(key="feed:1", every="30m")
    job = feed.schedule(feed=1)
    assert (job.created, job.status, job.run_at, job.enabled) == (True, "pending", START, True)
    assert feed.schedule(feed=1).id == job.id
    assert [row.id for row in app.schedules.list()] == [job.id]


def test_a_run_leads_to_the_next_one(app: Holdfast, clock: FakeClock):
    feed = make(app).using(key="feed:1", every="30m")
    feed.schedule(feed=1)
    clock.advance(5)
    [job] = run(app)
    assert (job.status, job.run_at, job.last_run_at) == ("scheduled", after(1800), after(5))
    assert (job.result, job.attempts, job.consecutive_failures) == (1, 0, 0)
    assert run(app) == []
    clock.advance(1795)
    assert len(run(app)) == 1


def test_cron_in_a_time_zone(app: Holdfast):
    job = make(app).using(key="k", cron="0 3 * * *", timezone="Europe/Paris").schedule()
    assert (job.status, job.run_at) == ("scheduled", after(2 * 3600))


def test_the_first_run_can_be_chosen(app: Holdfast):
    job = make(app).using(key="k", every="1h", start=after(600)).schedule()
    assert (job.status, job.run_at) == ("scheduled", after(600))


def test_schedule_again_enables_keeps_the_next_run_and_takes_the_new_arguments(app: Holdfast):
    fetch = make(app)
    fetch.using(key="k", every="1h", start=after(600)).schedule(feed=1)
    fetch.using(key="k").disable()
    job = fetch.using(key="k", every="2h", priority=4).schedule(feed=2)
    assert (job.enabled, job.run_at, job.payload, job.priority) == (
        True,
        after(600),
        {"feed": 2},
        4,
    )


def test_keys_are_unique_per_task(app: Holdfast):
    first, second = make(app, name="a"), make(app, name="b")
    assert (
        first.using(key="k", every=60).schedule().id
        != second.using(key="k", every=60).schedule().id
    )
    first.using(key="plain", delay=60).enqueue()
    with pytest.raises(KeyConflict, match="not a recurring one"):
        first.using(key="plain", every=60).schedule()


def test_disable_keeps_the_next_run_and_enable_runs_an_overdue_job(app: Holdfast, clock: FakeClock):
    feed = make(app).using(key="k", every=60)
    feed.schedule()
    assert (feed.disable().status, feed.disable().enabled) == ("scheduled", False)
    assert run(app) == []
    assert app.engine.next_due() is None
    clock.advance(300)
    job = feed.enable()
    assert (job.enabled, job.run_at) == (True, START)
    [job] = run(app)
    assert job.run_at == after(360)


def test_a_job_can_be_disabled_while_it_runs(app: Holdfast):
    @app.task
    def fetch() -> None:
        app.schedules.disable("fetch", "k")

    fetch.using(key="k", every=60).schedule()
    [job] = run(app)
    assert (job.status, job.enabled, job.run_at) == ("scheduled", False, after(60))


def test_run_now_runs_a_disabled_job(app: Holdfast, clock: FakeClock):
    feed = make(app).using(key="k", every=60, start=after(600))
    feed.schedule()
    feed.disable()
    clock.advance(10)
    assert feed.run_now().status == "pending"
    [job] = run(app)
    assert (job.enabled, job.run_at) == (False, after(70))


def test_run_now_during_a_run_runs_again(app: Holdfast):
    runs: list[int] = []

    @app.task
    def fetch() -> None:
        runs.append(1)
        if len(runs) == 1:
            assert app.schedules.run_now("fetch", "k").status == "running"

    fetch.using(key="k", every=60).schedule()
    assert len(run(app)) == 2


def test_reschedule_moves_the_next_run(app: Holdfast):
    feed = make(app).using(key="k", every=60)
    feed.schedule()
    assert feed.reschedule(at=after(500)).run_at == after(500)
    assert feed.reschedule(after="10s").run_at == after(10)
    with pytest.raises(InvalidInput, match="one of them"):
        feed.reschedule()


def test_only_delete_ends_a_recurring_job(app: Holdfast):
    feed = make(app).using(key="k", every=60)
    feed.schedule()
    assert feed.delete().status == "pending"
    assert list(app.schedules.list()) == []
    with pytest.raises(JobNotFound, match="schedule\\(\\) makes it"):
        feed.enable()


@pytest.mark.parametrize("error", [ValueError("no"), Discard("no"), Retry("no", after=7)])
def test_a_failure_ends_the_run_not_the_row(app: Holdfast, clock: FakeClock, error: Exception):
    @app.task(max_attempts=1)
    def fetch() -> None:
        raise error

    fetch.using(key="k", every=60, backoff=Backoff(delay=7, multiplier=3, jitter=0)).schedule()
    [job] = run(app)
    assert (job.status, job.run_at) == ("scheduled", after(7))
    assert (job.consecutive_failures, job.last_error) == (1, f"{type(error).__name__}: no")
    clock.advance(7)
    [job] = run(app)
    assert job.consecutive_failures == 2
    assert job.run_at == after(14 if isinstance(error, Retry) else 28)


def test_a_success_clears_earlier_failures(app: Holdfast, clock: FakeClock):
    failing = [True, True, False]

    @app.task
    def fetch() -> None:
        if failing.pop(0):
            raise ValueError("no")

    fetch.using(key="k", every=60, backoff=5).schedule()
    for _ in range(3):
        [job] = run(app)
        clock.advance(5)
    assert (job.consecutive_failures, job.last_error, job.error) == (0, None, None)
    assert [attempt.error for attempt in app.jobs.attempts(job.id)] == [
        None,
        "ValueError: no",
        "ValueError: no",
    ]


def test_without_its_own_backoff_a_failed_run_is_retried_no_later_than_its_schedule(
    app: Holdfast,
):
    @app.task
    def nightly() -> None:
        raise ValueError("no")

    @app.task
    def often() -> None:
        raise ValueError("no")

    nightly.using(key="k", every="1d").schedule()
    often.using(key="k", every="1s").schedule()
    rows = {job.type: job for job in run(app)}
    assert after(5) <= rows["nightly"].run_at <= after(5.5)
    assert rows["often"].run_at == after(1)


def test_a_run_decides_its_next_run(app: Holdfast, clock: FakeClock):
    @app.task
    def fetch(ctx: Context) -> None:
        ctx.next_run(after="10m")
        ctx.next_run(at=after(900))

    fetch.using(key="k").schedule()
    [job] = run(app)
    assert job.run_at == after(900)


def test_a_run_without_a_schedule_or_next_run_has_failed(app: Holdfast):
    make(app).using(key="k").schedule()
    [job] = run(app)
    assert job.consecutive_failures == 1
    assert str(job.last_error).startswith("NoNextRun: ")
    assert job.status == "scheduled"


def test_next_run_is_refused_for_other_jobs(app: Holdfast):
    @app.task
    def fetch(ctx: Context) -> None:
        ctx.next_run(after=5)

    fetch.enqueue()
    [job] = run(app)
    assert "does not recur" in str(job.error)


def test_a_snoozed_run_continues_without_a_failure(app: Holdfast):
    @app.task
    def fetch() -> None:
        raise Snooze(30)

    fetch.using(key="k", every=60).schedule()
    [job] = run(app)
    assert (job.status, job.run_at, job.consecutive_failures) == ("scheduled", after(30), 0)


def test_cancel_ends_a_run_and_not_the_row(app: Holdfast):
    feed = make(app).using(key="k", every=60)
    job = feed.schedule()
    assert app.jobs.cancel_all(queue="default").skipped == {"recurring": 1}
    assert app.jobs.get(job.id).status == "pending"


def test_the_run_of_a_dead_worker_is_repeated(app: Holdfast):
    feed = make(app).using(key="k", every=60)
    feed.schedule()
    engine = app.engine
    engine.beat("dead", "{}")
    assert len(claim_as(engine, "default", 1, worker="dead", types=["fetch"])) == 1
    engine.leave("dead")
    engine.sweep([Seen("dead", None)], limit=10)
    [job] = run(app)
    assert (job.status, job.run_at) == ("scheduled", after(60))


def test_the_run_of_a_dead_worker_is_not_repeated_if_the_job_was_disabled(
    app: Holdfast, clock: FakeClock
):
    feed = make(app).using(key="k", every=60)
    feed.schedule()
    engine = app.engine
    engine.beat("dead", "{}")
    assert len(claim_as(engine, "default", 1, worker="dead", types=["fetch"])) == 1
    feed.disable()
    engine.leave("dead")
    engine.sweep([Seen("dead", None)], limit=10)
    [job] = run(app)
    assert (job.status, job.enabled, job.run_at) == ("scheduled", False, after(60))
    clock.advance(120)
    assert run(app) == []


@pytest.mark.parametrize(
    ("missed", "runs", "next_at"), [("once", 1, 360.0), ("skip", 1, 360.0), ("all", 6, 360.0)]
)
def test_missed_runs_follow_the_policy(
    app: Holdfast, clock: FakeClock, missed: str, runs: int, next_at: float
):
    seen: list[int] = []

    @app.task
    def fetch() -> None:
        seen.append(1)

    fetch.using(key="k", every=60, missed=missed).schedule()
    clock.advance(300)
    ran = run(app)
    assert len(ran) == runs
    assert len(seen) == (0 if missed == "skip" else runs)
    assert ran[-1].run_at == after(next_at)


def test_retention_never_deletes_a_recurring_job(app: Holdfast, clock: FakeClock):
    make(app).using(key="k", every=60).schedule()
    run(app)
    clock.advance(3e8)
    prune(app.engine, limit=100)
    assert len(list(app.schedules.list())) == 1


@pytest.mark.parametrize("condition", ["function", "sql"])
def test_sync_enables_and_disables_a_schedule(app: Holdfast, condition: str):
    feed = make(app).using(key="k", every=60)
    feed.schedule()
    for wanted in (False, True):
        enabled: Any = (lambda wanted=wanted: wanted) if condition == "function" else None
        if enabled is None:
            enabled = ("SELECT 1 = :n", {"n": int(wanted)})
        assert feed.sync(enabled=enabled).enabled is wanted
        assert feed.sync(enabled=enabled).enabled is wanted


def test_schedule_methods_need_a_key_and_enqueue_takes_no_schedule(app: Holdfast):
    fetch = make(app)
    with pytest.raises(InvalidInput, match="needs a key="):
        fetch.using(every=60).schedule()
    with pytest.raises(InvalidInput, match="for schedule\\(\\)"):
        fetch.using(every=60).enqueue()


def test_the_async_twins_of_schedule_methods(app: Holdfast):
    feed = make(app).using(key="k", every=60)

    async def engine_commands() -> list[Job]:
        return [
            await feed.aschedule(feed=3),
            await feed.adisable(),
            await feed.aenable(),
            await feed.arun_now(),
            await feed.areschedule(after=30),
            await feed.async_(enabled=lambda: False),
            await feed.adelete(),
        ]

    rows = asyncio.run(engine_commands())
    assert {row.id for row in rows} == {rows[0].id}
    assert [row.enabled for row in rows] == [True, False, True, True, True, False, False]
    assert [row.status for row in rows[3:5]] == ["pending", "scheduled"]
    assert rows[4].run_at == after(30)
    assert list(app.schedules.list()) == []
