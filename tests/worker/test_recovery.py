"""Claims that were lost, jobs that killed their process, workers that were declared dead."""

import asyncio
import os
import signal
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from holdfast import Context, Holdfast, Job
from holdfast.engine.records import Seen
from holdfast.worker.liveness import claim_watch
from holdfast.worker.processes import isolation
from tests.conftest import Database
from tests.support.engine_commands import claim_as
from tests.support.jobs import insert
from tests.support.waiting import PATIENCE, finished, until
from tests.worker.conftest import LOOK, quick


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """For jobs with deaths on record an embedded worker looks every two seconds."""
    monkeypatch.setattr(isolation, "_EMBEDDED_LOOK", 0.2)


def test_a_claim_whose_reply_was_lost_is_released(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database says that the worker holds it, and the worker knows nothing of it. (Within 15 s;
    here with shorter waits.)"""
    assert claim_watch._ORPHAN <= claim_watch._IDLE_LOOK  # the second look gives it back
    assert 2 * (claim_watch._IDLE_LOOK + LOOK) < 15
    monkeypatch.setattr(claim_watch, "_IDLE_LOOK", 0.2)
    monkeypatch.setattr(claim_watch, "_ORPHAN", 0.5)
    app.migrate()
    with app.worker() as worker:
        name = until(lambda: worker.id)
        job = insert(app.engine, "works")  # the worker does not know it yet
        [claimed] = claim_as(app.engine, "default", 1, worker=str(name), types=["works"])
        assert claimed.id == job.id

        @app.task
        def works(n: int) -> int:
            return n

        done = finished(app, job)
    assert (done.status, done.attempts, done.claim_no) == ("completed", 1, 2)


def make_suspect(app: Holdfast, type: str = "suspect", *, deaths: int = 1, **fields: Any) -> Job:
    """Make a job whose workers died. If its task is not registered yet, no worker can claim it
    meanwhile."""
    job = insert(app.engine, type, **fields)
    for number in range(deaths):
        name = f"{job.id}-{number}"
        app.engine.beat(name, "{}")
        options: dict[str, Any] = {"worker": name, "types": [type]}
        taken = claim_as(app.engine, job.queue, 1, **options)
        assert taken or app.engine.claimer.claim_suspects([job.queue], 1, level=number, **options)
        app.engine.sweep([Seen(name, None)], limit=10)
    assert (job.queue, type, min(deaths, 3)) in [one[:3] for one in app.engine.suspects()]
    return job


def test_a_suspect_of_one_death_runs_beside_others(app: Holdfast) -> None:
    """All of them at the same time, and nothing waits for them."""
    go = threading.Event()
    jobs = [make_suspect(app) for _ in range(5)]

    @app.task
    def suspect(ctx: Context, n: int) -> None:
        assert go.wait(PATIENCE)

    @app.task
    def quick() -> None: ...

    with app.worker():
        until(lambda: app.jobs.count(type="suspect", status="running") == 5)
        for _ in range(3):
            finished(app, quick.enqueue())
        go.set()
        done = [finished(app, job) for job in jobs]
    assert [(job.status, job.deaths, job.attempts) for job in done] == [("completed", 0, 1)] * 5
    assert app.engine.suspects() == []


def test_at_most_seventeen_suspects_of_one_death_share_an_embedded_worker(app: Holdfast) -> None:
    go = asyncio.Event()
    jobs = [make_suspect(app) for _ in range(20)]
    most: list[int] = []

    @app.task
    async def suspect(n: int) -> None:
        most.append(app.jobs.count(status="running"))
        while not go.is_set():
            await asyncio.sleep(0.01)

    with app.worker():
        until(lambda: len(most) == 17)
        assert app.jobs.count(type="suspect", status="pending") == 3
        go.set()
        for job in jobs:
            assert finished(app, job).status == "completed"
    assert max(most) <= 17


def test_a_busy_lane_gives_its_next_slot_to_a_suspect(app: Holdfast) -> None:
    """Ordinary jobs that wait in numbers must not take every slot that becomes free."""

    @app.task
    async def steady() -> None:
        await asyncio.sleep(0.5)

    with app.worker(queues="default=1"):
        steady.enqueue_many([{}] * 100)
        until(lambda: app.jobs.count(type="steady", status="running") == 1)
        job = make_suspect(app)

        @app.task
        def suspect(n: int) -> None: ...

        assert finished(app, job).status == "completed"
        assert app.jobs.count(type="steady", status="pending") > 50


# two deaths and more, where no other process can import the task: these are defined in functions


def test_a_job_that_no_other_process_can_import_runs_alone(app: Holdfast) -> None:
    told: list[tuple[str, str]] = []
    app.on("started", "completed")(lambda event: told.append((event.job.type, event.kind)))
    job = make_suspect(app, deaths=2)

    @app.task
    async def after() -> None: ...

    @app.task
    def suspect(ctx: Context, n: int) -> int:
        after.enqueue_many([{}] * 3)  # a hint to look for work
        ctx.wait(3 * app.settings.poll_interval)  # and time enough to take it
        return app.jobs.count(status="running")

    with app.worker():
        assert finished(app, job).result == 1
        until(lambda: app.jobs.count(type="after", status="completed") == 3)
    begin, end = told.index(("suspect", "started")), told.index(("suspect", "completed"))
    assert end == begin + 1


def test_a_lone_suspect_does_not_block_others_during_a_long_run(app: Holdfast) -> None:
    started, go = threading.Event(), threading.Event()

    @app.task
    def long() -> None:
        started.set()
        assert go.wait(PATIENCE)

    @app.task
    async def quick() -> None: ...

    with app.worker():
        first = long.enqueue()
        assert started.wait(PATIENCE)
        job = make_suspect(app, deaths=3)

        @app.task
        def suspect(n: int) -> None: ...

        for _ in range(5):
            finished(app, quick.enqueue())
        assert app.jobs.get(job.id).status == "pending", "a run goes on beside it"
        go.set()
        assert finished(app, job).status == "completed"
        finished(app, first)


def test_a_lone_suspect_runs_even_if_other_runs_never_end(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "_PATIENCE", 1.0)
    started, go = threading.Event(), threading.Event()

    @app.task
    def long() -> None:
        started.set()
        assert go.wait(PATIENCE)

    with app.worker():
        first = long.enqueue()
        assert started.wait(PATIENCE)
        job = make_suspect(app, deaths=2)

        @app.task
        def suspect(n: int) -> None: ...

        assert finished(app, job).status == "completed"
        assert app.jobs.get(first.id).status == "running"
        go.set()
        finished(app, first)


def test_other_jobs_run_between_two_lone_suspects(app: Holdfast) -> None:
    """For as long as the lone one took: what is quick waits for one of them, not for all."""
    order: list[str] = []
    jobs = [make_suspect(app, deaths=2) for _ in range(2)]

    @app.task
    async def steady() -> None:
        order.append("steady")
        await asyncio.sleep(0.1)

    @app.task
    def suspect(ctx: Context, n: int) -> None:
        if "suspect" not in order:
            steady.enqueue_many([{}] * 100)
        order.append("suspect")
        ctx.wait(1.0)

    with app.worker(queues="default=2"):
        for job in jobs:
            finished(app, job)
    first, second = (place for place, one in enumerate(order) if one == "suspect")
    assert second - first > 5, order


# two deaths and more, where another process can import it


@pytest.mark.parametrize("kind", ["plain", "asynchronous"])
@pytest.mark.parametrize("deaths", [2, 3])
def test_an_importable_job_runs_in_a_process_of_its_own(
    processes: ModuleType, kind: str, deaths: int
) -> None:
    app = processes.app
    job = make_suspect(app, kind, deaths=deaths)
    with app.worker():
        done = finished(app, job)
        beside = finished(app, app.enqueue(kind, {"n": 2}))
    assert (done.status, done.deaths, done.attempts) == ("completed", 0, 1)
    assert done.result != os.getpid()
    assert beside.result == os.getpid(), "the next job is an ordinary one again"


@pytest.mark.parametrize("kind", ["plain_poison", "asynchronous_poison"])
def test_an_importable_poison_job_is_quarantined_and_its_worker_survives(
    processes: ModuleType, kind: str
) -> None:
    """Its process is waited for, so that its crashes count."""
    app = processes.app
    quick = [app.enqueue("plain", {"n": n}) for n in range(5)]
    job = make_suspect(app, kind, deaths=2)
    with app.worker():
        done = finished(app, job)
        assert [finished(app, one).status for one in quick] == ["completed"] * 5
    assert done.status == "failed"
    assert str(done.error).startswith("Quarantined: its process died 3 times under it")
    assert "SIGSEGV" in str(done.error)
    assert done.crashes == 2, "the third one fails it"


def test_a_job_in_a_process_of_its_own_keeps_its_timeout(processes: ModuleType) -> None:
    app = processes.app
    job = make_suspect(app, "asynchronous_sleep", deaths=2, timeout=0.5, max_attempts=1)
    with app.worker():
        done = finished(app, job)
    assert (done.status, done.error) == ("failed", "TimeoutError: timed out after 0.5 s")


def test_a_handler_process_killed_from_outside_counts_no_crash(processes: ModuleType) -> None:
    """The kernel has not killed it: its number of kills for want of memory stays."""
    app = processes.app
    job = processes.patient.using(max_attempts=1).enqueue()
    with app.worker() as worker:
        for number in range(1, 5):
            until(lambda: app.jobs.get(job.id).claim_no == number)  # noqa: B023
            pid = until(lambda: (processes.FOLDER / f"pid-{number}").exists() and worker.pids())  # noqa: B023
            for one in pid:
                os.kill(one, signal.SIGKILL)
            until(lambda: app.jobs.get(job.id).deaths == number)  # noqa: B023
        (processes.FOLDER / "go").touch()
        done = finished(app, job)
    assert (done.status, done.crashes, done.deaths, done.attempts) == ("completed", 0, 0, 1)
    assert {attempt.error for attempt in app.jobs.attempts(job.id)} == {"its process died: SIGKILL"}


def test_a_suspect_of_a_paused_queue_blocks_no_other_job(app: Holdfast) -> None:
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
    [claimed] = claim_as(app.engine, "default", 1, worker="w", types=["works"])
    app.engine.record_verdict(claimed.claim, "TimeoutError: its thread never returned")
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
    [claimed] = claim_as(app.engine, "default", 1, worker="w", types=["works"])
    app.engine.record_verdict(claimed.claim, "TimeoutError: never returned")
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
    assert done.deaths == 0
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
        claimed = claim_as(app.engine, "default", 1, worker=name, types=[kind])
        claimed += app.engine.claimer.claim_suspects(["default"], 1, worker=name, types=[kind])
        assert [one.id for one in claimed] == [job.id]
        app.engine.sweep([Seen(name, None, None, "its process died: SIGSEGV")], limit=10)
    with app.worker():
        done = finished(app, job)
    assert (done.status, runs) == ("failed", [])
    assert str(done.error).startswith("Quarantined: its process died 3 times")
    assert "SIGSEGV" in str(done.error)
    assert told == [(True, done.error)]


@pytest.mark.parametrize("kind", ["async", "def"])
def test_a_worker_that_was_declared_dead_drops_its_runs_and_registers_again(
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
