"""Claims that were lost, jobs that killed their process, workers that were declared dead."""

import asyncio
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from holdfast import Context, Holdfast, Job
from holdfast.engine import Seen
from holdfast.worker import dispatcher, watch
from tests.conftest import Database
from tests.support.jobs import insert
from tests.worker.conftest import LOOK, quick
from tests.worker.moments import PATIENCE, finished, until


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """For jobs that must run alone a worker looks every two seconds."""
    monkeypatch.setattr(dispatcher, "_SUSPECTS", 0.2)


def test_a_claim_whose_reply_was_lost_is_given_back(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database says that the worker holds it, and the worker knows nothing of it. (Within 15 s;
    here with shorter waits.)"""
    assert watch._ORPHAN <= watch._IDLE_LOOK  # the second look gives it back
    assert 2 * (watch._IDLE_LOOK + LOOK) < 15
    monkeypatch.setattr(watch, "_IDLE_LOOK", 0.2)
    monkeypatch.setattr(watch, "_ORPHAN", 0.5)
    app.migrate()
    with app.worker() as worker:
        name = until(lambda: worker.id)
        job = insert(app.engine, "works")  # the worker does not know it yet
        [claimed] = app.engine.claim("default", 1, worker=str(name), types=["works"])
        assert claimed.id == job.id

        @app.task
        def works(n: int) -> int:
            return n

        done = finished(app, job)
    assert (done.status, done.attempts, done.claim_no) == ("completed", 1, 2)


def make_suspect(app: Holdfast, **fields: Any) -> Job:
    """A job whose worker died. Its task is not registered yet: nobody can have taken it meanwhile."""
    job = insert(app.engine, "suspect", **fields)
    app.engine.beat("w", "{}")
    app.engine.claim(job.queue, 1, worker="w", types=["suspect"])
    app.engine.sweep([Seen("w", None)], limit=10)
    assert app.engine.suspects() == [(job.queue, "suspect")]
    return job


def count_calls(app: Holdfast, verb: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each call of an engine's verb."""
    calls: list[int] = []
    real = getattr(app.engine, verb)

    def counted() -> Any:
        calls.append(1)
        return real()

    monkeypatch.setattr(app.engine, verb, counted)
    return calls


def test_a_suspect_runs_alone(app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits until what runs has ended, and nothing begins beside it."""
    looks = count_calls(app, "next_due", monkeypatch)  # one for each look around
    started, go = threading.Event(), threading.Event()
    told: list[tuple[str, str]] = []
    app.on("started", "completed")(lambda event: told.append((event.job.type, event.kind)))

    @app.task
    def before() -> None:
        started.set()
        assert go.wait(PATIENCE)

    @app.task
    async def after() -> None: ...

    first = before.enqueue()
    with app.worker():
        assert started.wait(PATIENCE)
        job = make_suspect(app)

        @app.task
        def suspect(ctx: Context, n: int) -> int:
            after.enqueue_many([{}] * 3)  # a hint to look for work
            ctx.wait(3 * app.settings.poll_interval)  # and time enough to take it
            return app.jobs.count(status="running")

        seen = len(looks)
        until(lambda: len(looks) >= seen + 4)
        assert app.jobs.get(job.id).status == "pending"
        go.set()
        assert finished(app, job).result == 1
        until(lambda: app.jobs.count(type="after", status="completed") == 3)
        finished(app, first)
    begin, end = told.index(("suspect", "started")), told.index(("suspect", "completed"))
    assert end == begin + 1
    assert told.index(("before", "completed")) < begin
    assert app.engine.suspects() == []


def test_a_suspect_of_a_paused_queue_stops_nobody(app: Holdfast) -> None:
    @app.task
    def other() -> None: ...

    job = make_suspect(app, queue="media")
    app.queues.pause("media")

    @app.task
    def suspect(n: int) -> None: ...

    with app.worker(queues="default,media"):
        for _ in range(3):
            finished(app, other.enqueue())
        assert app.jobs.get(job.id).status == "pending"
        app.queues.resume("media")
        finished(app, job)


def test_a_verdict_is_recorded_by_the_next_claim_without_a_run(app: Holdfast) -> None:
    """A supervisor killed the worker for this job: it left word, and the hook hears of it."""
    runs: list[int] = []
    told: list[Any] = []

    @app.task(on_failure=lambda end: told.append((end.error, end.final)))
    def works(ctx: Context) -> str:
        runs.append(ctx.attempt)
        return "done"

    job = works.enqueue()
    app.engine.beat("w", "{}")
    [claimed] = app.engine.claim("default", 1, worker="w", types=["works"])
    app.engine.sentence(claimed.claim, "TimeoutError: its thread never returned")
    app.engine.sweep([Seen("w", None)], limit=10)
    with app.worker():
        done = finished(app, job)
    assert (done.status, done.attempts, done.result) == ("completed", 2, "done")
    assert runs == [2]
    [attempt] = app.jobs.attempts(job.id)
    assert (attempt.attempt, attempt.error) == (1, "TimeoutError: its thread never returned")
    assert told == [("TimeoutError: its thread never returned", False)]


def test_a_verdict_on_the_last_attempt_is_final(app: Holdfast) -> None:
    told: list[Any] = []

    @app.task(on_failure=lambda end: told.append(end.final), max_attempts=1)
    async def works() -> None: ...

    job = works.enqueue()
    app.engine.beat("w", "{}")
    [claimed] = app.engine.claim("default", 1, worker="w", types=["works"])
    app.engine.sentence(claimed.claim, "TimeoutError: never returned")
    app.engine.sweep([Seen("w", None)], limit=10)
    with app.worker():
        done = finished(app, job)
    assert (done.status, done.error, told) == ("failed", "TimeoutError: never returned", [True])


def test_a_job_whose_process_died_three_times_is_quarantined(processes: ModuleType) -> None:
    app = processes.app
    told: list[Any] = []
    app.on("retrying", "failed")(lambda event: told.append(event.kind))
    job = processes.crashes.using(max_attempts=1).enqueue()
    with app.worker():
        done = finished(app, job)
        until(lambda: "failed" in told)
        assert finished(app, processes.where.enqueue(size=processes.Size(1))).status == "completed"
    assert done.status == "failed"
    assert str(done.error).startswith("Quarantined: its process died 3 times under it")
    assert "exit code 9" in str(done.error)
    assert [end.final for end in processes.ends] == [False, False, True]
    assert processes.ends[-1].error == done.error
    assert told == ["retrying", "retrying", "failed"]
    assert len(app.jobs.attempts(job.id)) == 3


def test_a_job_whose_process_died_once_runs_again_without_spending_an_attempt(
    processes: ModuleType,
) -> None:
    app = processes.app
    job = processes.crashes_once.using(max_attempts=1).enqueue()
    with app.worker():
        done = finished(app, job)
    assert (done.status, done.result, done.attempts, done.crashes) == ("completed", "done", 1, 1)
    assert list(app.settings.workdir.iterdir()) == [], "the folder of the run that died is left"


@pytest.mark.parametrize("kind", ["async", "def"])
def test_a_job_that_killed_three_workers_is_quarantined_without_a_run(
    app: Holdfast, kind: str
) -> None:
    runs: list[int] = []
    told: list[Any] = []

    @app.task(name="async", on_failure=lambda end: told.append((end.final, end.error)))
    async def asynchronous() -> None:
        runs.append(1)

    @app.task(name="def", on_failure=lambda end: told.append((end.final, end.error)))
    def plain() -> None:
        runs.append(1)

    job = app.enqueue(kind)
    for name in ("w1", "w2", "w3"):
        app.engine.beat(name, "{}")
        claimed = app.engine.claim("default", 1, worker=name, types=[kind])
        claimed += app.engine.claim_suspect(["default"], worker=name, types=[kind])
        assert [one.id for one in claimed] == [job.id]
        app.engine.sweep([Seen(name, None)], limit=10)
    with app.worker():
        done = finished(app, job)
    assert (done.status, runs) == ("failed", [])
    assert str(done.error).startswith("Quarantined: its process died 3 times")
    assert told == [(True, done.error)]


@pytest.mark.parametrize("kind", ["async", "def"])
def test_a_worker_that_was_declared_dead_drops_its_runs_and_begins_anew(
    database: Database, tmp_path: Path, kind: str
) -> None:
    app = quick(database, tmp_path, heartbeat=0.5)
    started, stopped = threading.Event(), threading.Event()

    @app.task(name="async")
    async def asynchronous(ctx: Context) -> str:
        if ctx.job.claim_no > 1:
            return "fresh"
        started.set()
        try:
            await asyncio.sleep(600)
        finally:
            stopped.set()
        return "stale"

    @app.task(name="def")
    def plain(ctx: Context) -> str:
        if ctx.job.claim_no > 1:
            return "fresh"
        started.set()
        ctx.wait(600)
        stopped.set()
        return "stale"

    with app.worker() as worker:
        job = app.enqueue(kind)
        assert started.wait(PATIENCE)
        name = str(worker.id)
        app.engine.sweep([Seen(name, None)], limit=10)
        done = finished(app, job)
        assert stopped.wait(PATIENCE)
        assert (done.status, done.result) == ("completed", "fresh")
        assert worker.id not in (None, name)
        assert done.worker_id == worker.id
