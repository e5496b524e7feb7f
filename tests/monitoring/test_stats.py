"""`app.stats()`: what there is, and what was done, agrees with what was run."""

import asyncio
from datetime import timedelta

import pytest

from holdfast import Discard, Figures, Holdfast, InvalidInput, Snooze
from holdfast.core.clock import FakeClock
from holdfast.engine.engine import Engine
from holdfast.monitoring.metrics import ERROR, KEPT, MINUTE, Point, Rollup, minute_of
from holdfast.testing import drain
from tests.conftest import Database
from tests.support.jobs import execute, insert

NOTHING = Figures()


def done(clock: FakeClock, ago: int = 0, worker: str = "w1", **counts: int) -> Rollup:
    """What a worker did so many minutes ago: each run waited for a second, and took two."""
    rollup = Rollup(minute_of(clock.now()) - ago * MINUTE, "send", "default", worker, **counts)
    ended = sum(counts.values())
    rollup.wait, rollup.run = 1.0 * ended, 2.0 * ended
    for _ in range(ended):
        rollup.waits.add(1.0)
        rollup.runs.add(2.0)
    return rollup


# what was run


def test_the_figures_of_a_worker_are_what_it_did(database: Database):
    app = database.app(backoff=0.01, poll_interval=0.1)

    @app.task(queue="mail")
    def send() -> None: ...

    @app.task(max_attempts=2)
    async def fails() -> None:
        raise ValueError

    @app.task
    def gives_up() -> None:
        raise Discard("no")

    @app.task
    def never() -> None: ...

    send.enqueue_many([{}] * 30)
    jobs = [fails.enqueue(), fails.enqueue(), gives_up.enqueue()]
    with app.worker(queues="default,mail") as worker:
        assert worker.join(20)
        while any(not app.jobs.get(job.id).completed_at for job in jobs):
            worker.join(20)
    stats = app.stats()
    found = {
        name: (one.completed, one.failed, one.retried, one.finished, one.run.count)
        for name, one in stats.by_task.items()
    }
    assert found == {
        "fails": (0, 2, 2, 2, 4),
        "gives_up": (0, 1, 0, 1, 1),
        "never": (0, 0, 0, 0, 0),
        "send": (30, 0, 0, 30, 30),
    }
    assert stats.by_task["never"] == NOTHING
    assert stats.by_queue["mail"] == stats.by_task["send"]
    assert stats.by_queue["default"].failure_rate == 1.0
    total = stats.figures
    assert (total.finished, total.failure_rate, total.per_minute) == (33, 3 / 33, 33 / 60)
    assert sum(point.finished for point in stats.series) == 33
    assert sum(point.retried for point in stats.series) == 2
    assert len(stats.series) == 60
    assert total.wait.p95 is not None
    assert total.run.average is not None
    # The rows of the worker agree with the jobs.
    [(finished,)] = execute(
        app.engine, "SELECT COUNT(*) FROM {jobs} WHERE completed_at IS NOT NULL"
    )
    assert finished == 33
    assert [share.worker_id for share in app.engine.shares(stats.series[0].at)] == [worker.id] * 2


def test_times_are_those_of_the_clock(database: Database, clock: FakeClock):
    app = database.app(clock=clock)

    @app.task
    def takes(seconds: float) -> None:
        clock.advance(seconds)

    takes.enqueue(seconds=20)
    takes.using(delay=10).enqueue(seconds=30)
    clock.advance(5)
    drain(app)  # the first waited 5 s; meanwhile the second was due, and waited 15 s
    figures = app.stats().by_task["takes"]
    assert (figures.wait.average, figures.run.average) == (10.0, 25.0)
    assert figures.wait.p50 == pytest.approx(5.0, rel=ERROR)
    assert figures.run.p95 == pytest.approx(30.0, rel=ERROR)
    first = app.stats(window="1m").series[0]
    assert (first.completed, first.wait, first.run) == (2, 10.0, 25.0)


def test_what_comes_back_is_no_end(database: Database, clock: FakeClock):
    app = database.app(clock=clock)

    @app.task(every="1h")
    def ticks() -> None:
        raise ValueError

    @app.task
    def sleeps() -> None:
        raise Snooze(60)

    sleeps.enqueue()
    job = ticks.using(key="a").schedule()
    drain(app, raise_errors=False)
    assert app.stats().by_task["sleeps"] == NOTHING
    assert app.jobs.get(job.id).consecutive_failures == 1
    ticked = app.stats().by_task["ticks"]
    assert (ticked.failed, ticked.retried) == (1, 0)  # each run ends for itself


# what was written


def test_the_rows_of_workers_and_minutes_add_up(engine: Engine, clock: FakeClock, app: Holdfast):
    rows = [
        done(clock, worker="w1", completed=5),
        done(clock, worker="w2", completed=1, failed=3, cancelled=1, retried=2),
        done(clock, ago=7, worker="w1", completed=90),
    ]
    engine.roll_up(rows)
    engine.roll_up(rows[:1])  # again, since the reply was lost
    engine.roll_up([done(clock, worker="w1", completed=6)])  # and the next state of that minute
    stats = _stats(engine, window=600)
    assert (stats.figures.completed, stats.figures.failed, stats.figures.cancelled) == (97, 3, 1)
    assert (stats.figures.finished, stats.figures.retried) == (101, 2)
    assert stats.figures.wait.count == stats.figures.run.count == 103
    assert (stats.figures.wait.average, stats.figures.run.average) == (1.0, 2.0)
    assert stats.figures.run.p50 == pytest.approx(2.0, rel=ERROR)
    assert [point.finished for point in stats.series] == [0, 0, 90, 0, 0, 0, 0, 0, 0, 11]
    start = stats.series[0].at
    assert [(share.worker_id, share.finished) for share in engine.shares(start)] == [
        ("w1", 96),
        ("w2", 5),
    ]
    assert [point.completed for point in engine.series(start, type="send")] == [90, 7]
    assert engine.series(start, type="other") == engine.series(start, queue="other") == []


def _stats(engine: Engine, window: float):  # type: ignore[no-untyped-def]
    from holdfast.monitoring.snapshot import Snapshot
    from holdfast.monitoring.stats import read_stats

    return read_stats(Snapshot(engine), window)


def _ended(points: list[Point]) -> int:
    return sum(point.completed for point in points)


def test_a_window_leaves_out_what_is_older(engine: Engine, clock: FakeClock):
    for ago in (0, 1, 59, 60, 23 * 60):
        engine.roll_up([done(clock, ago=ago, completed=1)])
    windows = {60: 1, 120: 2, 3600: 3, 3660: 4, 86400: 5}
    for _ in range(2):  # read, and then partly remembered
        assert {length: _stats(engine, length).figures.completed for length in windows} == windows
        assert {length: _ended(_stats(engine, length).series) for length in windows} == windows
    engine.roll_up([done(clock, ago=0, completed=3), done(clock, ago=1, completed=2)])
    assert _ended(_stats(engine, 86400).series) == 8
    for wrong in (59, 86401, "soon"):
        with pytest.raises(InvalidInput, match="window"):
            _stats(engine, wrong)  # type: ignore[arg-type]


def test_roll_ups_are_kept_for_a_day(engine: Engine, clock: FakeClock):
    kept = int(KEPT) // 60
    for ago in (0, kept, kept + 1, kept + 2):
        engine.roll_up([done(clock, ago=ago, worker=worker, failed=1) for worker in "ab"])
    clock.advance(30)
    assert [engine.maintenance.prune_rollups() for _ in range(4)] == [2, 2, 2, 0]
    [(left,)] = execute(engine, "SELECT COUNT(*) FROM {rollups}")
    assert left == 2


# what there is


def test_an_empty_queue_has_zeros(app: Holdfast):
    stats = app.stats()
    assert set(stats.jobs.values()) == {0}
    assert (stats.figures, stats.by_task, stats.by_queue) == (NOTHING, {}, {})
    assert (stats.oldest_pending, stats.waiting, stats.workers) == (None, {}, 0)
    assert len(stats.series) == 60
    assert {point.ended for point in stats.series} == {0}


def test_depth_and_age_by_queue(database: Database, clock: FakeClock):
    app = database.app(clock=clock)
    for number in range(80):
        insert(app.engine, priority=number)  # the last of all has waited the longest
        clock.advance(1)
    for priority in (9, 0):
        insert(app.engine, queue="bulk", priority=priority)  # the first of all has
        clock.advance(1)
    insert(app.engine, queue="mail", delay=10.0)
    clock.advance(15)
    stats = app.stats()
    assert [(queue.name, queue.depth) for queue in stats.queues] == [("bulk", 2), ("default", 80)]
    assert stats.waiting == {"bulk": 17.0, "default": 97.0, "mail": 5.0}
    assert stats.oldest_pending == 97.0
    assert len(app.engine.backlog()) == 2 + 50 + 1  # a bounded look
    assert stats.by_queue == dict.fromkeys(("bulk", "default", "mail"), NOTHING)
    assert asyncio.run(app.astats(window="5m")).waiting == stats.waiting


def test_figures_outlive_the_jobs(database: Database, clock: FakeClock):
    """They are never counted from the jobs."""
    app = database.app(clock=clock)

    @app.task
    def send() -> None: ...

    send.enqueue_many([{}] * 3)
    drain(app)
    app.jobs.delete_all(status="completed")
    assert app.stats().jobs["completed"] == 0
    assert app.stats().by_task["send"].completed == 3
    clock.advance(timedelta(hours=2).total_seconds())
    assert app.stats().by_task["send"] == NOTHING
