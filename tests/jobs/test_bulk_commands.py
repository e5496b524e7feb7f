"""Retry, cancel and delete all jobs that match a filter; edit waiting jobs; move them to a queue."""

import asyncio
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from holdfast import Holdfast, InvalidInput, InvalidTransition, Job, JobNotFound, KeyConflict, Limit
from holdfast.core.clock import FakeClock
from holdfast.core.ids import new_id
from holdfast.engine.engine import Engine
from holdfast.engine.records import Edit
from holdfast.engine.script import Script
from holdfast.jobs import commands
from holdfast.jobs.changes import Changed
from holdfast.jobs.job import Status
from holdfast.tasks.task import Task
from tests.conftest import Database
from tests.support.callers import begin, connect
from tests.support.jobs import claim, execute, in_status, insert, running


@pytest.fixture
def app(database: Database, clock: FakeClock) -> Holdfast:
    return database.app(clock=clock)


@pytest.fixture
def send(app: Holdfast) -> Task[..., Any]:
    @app.task(retention={"cancelled": "1h"})
    def send(n: int = 1) -> None: ...

    return send


def parked(app: Holdfast) -> Job:
    """A job that waits for capacity under a limit, and the one that uses it."""

    @app.task(concurrency=Limit(1, per="n"))
    def narrow(n: int) -> None: ...

    narrow.enqueue(1)
    job = narrow.enqueue(1)
    app.engine.beat("w", "{}")
    rules = {"narrow": narrow.rule}
    app.engine.declare(list(narrow.rule.declared))
    found = app.engine.claimer.fetch("default", 5, worker="w", types=["narrow"], rules=rules)
    assert [one.status for one in found.jobs] == ["running"]
    assert app.jobs.get(job.id).status == "blocked"
    return job


# all that match


def test_all_matching_jobs_are_changed_and_skipped_ones_counted_by_reason(
    app: Holdfast, send: Task[..., Any], clock: FakeClock
) -> None:
    engine = app.engine
    jobs = {
        status: in_status(engine, status, queue=f"q-{status}")
        for status in Status
        if status is not Status.BLOCKED
    }
    waits = parked(app)
    held = next(app.jobs.search(type="narrow", status="running"))
    feed = send.using(key="feed", every=60, queue="feeds").schedule()
    in_status(engine, Status.FAILED, key="k")
    insert(engine, key="k", queue="elsewhere")
    retried = app.jobs.retry_all(everything=True)
    assert retried.skipped == {"running": 2, "blocked": 1, "recurring": 1, "key live again": 1}
    assert (retried.matched, retried.changed) == (12, 7)
    for status in (Status.FAILED, Status.RETRYING, Status.CANCELLED, Status.COMPLETED):
        after = app.jobs.get(jobs[status].id)
        assert (after.status, after.attempts, after.error) == ("pending", 0, None)
    cancelled = app.jobs.cancel_all(everything=True)
    assert cancelled.skipped == {"recurring": 1, "finished": 1}
    assert cancelled.changed == 10
    assert app.jobs.get(waits.id).status == "cancelled"
    assert app.jobs.get(held.id).cancel_requested
    assert app.jobs.get(feed.id).status in ("scheduled", "pending")
    assert app.jobs.get(waits.id).keep_until == clock.now() + timedelta(days=7)
    assert app.jobs.get(jobs[Status.FAILED].id).keep_until == clock.now() + timedelta(hours=1)
    deleted = app.jobs.delete_all(everything=True)
    assert (deleted.changed, deleted.skipped) == (11, {"recurring": 1})
    assert [job.id for job in app.jobs.search()] == [feed.id]
    assert app.jobs.delete_all(key="feed") == Changed(matched=1, changed=1)
    assert app.jobs.count() == 0


def test_batches_report_their_progress(
    app: Holdfast, send: Task[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.jobs.changes.BATCH", 3)
    send.enqueue_many([{}] * 8)
    seen: list[Changed] = []
    app.jobs.cancel_all(type="send", limit=7, progress=seen.append)
    assert [(one.matched, one.changed) for one in seen] == [(3, 3), (6, 6), (7, 7)]
    assert app.jobs.count(status="pending") == 1

    async def twins() -> list[int]:
        retried = await app.jobs.aretry_all(status="cancelled", progress=seen.append)
        cancelled = await app.jobs.acancel_all(status="pending")
        deleted = await app.jobs.adelete_all(everything=True)
        return [retried.changed, cancelled.changed, deleted.changed]

    assert asyncio.run(twins()) == [7, 8, 8]
    assert seen[-1].changed == 7


def test_jobs_that_left_the_requested_status_are_skipped(engine: Engine) -> None:
    """Between a look at the rows and the change, others may have moved them."""
    jobs = {status: in_status(engine, status, queue=f"q-{status}") for status in Status}
    ids = [job.id for job in jobs.values()]
    change = partial(commands.cancel, engine.dialect, ids, 60.0, {Status.PENDING, Status.FAILED})
    assert engine.run(change, write=True) == [jobs[Status.PENDING].id]
    again = partial(commands.retry, engine.dialect, ids, {Status.FAILED})
    assert engine.run(again, write=True) == [jobs[Status.FAILED].id]
    gone = partial(commands.delete, engine.dialect, ids, {Status.FAILED, Status.COMPLETED})
    assert engine.run(gone, write=True) == [jobs[Status.COMPLETED].id]


def test_a_racing_enqueue_with_the_same_key_fails_no_batch(
    app: Holdfast, send: Task[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index refuses a whole batch; then each is tried by itself."""
    keyed = [send.using(key=f"k{n}").enqueue() for n in range(3)]
    app.jobs.cancel_all(type="send")

    def racing(dialect: Any, ids: Sequence[str], only: Any = ()) -> Script[list[str]]:
        if len(ids) > 1 or ids == [keyed[1].id]:
            raise KeyConflict("raced")
        return real(dialect, ids, only)

    real = commands.retry
    monkeypatch.setattr(commands, "retry", racing)
    retried = app.jobs.retry_all(status="cancelled")
    assert (retried.matched, retried.changed) == (3, 2)
    assert retried.skipped == {"key live again": 1}


# edit


def test_edit_changes_the_order_the_time_and_the_queue(
    app: Holdfast, send: Task[..., Any], clock: FakeClock
) -> None:
    first, second = send.enqueue(), send.enqueue()
    edited = app.jobs.edit(second.id, priority=5)
    assert (edited.priority, edited.rank, edited.status) == (5, -5, "pending")
    later = send.enqueue()
    assert app.jobs.edit(later.id, delay="10m").status == "scheduled"
    assert app.jobs.get(later.id).run_at == clock.now() + timedelta(minutes=10)
    assert [job.id for job in claim(app.engine, 5)] == [second.id, first.id]
    moved = app.jobs.edit(later.id, queue="media", run_at=clock.now())
    assert (moved.status, moved.queue) == ("pending", "media")
    assert [job.id for job in claim(app.engine, 5, queue="media")] == [later.id]
    retrying = in_status(app.engine, Status.RETRYING, queue="r")
    assert app.jobs.edit(retrying.id, delay=60).status == "retrying"
    assert app.engine.next_due() == 60.0
    assert app.jobs.edit(retrying.id, delay=0).status == "pending"
    paused = send.enqueue()
    app.queues.pause("held")
    asyncio.run(app.jobs.aedit(paused.id, queue="held"))
    assert claim(app.engine, 5) == claim(app.engine, 5, queue="held") == []


def test_parked_and_recurring_jobs_can_be_edited(
    app: Holdfast, send: Task[..., Any], clock: FakeClock
) -> None:
    job = parked(app)
    edited = app.jobs.edit(job.id, priority=3, queue="media", delay=0)
    assert (edited.status, edited.queue, edited.rank) == ("blocked", "media", -3)
    assert app.jobs.edit(job.id, delay=60).status == "scheduled"
    feed = send.using(key="feed", every=60).schedule()
    assert app.jobs.edit(feed.id, priority=2, queue="media").queue == "media"
    with pytest.raises(InvalidTransition, match=r"recurs: app\.schedules\.reschedule\(\)"):
        app.jobs.edit(feed.id, delay=5)
    assert app.jobs.get(feed.id).run_at == feed.run_at


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (Status.RUNNING, "is running, and can be edited only while it waits: cancel it, or wait"),
        (Status.COMPLETED, "is completed, and can be edited only while it waits: retry it"),
        (Status.FAILED, "is failed"),
        (Status.CANCELLED, "is cancelled"),
    ],
)
def test_an_edit_of_a_running_or_finished_job_is_refused(
    app: Holdfast, status: Status, words: str
) -> None:
    job = in_status(app.engine, status)
    with pytest.raises(InvalidTransition, match=words):
        app.jobs.edit(job.id, priority=5)
    assert app.jobs.get(job.id) == app.jobs.get(job.id)
    assert app.jobs.get(job.id).priority == 0
    with pytest.raises(JobNotFound):
        app.jobs.edit(new_id(), priority=5)


def test_edit_is_fenced_against_a_claim(app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was pending when it was looked at, and is claimed before it is edited."""
    job = insert(app.engine)
    real = commands.edit

    def slow(dialect: Any, id: str, change: Edit) -> Script[list[str]]:
        execute(
            app.engine, "UPDATE {jobs} SET status = 'running', claim_no = 1 WHERE id = :id", id=id
        )
        return real(dialect, id, change)

    if app.url.startswith("sqlite"):
        running(app.engine, queue="other")
        [held] = claim(app.engine)
        with pytest.raises(InvalidTransition, match="is running"):
            app.jobs.edit(held.id, queue="media")
        return
    monkeypatch.setattr(commands, "edit", slow)
    with pytest.raises(InvalidTransition, match="is running"):
        app.jobs.edit(job.id, queue="media")
    assert app.jobs.get(job.id).queue == "default"


def test_bulk_commands_run_in_a_transaction(
    app: Holdfast, database: Database, send: Task[..., Any]
) -> None:
    job = send.enqueue()
    with closing(connect(database)) as mine:
        begin(mine)
        app.jobs.edit(job.id, priority=9, tx=mine)
        assert app.jobs.get(job.id, tx=mine).priority == 9
        assert app.jobs.cancel_all(type="send", tx=mine).changed == 1
        mine.rollback()
    after = app.jobs.get(job.id)
    assert (after.priority, after.status) == (0, "pending")


def test_an_edit_of_an_aging_job_keeps_its_age(database: Database, clock: FakeClock) -> None:
    app = database.app(clock=clock, aging="1m")
    send = app.task(name="send")(lambda: None)
    job = send.enqueue()
    assert app.jobs.edit(job.id, priority=2).rank == job.rank - 2 * 60_000_000
    assert app.jobs.edit(job.id, delay=5).rank == job.rank - 2 * 60_000_000 + 5_000_000
    other = database.app(clock=clock)
    with pytest.raises(InvalidInput, match="ages by a setting that is not known here"):
        other.jobs.edit(job.id, priority=3)
    assert other.jobs.edit(job.id, delay=0, queue="media").rank == job.rank - 2 * 60_000_000
