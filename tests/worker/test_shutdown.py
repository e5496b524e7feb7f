"""`stop()`: what runs may end within the grace period, the rest is given back unharmed."""

import asyncio
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from holdfast import Context, Holdfast, HoldfastError
from holdfast.worker.processes.pool import TERM_TO_KILL
from holdfast.worker.running.execution import Execution, Stop
from holdfast.worker.running.runners import AsyncRunner
from tests.support.waiting import PATIENCE, finished, is_alive, pids_in, until

GRACE = 0.3


def test_running_jobs_may_end_within_the_grace_period(app: Holdfast) -> None:
    started, go = threading.Barrier(3), threading.Event()

    @app.task
    def in_thread() -> str:
        started.wait(PATIENCE)
        assert go.wait(PATIENCE)
        return "done"

    @app.task
    async def on_loop() -> str:
        await asyncio.to_thread(started.wait, PATIENCE)
        await asyncio.to_thread(go.wait, PATIENCE)
        return "done"

    @app.task
    def later() -> None: ...

    jobs = [in_thread.enqueue(), on_loop.enqueue()]
    worker = app.worker()
    worker.start()
    started.wait(PATIENCE)
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    until(lambda: worker._stopped)
    waiting = later.enqueue()  # nothing is claimed any more
    go.set()
    stopping.join(PATIENCE)
    assert [app.jobs.get(job.id).result for job in jobs] == ["done", "done"]
    assert app.jobs.get(waiting.id).status == "pending"


def test_running_coroutines_are_released_without_spending_the_attempt(app: Holdfast) -> None:
    started, cancelled = threading.Semaphore(0), threading.Semaphore(0)
    told: list[str] = []
    app.on("released", "failed", "retrying")(lambda event: told.append(event.kind))

    @app.task(on_failure=lambda end: told.append("hook"))
    async def sleeps(ctx: Context) -> None:
        started.release()
        try:
            await asyncio.sleep(600)
        finally:
            cancelled.release()

    jobs = [sleeps.enqueue() for _ in range(3)]
    worker = app.worker(grace=GRACE)
    worker.start()
    for _ in jobs:
        assert started.acquire(timeout=PATIENCE)
    begin = time.monotonic()
    assert worker.stop() is True
    assert GRACE <= time.monotonic() - begin < GRACE + 1.0
    for job in jobs:
        assert cancelled.acquire(timeout=0)
        now = app.jobs.get(job.id)
        assert (now.status, now.attempts, now.worker_id) == ("pending", 0, None)
    assert told == ["released"] * 3


def test_released_jobs_run_again(app: Holdfast) -> None:
    started = threading.Event()

    @app.task(max_attempts=1)
    async def sleeps(ctx: Context) -> int:
        started.set()
        if ctx.job.claim_no == 1:
            await asyncio.sleep(600)
        return ctx.attempt

    job = sleeps.enqueue()
    with app.worker(grace=0):
        assert started.wait(PATIENCE)
    with app.worker():
        done = finished(app, job)
    assert (done.status, done.result, done.attempts, done.claim_no) == ("completed", 1, 1, 2)


@pytest.mark.parametrize("why", [Stop.SILENT, Stop.CANCELLED])
@pytest.mark.parametrize("early", [True, False])
def test_a_coroutine_stopped_before_its_start_is_released(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch, early: bool, why: Stop
) -> None:
    """The job was claimed: if its end were not recorded, it would be running for ever."""
    start = AsyncRunner._start
    struck: list[Execution] = []

    def strike(runner: AsyncRunner, executions: Sequence[Execution]) -> None:
        first = not struck
        struck.extend(executions)
        if first and early:
            executions[0].stop(why)
        start(runner, executions)
        if first and not early:
            executions[0].stop(why)

    monkeypatch.setattr(AsyncRunner, "_start", strike)

    @app.task
    async def quick() -> str:
        return "done"

    job = quick.enqueue()
    with app.worker():
        done = finished(app, job)
    if why is Stop.CANCELLED:
        assert (done.status, done.claim_no) == ("cancelled", 1)
    else:
        assert (done.status, done.attempts, done.claim_no) == ("completed", 1, 2)


def test_a_thread_that_checks_the_stop_request_is_released(app: Holdfast) -> None:
    started = threading.Event()

    @app.task
    def looks(ctx: Context) -> None:
        started.set()
        while not ctx.wait(30):
            pass
        raise RuntimeError("interrupted")

    job = looks.enqueue()
    worker = app.worker(grace=GRACE)
    worker.start()
    assert started.wait(PATIENCE)
    assert worker.stop() is True
    now = app.jobs.get(job.id)
    assert (now.status, now.attempts, now.error) == ("pending", 0, None)


def test_a_thread_that_checks_the_stop_request_and_returns_is_released(app: Holdfast) -> None:
    """What it returns then is no result: it gave up."""
    started = threading.Event()

    @app.task
    def looks(ctx: Context) -> dict[str, int]:
        started.set()
        while not ctx.wait(30):
            pass
        ctx.enqueue(after)
        return {}

    @app.task
    def after() -> None: ...

    job = looks.enqueue()
    with app.worker(grace=GRACE):
        assert started.wait(PATIENCE)
    now = app.jobs.get(job.id)
    assert (now.status, now.attempts, now.result) == ("pending", 0, None)
    assert app.jobs.count() == 1


def test_a_thread_that_did_not_check_the_stop_request_has_completed(app: Holdfast) -> None:
    started = threading.Event()

    @app.task
    def works(ctx: Context) -> str:
        ctx.progress(50)
        started.set()
        ctx._stop.wait(PATIENCE)
        return "all of it"

    job = works.enqueue()
    with app.worker(grace=GRACE):
        assert started.wait(PATIENCE)
    now = app.jobs.get(job.id)
    assert (now.status, now.result) == ("completed", "all of it")


def test_a_process_is_ended_and_its_job_released(processes: ModuleType, tmp_path: Path) -> None:
    app = processes.app
    job = processes.starts_children.enqueue()
    worker = app.worker(grace=0)
    worker.start()
    until((tmp_path / "pids").exists)
    pids = pids_in(tmp_path)
    begin = time.monotonic()
    assert worker.stop() is True
    assert time.monotonic() - begin < TERM_TO_KILL  # it was not waited for
    now = app.jobs.get(job.id)
    assert (now.status, now.attempts) == ("pending", 0)
    until(lambda: not any(map(is_alive, pids)))


def test_a_thread_that_does_not_return_keeps_its_job_and_delays_no_shutdown(
    app: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    """It may still do something: its job must not be given to another while it lives."""
    started, go = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    @app.task
    def blocks(ctx: Context) -> None:
        threads.append(threading.current_thread())
        started.set()
        assert go.wait(PATIENCE)

    job = blocks.enqueue()
    worker = app.worker(grace=GRACE)
    worker.start()
    assert started.wait(PATIENCE)
    name = worker.id
    begin = time.monotonic()
    assert worker.stop() is False
    took = time.monotonic() - begin
    now = app.jobs.get(job.id)
    go.set()
    threads[0].join(PATIENCE)
    assert GRACE <= took < GRACE + 1.5  # a second, and what closing takes on a busy machine
    assert (now.status, now.attempts, now.worker_id) == ("running", 1, name)
    assert "1 jobs did not end within the grace period" in caplog.text


def test_a_run_that_ends_late_but_before_the_worker_leaves_is_recorded(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the worker would be waited for by others, as one that may still do something."""
    started, go = threading.Event(), threading.Event()

    @app.task
    def blocks(ctx: Context) -> None:
        started.set()
        assert go.wait(PATIENCE)

    blocks.enqueue()
    worker = app.worker(grace=0.0)
    worker.start()
    assert started.wait(PATIENCE)
    close = worker._pruner.close

    def meanwhile(patience: float) -> None:
        go.set()
        until(lambda: not worker.executions())
        close(patience)

    monkeypatch.setattr(worker._pruner, "close", meanwhile)
    assert worker.stop() is True
    [info] = app.engine.workers()
    assert None not in (info.left_at, info.died_at)


def test_a_stopped_worker_is_deregistered_and_not_declared_dead(app: Holdfast) -> None:
    with app.worker() as worker:
        until(lambda: worker.id)
        name = worker.id
        assert app.stats().workers == 1
    [info] = [info for info in app.engine.workers() if info.id == name]
    assert info.left_at is not None
    assert app.stats().workers == 0


def test_a_worker_is_stopped_when_its_block_raises(app: Holdfast) -> None:
    def fails() -> None:
        with app.worker() as worker:
            until(lambda: worker.id)
            raise ValueError("in the block")

    with pytest.raises(ValueError, match="in the block"):
        fails()


def test_stopping_twice_is_fine_and_starting_twice_is_not(app: Holdfast) -> None:
    worker = app.worker()
    assert worker.stop() is True  # never started
    worker.start()
    with pytest.raises(HoldfastError, match="make a new one"):
        worker.start()
    until(lambda: worker.id)
    assert worker.stop() is True
    assert worker.stop() is True


def test_a_worker_may_be_stopped_before_its_start(app: Holdfast) -> None:
    """It leaves no thread, and no row that says that it lives."""
    app.migrate()
    for _ in range(10):
        worker = app.worker()
        worker.start()
        assert worker.stop() is True
    until(lambda: not [t for t in threading.enumerate() if t.name.startswith("holdfast-start")])
    assert app.stats().workers == 0


class LateReplies:
    """Claims are committed, and the worker hears of them when the test says so."""

    def __init__(self, app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
        self.committed, self.go = threading.Event(), threading.Event()
        fetch = app.engine.claimer.fetch

        def fetch_late(*args: Any, **options: Any) -> Any:
            found = fetch(*args, **options)
            if found[0]:
                self.committed.set()
                assert self.go.wait(PATIENCE)
            return found

        monkeypatch.setattr(app.engine.claimer, "fetch", fetch_late)


def test_jobs_of_a_claim_in_flight_run_before_the_worker_leaves(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were given back while they began: another worker could run them at the same time."""
    ran: list[str] = []

    @app.task
    def quick(ctx: Context) -> None:
        ran.append(ctx.job.status)

    replies = LateReplies(app, monkeypatch)
    job = quick.enqueue()
    worker = app.worker(grace=PATIENCE)
    worker.start()
    assert replies.committed.wait(PATIENCE)
    ended: list[bool] = []
    stopping = threading.Thread(target=lambda: ended.append(worker.stop()))
    stopping.start()
    until(lambda: worker._dispatcher._pausing)
    stopping.join(1.5)  # longer than all that a stop does beside waiting for what runs
    assert app.jobs.get(job.id).status == "running"
    replies.go.set()
    stopping.join(PATIENCE)
    assert (app.jobs.get(job.id).status, len(ran), ended) == ("completed", 1, [True])


def test_jobs_of_a_claim_answered_after_the_stop_are_released(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    @app.task
    def quick(ctx: Context) -> None:
        ran.append(ctx.job.id)

    replies = LateReplies(app, monkeypatch)
    job = quick.enqueue()
    worker = app.worker(grace=0.0)
    worker.start()
    assert replies.committed.wait(PATIENCE)
    assert worker.stop() is False
    assert app.jobs.get(job.id).status == "running"
    replies.go.set()
    now = until(lambda: (found := app.jobs.get(job.id)).status == "pending" and found)
    assert now.attempts == 0
    worker._dispatcher._thread.join(PATIENCE)
    assert ran == []
