"""Expiry, aging, pauses that end by themselves, purges, and why a job waits."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Backoff, Holdfast, InvalidInput, InvalidTransition, Limit
from holdfast.core.clock import FakeClock
from holdfast.jobs.changes import Changed
from holdfast.schedules import scripts as schedule_scripts
from holdfast.schedules.next_run import CODE
from holdfast.testing import drain
from holdfast.worker.housekeeping.sync_declarations import GONE, declare
from tests.conftest import Database
from tests.support.engine_commands import claim_as
from tests.support.jobs import WORKER


@pytest.fixture
def app(database: Database, clock: FakeClock) -> Iterator[Holdfast]:
    with database.app(clock=clock, backoff=Backoff(delay=5, jitter=0)) as app:
        yield app


def noop(app: Holdfast, name: str = "noop", **options: Any) -> Any:
    @app.task(name=name, **options)
    def handler(n: int = 0) -> None:
        if n < 0:
            raise ValueError("negative")

    return handler


def run(app: Holdfast) -> Any:
    return drain(app, raise_errors=False)


# expiry


def test_a_job_that_did_not_start_in_time_is_cancelled(app: Holdfast, clock: FakeClock):
    job = noop(app, expires="1m").enqueue()
    clock.advance(61)
    [after] = run(app)
    assert (after.status, after.attempts) == ("cancelled", 1)
    assert "Expired: it was to begin before" in after.error
    assert job.expires_at == job.created_at + timedelta(seconds=60)


def test_a_job_that_started_in_time_is_retried(app: Holdfast, clock: FakeClock):
    noop(app).using(expires=3).enqueue(n=-1)
    assert [job.status for job in run(app)] == ["retrying"]
    clock.advance(5)
    assert [job.status for job in run(app)] == ["retrying"]


# aging


def test_with_aging_waiting_counts_as_much_as_priority(database: Database, clock: FakeClock):
    with database.app(clock=clock, aging="10m") as app:
        task = noop(app)
        old = task.using(priority=0).enqueue()
        clock.advance(1501)
        two = task.using(priority=2).enqueue()
        three = task.using(priority=3).enqueue()
        assert [job.id for job in run(app)] == [three.id, old.id, two.id]


def test_an_aged_recurring_job_does_not_grow_older_with_each_run(
    database: Database, clock: FakeClock
):
    with database.app(clock=clock, aging="10m") as app:
        task = noop(app)
        task.using(key="k", every="1h").schedule()
        for _ in range(5):
            run(app)
            clock.advance(3600)
        fresh = task.using(priority=1).enqueue()
        assert run(app)[0].id == fresh.id


# queues


def test_a_pause_with_an_end_ends_by_itself(app: Holdfast, clock: FakeClock):
    noop(app).enqueue()
    app.queues.pause("default", resume_in="1h")
    assert run(app) == []
    [queue] = app.queues.list()
    assert queue.resume_at == clock.now() + timedelta(hours=1)
    clock.advance(3600)
    assert (app.queues.list()[0].paused_at, len(run(app))) == (None, 1)
    clock.advance(3600)
    app.queues.pause("default", resume_at=clock.now() + timedelta(hours=1))
    assert app.queues.list()[0].paused_at == clock.now()
    with pytest.raises(InvalidInput, match="give one of them"):
        app.queues.pause("default", resume_at=clock.now(), resume_in=5)


def test_purge_spares_running_and_recurring_jobs(app: Holdfast):
    task = noop(app)
    task.enqueue()
    app.engine.beat(WORKER, "{}")
    [held] = claim_as(app.engine, "default", 1, worker=WORKER, types=["noop"])
    task.enqueue_many([{}] * 3)
    task.using(delay=60).enqueue()
    recurring = task.using(key="k", every=60).schedule()
    task.using(queue="other").enqueue()
    assert app.queues.purge("default") == 4
    left = {job.id for job in app.jobs.search(queue="default")}
    assert left == {held.id, recurring.id}


def test_bulk_commands_spare_recurring_jobs(app: Holdfast):
    task = noop(app)
    job = task.using(key="k", every=60, entity=("feed", 7)).schedule()
    task.enqueue()
    assert app.jobs.delete_all(queue="default") == Changed(
        matched=2, changed=1, skipped={"recurring": 1}
    )
    with pytest.raises(InvalidTransition, match="recurs, and does not run now"):
        app.jobs.cancel(job.id)
    assert app.jobs.delete_all(entity=("feed", 7)).changed == 1


# why


def test_why_names_the_limit_that_a_job_waits_for(app: Holdfast):
    whole = noop(app, "whole", concurrency=1)
    keyed = noop(app, "keyed", concurrency=Limit(1, per="n"))
    paced = noop(app, "paced", rate="1/m")
    rules = {task.name: task.rule for task in (whole, keyed, paced)}
    jobs = {t.name: [t.enqueue(n=1) for _ in range(3)] for t in (whole, keyed, paced)}
    info = '{"tasks": ["whole", "keyed", "paced"], "queues": ["default"]}'
    app.engine.beat(WORKER, info)
    for _ in range(3):
        app.engine.claimer.fetch("default", 10, worker=WORKER, types=list(rules), rules=rules)
    assert app.jobs.why(jobs["whole"][2].id) == ["limit whole: 1 of 1 running, 2nd in line"]
    assert app.jobs.why(jobs["keyed"][1].id) == ["limit keyed/n=1: 1 of 1 running, 1st in line"]
    [reason] = app.jobs.why(jobs["paced"][2].id)
    assert reason.startswith("limit paced: the rate 1/m is spent for 6")
    app.queues.limit("default", 1)
    noop(app, "other")
    other = app.enqueue("other")
    app.engine.beat(WORKER, info.replace("whole", "other"))
    assert app.jobs.why(other.id) == ["limit queue:default: 3 of 1 running, 1st in line"]


@pytest.mark.parametrize("limit", [Limit(1), Limit(1, per="n")], ids=["pending", "blocked"])
def test_why_names_the_pause_and_when_it_ends(app: Holdfast, clock: FakeClock, limit: Limit):
    task = noop(app, "limited", concurrency=limit)
    _, second = task.enqueue(n=1), task.enqueue(n=1)
    app.engine.beat(WORKER, '{"tasks": ["limited"], "queues": ["default"]}')
    rules = {"limited": task.rule}
    for _ in range(2):
        app.engine.claimer.fetch("default", 10, worker=WORKER, types=["limited"], rules=rules)
    [held] = app.jobs.why(second.id)
    assert "1 of 1 running, 1st in line" in held
    app.queues.pause("default", resume_in="10m")
    ends = clock.now() + timedelta(minutes=10)
    pause = f"queue 'default' is paused since {clock.now():%Y-%m-%d %H:%M} UTC"
    resume = "'holdfast queues resume default' lets it go on"
    by_itself = f" and resumes by itself at {ends:%Y-%m-%d %H:%M:%S} UTC"
    assert app.jobs.why(second.id) == [f"{pause}{by_itself}: {resume}", held]
    app.queues.pause("default")
    assert app.jobs.why(second.id) == [f"{pause}: {resume}", held]
    app.queues.resume("default")
    assert app.jobs.why(second.id) == [held]


# what a worker makes known when it starts


def test_schedules_declared_by_tasks_are_made_and_updated(
    database: Database, clock: FakeClock, app: Holdfast
):
    noop(app, every="1h")
    declare(app)
    job = app.schedules.get("noop")
    assert (job.key, job.status, job.enabled) == (CODE, "pending", True)
    declare(app)
    assert [row.id for row in app.schedules.list()] == [job.id]
    with database.app(clock=clock) as changed:
        noop(changed, cron="0 3 * * *")
        declare(changed)
        after = changed.schedules.get("noop")
        assert (after.id, after.run_at.hour) == (job.id, 3)


def test_a_removed_schedule_is_disabled_and_enabled_when_it_returns(
    database: Database, clock: FakeClock, app: Holdfast
):
    noop(app, every="1h")
    declare(app)
    with database.app(clock=clock) as without:
        noop(without)
        declare(without)
        gone = without.schedules.get("noop")
        assert (gone.enabled, gone.disabled_because) == (False, GONE)
        without.schedules.run_now("noop")
        assert len(run(without)) == 1
    declare(app)
    assert app.schedules.get("noop").enabled


def test_an_operators_change_of_a_schedule_is_kept(app: Holdfast):
    noop(app, every="1h")
    declare(app)
    app.schedules.disable("noop")
    declare(app)
    assert not app.schedules.get("noop").enabled


def test_a_schedule_of_a_task_known_to_another_live_worker_is_unchanged(
    database: Database, clock: FakeClock, app: Holdfast
):
    noop(app, "theirs", every="1h")
    declare(app)
    app.engine.beat(WORKER, '{"tasks": ["theirs"]}')
    with database.app(clock=clock) as other:
        noop(other, "ours")
        declare(other)
        assert other.schedules.get("theirs").enabled
        other.engine.leave(WORKER)
        other.engine.sweep([_dead()], limit=1)
        declare(other)
        assert not other.schedules.get("theirs").enabled


def _dead() -> Any:
    from holdfast.engine.records import Seen

    return Seen(WORKER, None)


def test_a_removed_limit_no_longer_applies(database: Database, clock: FakeClock, app: Holdfast):
    task = noop(app, concurrency=Limit(1, per="n"))
    declare(app)
    app.limits.set("noop/n", 0)
    task.enqueue(n=1)
    assert run(app) == []
    with database.app(clock=clock) as without:
        noop(without)
        declare(without)
        assert without.limits.list() == []
        without.engine.maintenance.repair_limits(100)
        assert len(run(without)) == 1


def test_a_schedule_needs_arguments_that_the_task_does_not_have(app: Holdfast):
    with pytest.raises(InvalidInput, match="calls it without arguments"):

        @app.task(every="1h")
        def needs(n: int) -> None: ...


def test_a_start_alone_keeps_the_schedule_of_the_task(app: Holdfast, clock: FakeClock):
    task = noop(app, every="1h")
    job = task.using(key="k", start=clock.now() + timedelta(hours=2)).schedule()
    assert job.schedule == task.using(key="j").schedule().schedule != "{}"


def test_a_first_run_by_cron_is_spread_by_jitter(app: Holdfast):
    task = noop(app)
    plan = {"cron": "0 3 * * *", "jitter": "30m"}
    moments = {task.using(key=f"k{n}", **plan).schedule().run_at for n in range(5)}
    assert len(moments) == 5


def test_deleting_a_schedule_returns_the_whole_row(app: Holdfast):
    feed = noop(app).using(key="k", every=60)
    feed.schedule(n=3)
    assert app.schedules.get("noop", "k").payload == {"n": 3}
    assert feed.delete().payload == {"n": 3}


def test_a_plain_job_is_not_recurring(app: Holdfast):
    noop(app).using(key="k", delay=60).enqueue()
    script = schedule_scripts.find(app.engine.dialect, "noop", "k")
    assert app.engine.run(lambda: script, write=True) is not None
    with pytest.raises(LookupError):
        app.schedules.get("noop", "k")
