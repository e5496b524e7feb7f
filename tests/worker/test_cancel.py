"""A running job that is cancelled or deleted hears of it within a second."""

import asyncio
import logging
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from holdfast import Context, Holdfast, JobNotFound
from holdfast.worker.liveness import claim_watch
from tests.support.waiting import PATIENCE, finished, is_alive, pids_in, until
from tests.worker.conftest import LOOK

KINDS = ["async", "def", "process"]


class Sleeper:
    """A task of one kind that waits to be told to stop: how to see that it runs, and that it ended."""

    def __init__(self, app: Holdfast, kind: str, folder: Path) -> None:
        self.app = app
        self.name = {"process": "starts_children"}.get(kind, kind)
        self.started, self.ended = threading.Event(), threading.Event()
        self._pids = folder / "pids"
        if kind == "async":
            self.add_async()
        if kind == "def":
            self.add_def()

    def add_async(self) -> None:
        @self.app.task(name="async", on_failure=lambda end: pytest.fail("on_failure was called"))
        async def sleeps(ctx: Context) -> None:
            self.started.set()
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                self.ended.set()
                raise

    def add_def(self) -> None:
        @self.app.task(name="def", on_failure=lambda end: pytest.fail("on_failure was called"))
        def sleeps(ctx: Context) -> None:
            self.started.set()
            if ctx.wait(600):
                self.ended.set()

    def begin(self) -> Any:
        """A job of it that runs."""
        self.started.clear()
        self.ended.clear()
        self._pids.unlink(missing_ok=True)
        job = self.app.enqueue(self.name)
        if self.name != "starts_children":
            assert self.started.wait(PATIENCE)
        else:
            until(self._pids.exists)
        return job

    def seconds_to_end(self) -> float:
        begin = time.monotonic()
        if self.name != "starts_children":
            assert self.ended.wait(PATIENCE)
        else:
            pids = pids_in(self._pids.parent)
            until(lambda: not any(map(is_alive, pids)))
        return time.monotonic() - begin


@pytest.fixture(params=KINDS)
def sleeper(
    request: pytest.FixtureRequest, app: Holdfast, processes: ModuleType, tmp_path: Path
) -> Sleeper:
    place = processes.app if request.param == "process" else app
    return Sleeper(place, request.param, tmp_path)


def test_a_running_job_that_is_cancelled_stops_within_a_second(
    sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_watch, "LOOK", LOOK)
    app = sleeper.app
    told: list[str] = []
    app.on("cancelled", "failed", "retrying", "completed")(lambda event: told.append(event.kind))
    times = []
    with app.worker(concurrency=1):
        for _ in range(3):  # the machine may be busy: once is enough
            job = sleeper.begin()
            assert app.jobs.cancel(job.id).status == "running"
            times.append(sleeper.seconds_to_end())
            done = finished(app, job)
            assert (done.status, done.error, done.result) == ("cancelled", None, None)
            assert done.completed_at is not None
            assert app.jobs.attempts(job.id) == []
            if times[-1] < 1.0:
                break
    assert min(times) < 1.0
    assert told == ["cancelled"] * len(times)


def test_a_running_job_that_is_deleted_ends_quietly(
    sleeper: Sleeper, caplog: pytest.LogCaptureFixture
) -> None:
    app = sleeper.app
    told: list[str] = []
    app.on("cancelled", "failed", "retrying", "completed")(lambda event: told.append(event.kind))

    @app.task
    def free() -> None: ...

    with app.worker(concurrency=1):
        job = sleeper.begin()
        app.jobs.delete(job.id)
        sleeper.seconds_to_end()
        assert finished(app, free.enqueue()).status == "completed"  # its slot is free again
    with pytest.raises(JobNotFound):
        app.jobs.get(job.id)
    assert told == ["completed"]
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("kind", ["async", "def"])
def test_a_handler_that_returns_despite_the_cancel_has_completed(app: Holdfast, kind: str) -> None:
    """It did not look, or had only a little left to do."""
    started, go = threading.Event(), threading.Event()

    @app.task(name="async")
    async def asynchronous(ctx: Context) -> str:
        started.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            return "done"
        return "never"

    @app.task(name="def")
    def plain(ctx: Context) -> str:
        started.set()
        assert go.wait(PATIENCE)
        return "done"

    with app.worker():
        job = app.enqueue(kind)
        assert started.wait(PATIENCE)
        app.jobs.cancel(job.id)
        go.set()
        done = finished(app, job)
    assert (done.status, done.result) == ("completed", "done")


def test_a_cancelled_run_that_fails_is_cancelled_and_not_retried(app: Holdfast) -> None:
    started = threading.Event()
    runs: list[int] = []

    @app.task
    def fails(ctx: Context) -> None:
        runs.append(1)
        started.set()
        ctx.wait(600)
        raise ValueError("in the middle of it")

    with app.worker():
        job = fails.enqueue()
        assert started.wait(PATIENCE)
        app.jobs.cancel(job.id)
        assert finished(app, job).status == "cancelled"
    assert runs == [1]


def test_jobs_enqueued_by_a_cancelled_run_never_exist(app: Holdfast) -> None:
    started = threading.Event()

    @app.task
    def child() -> None: ...

    @app.task
    def parent(ctx: Context) -> None:
        ctx.enqueue(child)
        started.set()
        ctx.wait(600)

    with app.worker():
        job = parent.enqueue()
        assert started.wait(PATIENCE)
        app.jobs.cancel(job.id)
        assert finished(app, job).status == "cancelled"
    assert app.jobs.count(type="child") == 0
