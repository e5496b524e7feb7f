"""A run past its timeout: a coroutine is cancelled, a process killed with all that it started, and a
thread, which cannot be ended, is reported."""

import asyncio
import json
import threading
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from holdfast import Context, Holdfast
from holdfast.worker.processes import pool as process_runner
from tests.support.waiting import finished, is_alive, pids_in, until, wait_for_status

ERROR = "TimeoutError: timed out after 0.3 s"


def test_a_coroutine_is_cancelled_and_the_job_retried(app: Holdfast) -> None:
    saw: list[str] = []

    @app.task(timeout=0.3, max_attempts=2)
    async def sleeps(ctx: Context) -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            saw.append(f"attempt {ctx.attempt} {ctx.cancelled}")
            raise

    job = sleeps.enqueue()
    with app.worker():
        done = finished(app, job)
    assert (done.status, done.attempts, done.error) == ("failed", 2, ERROR)
    assert saw == ["attempt 1 True", "attempt 2 True"]
    assert [(a.error, a.trace) for a in app.jobs.attempts(job.id)] == [(ERROR, None)] * 2


def test_a_coroutine_that_returns_after_its_cancellation_has_timed_out(app: Holdfast) -> None:
    @app.task(timeout=0.3, max_attempts=1)
    async def sleeps() -> str:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(600)
        return "done"

    with app.worker():
        done = finished(app, sleeps.enqueue())
    assert (done.status, done.error, done.result) == ("failed", ERROR, None)


def test_a_coroutine_that_continues_is_cancelled_again(app: Holdfast) -> None:
    cancels: list[int] = []

    @app.task(timeout=0.3, max_attempts=1)
    async def stubborn() -> None:
        while len(cancels) < 2:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                cancels.append(1)

    with app.worker():
        assert finished(app, stubborn.enqueue()).error == ERROR
    assert len(cancels) == 2


def test_a_timeout_can_be_permanent(app: Holdfast) -> None:
    @app.task(timeout=0.3, discard_on=TimeoutError)
    async def sleeps() -> None:
        await asyncio.sleep(600)

    with app.worker():
        done = finished(app, sleeps.enqueue())
    assert (done.status, done.attempts) == ("failed", 1)


def test_a_job_may_override_its_tasks_timeout(app: Holdfast) -> None:
    @app.task(timeout=0.3, max_attempts=1)
    async def sleeps(seconds: float) -> None:
        await asyncio.sleep(seconds)

    with app.worker():
        longer = sleeps.using(timeout="10s").enqueue(0.6)
        without = sleeps.using(timeout=None).enqueue(0.6)
        shorter = sleeps.using(timeout=0.1).enqueue(600)
        assert finished(app, shorter).error == "TimeoutError: timed out after 0.1 s"
        assert finished(app, longer).status == "completed"
        assert finished(app, without).status == "completed"


def test_a_thread_stays_running_and_is_marked_stuck_until_it_returns(
    app: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    started, release = threading.Event(), threading.Event()
    contexts: list[Context] = []

    @app.task(timeout=0.3, max_attempts=2)
    def blocks(ctx: Context) -> str:
        contexts.append(ctx)
        ctx.progress(40, "working")
        started.set()
        if ctx.attempt == 1:
            assert release.wait(60)
        return "done"

    job = blocks.enqueue()
    with app.worker() as worker:
        assert started.wait(10)
        assert not contexts[0].cancelled
        now = until(lambda: _stuck(app, job.id))
        assert (now.status, now.attempts) == ("running", 1)
        assert contexts[0].cancelled
        [shown] = json.loads(worker.info())["jobs"]
        assert (shown["id"], shown["stuck"]) == (job.id, True)
        assert app.jobs.attempts(job.id) == []
        release.set()
        done = finished(app, job)
    assert (done.status, done.attempts, done.result) == ("completed", 2, "done")
    assert [attempt.error for attempt in app.jobs.attempts(job.id)] == [ERROR]
    assert f"job {job.id} (blocks) is stuck" in caplog.text


def _stuck(app: Holdfast, id: str) -> Any:
    job = app.jobs.get(id)
    return job if str(job.message).startswith("stuck: past its timeout") else None


def test_a_thread_that_checks_the_stop_request_ends_in_time(app: Holdfast) -> None:
    @app.task(timeout=0.3, max_attempts=1)
    def looks(ctx: Context) -> str:
        while not ctx.wait(30):
            pass
        return "told"

    job = looks.enqueue()
    with app.worker():
        done = finished(app, job)
    assert (done.status, done.error, done.result) == ("failed", ERROR, None)
    assert done.message is None, "it was stuck"


@pytest.fixture
def warm(processes: ModuleType) -> Any:
    """A running worker whose one handler process is there already, so that short timeouts do."""
    with processes.app.worker(concurrency=1):
        job = processes.where.enqueue(size=processes.Size(1))
        finished(processes.app, job)
        yield processes


def test_a_process_is_ended_with_its_child_processes(warm: ModuleType, tmp_path: Path) -> None:
    app = warm.app
    job = warm.starts_children.using(timeout=1.5).enqueue()
    until((tmp_path / "pids").exists)
    handler, *grandchildren = pids_in(tmp_path)
    assert [is_alive(pid) for pid in (handler, *grandchildren)] == [True] * 3
    done = finished(app, job)
    assert (done.status, done.error) == ("failed", "TimeoutError: timed out after 1.5 s")
    until(lambda: not any(map(is_alive, (handler, *grandchildren))), "the end of all processes")
    assert (tmp_path / "cleaned-up").exists(), "its finally block did not run"
    assert list(app.settings.workdir.iterdir()) == []
    again = warm.where.enqueue(size=warm.Size(2))
    assert finished(app, again).result["pid"] != handler


def test_a_process_that_ignores_sigterm_is_killed(
    warm: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_runner, "TERM_TO_KILL", 0.5)
    job = warm.stubborn.using(timeout=1).enqueue()
    until((tmp_path / "pids").exists)
    [handler] = pids_in(tmp_path)
    done = wait_for_status(warm.app, job, "failed")
    assert (done.error, done.crashes) == ("TimeoutError: timed out after 1 s", 0)
    until(lambda: not is_alive(handler))
    assert list(warm.app.settings.workdir.iterdir()) == [], "its folder is left"
