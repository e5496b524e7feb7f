"""Which jobs a worker takes, in which order, and how many at a time."""

import asyncio
import threading
import time
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest

from holdfast import Context, Holdfast, InvalidInput
from holdfast.core.ids import new_id
from holdfast.jobs.job import NewJob
from tests.support.waiting import PATIENCE, finished, until


def test_unregistered_types_are_not_claimed_and_block_nothing(app: Holdfast) -> None:
    @app.task
    def known(n: int) -> int:
        return n

    unknown = [
        NewJob(id=new_id(), type=f"unknown-{number % 3}", payload="{}", priority=9)
        for number in range(100)
    ]
    app.engine.insert(unknown)
    jobs = [known.enqueue(number) for number in range(20)]
    with app.worker(concurrency=2):
        assert [finished(app, job).result for job in jobs] == list(range(20))
    assert app.jobs.count(status="pending") == 100
    assert {job.attempts for job in app.jobs.search(status="pending")} == {0}


def test_jobs_run_by_priority_then_age(app: Holdfast) -> None:
    order: list[str] = []

    @app.task
    def runs(name: str) -> None:
        order.append(name)

    for name, priority in [("c", 0), ("a", 5), ("d", 0), ("e", -3), ("b", 5)]:
        last = runs.using(priority=priority).enqueue(name)
    with app.worker(concurrency=1):
        until(lambda: len(order) == 5)
        finished(app, last)
    assert order == ["a", "b", "c", "d", "e"]


def test_a_paused_queue_stops_until_it_is_resumed(app: Holdfast) -> None:
    @app.task(queue="media")
    def paused() -> None: ...

    @app.task
    def other() -> None: ...

    app.queues.pause("media")
    job = paused.enqueue()
    with app.worker(queues="media,default"):
        for _ in range(3):  # each is a look at every lane
            finished(app, other.enqueue())
        assert app.jobs.get(job.id).status == "pending"
        app.queues.resume("media")
        assert finished(app, job).status == "completed"


def test_a_worker_serves_only_its_queues(app: Holdfast) -> None:
    @app.task
    def runs() -> None: ...

    elsewhere = runs.using(queue="elsewhere").enqueue()
    with app.worker(queues=["default", "media"]):
        finished(app, runs.enqueue())
        finished(app, runs.using(queue="media").enqueue())
    assert app.jobs.get(elsewhere.id).status == "pending"


@pytest.mark.parametrize("size", [1, 3])
def test_all_kinds_together_never_use_more_than_the_slots(processes: ModuleType, size: int) -> None:
    app = processes.app
    lock = threading.Lock()
    now: list[int] = [0]
    seen: list[int] = []
    running: list[int] = []

    def moved(event: Any) -> None:
        with lock:
            now[0] += 1 if event.kind == "started" else -1
            seen.append(now[0])

    app.on("started", "completed")(moved)

    @app.task
    async def on_loop() -> None:
        running.append(app.jobs.count(status="running"))
        await asyncio.sleep(0.02)

    @app.task
    def in_thread() -> None:
        running.append(app.jobs.count(status="running"))
        time.sleep(0.02)

    jobs = [task.enqueue() for _ in range(5) for task in (on_loop, in_thread)]
    jobs += [processes.where.enqueue(size=processes.Size(1)) for _ in range(size)]
    with app.worker(queues=f"default={size}"):
        for job in jobs:
            finished(app, job)
    assert max(seen) == size
    assert max(running) <= size


def test_a_full_queue_does_not_keep_another_from_working(app: Holdfast) -> None:
    go, full = threading.Event(), threading.Event()

    @app.task(queue="media")
    def blocks() -> None:
        full.set()
        assert go.wait(PATIENCE)

    @app.task
    def runs() -> None: ...

    blocked = [blocks.enqueue() for _ in range(3)]
    with app.worker(queues={"media": 1, "default": 1}):
        assert full.wait(PATIENCE)
        for _ in range(3):
            finished(app, runs.enqueue())
        assert [app.jobs.get(job.id).status for job in blocked] == ["running", "pending", "pending"]
        go.set()
        for job in blocked:
            finished(app, job)


def test_a_full_lane_does_not_keep_another_kind_from_working(app: Holdfast) -> None:
    """By default ten threads, and a hundred coroutines beside them."""
    go, full = threading.Event(), threading.Barrier(11)

    @app.task
    def blocks(n: int) -> None:
        if n < 10:
            full.wait(PATIENCE)
        assert go.wait(PATIENCE)

    @app.task
    async def runs() -> None: ...

    blocked = [blocks.enqueue(number) for number in range(15)]
    with app.worker():
        full.wait(PATIENCE)
        for _ in range(3):
            finished(app, runs.enqueue())
        assert app.jobs.count(status="running") == 10
        go.set()
        for job in blocked:
            finished(app, job)


def test_a_free_slot_is_used_immediately(app: Holdfast) -> None:
    """Not only at the next poll: a hundred jobs, one after the other, with a slow poll."""

    @app.task
    def runs() -> None: ...

    jobs = runs.enqueue_many([{}] * 100)
    begin = time.monotonic()
    with app.worker(concurrency=1):
        for job in jobs:
            finished(app, job)
    assert time.monotonic() - begin < 100 * app.settings.poll_interval / 2


def test_a_scheduled_job_runs_when_it_is_due_and_not_before(app: Holdfast) -> None:
    @app.task
    def runs() -> None: ...

    later = runs.using(delay="1h").enqueue()
    job = runs.using(delay=0.4).enqueue()
    with app.worker():
        done = finished(app, job)
    assert done.started_at is not None
    assert done.started_at - done.created_at >= timedelta(seconds=0.4)
    assert app.jobs.get(later.id).status == "scheduled"


@pytest.mark.parametrize("queues", ["default=zero", "default=0", "", {"default": -1}, "de fault\n"])
def test_invalid_queues_are_refused(queues: Any) -> None:
    with Holdfast("sqlite:///never-opened.db") as app, pytest.raises(InvalidInput):
        app.worker(queues=queues)


def test_two_workers_share_the_work_and_run_nothing_twice(app: Holdfast) -> None:
    runs: list[str] = []

    @app.task
    def works(ctx: Context) -> None:
        runs.append(ctx.job.id)
        time.sleep(0.002)

    jobs = works.enqueue_many([{}] * 200)
    with app.worker(concurrency=4) as one, app.worker(concurrency=4) as two:
        until(lambda: app.jobs.count(status="completed") == 200)
        names = {one.id, two.id}
    assert sorted(runs) == sorted(job.id for job in jobs)
    assert {job.worker_id for job in app.jobs.search()} == names
