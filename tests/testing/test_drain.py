"""`drain` runs due jobs in the thread of the test, through the real engine."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Context, Event, Holdfast, HoldfastError, Job, Middleware, Retry, RunEnd, Snooze
from holdfast.testing import FakeClock, JobFailed, adrain, drain
from tests.conftest import Database
from tests.support.jobs import execute, new

Drain = Callable[..., list[Job]]


@pytest.fixture
def app(database: Database, clock: FakeClock, tmp_path: Path) -> Holdfast:
    return database.app(clock=clock, backoff=60, workdir=tmp_path / "work")


@pytest.fixture(params=["sync", "async"])
def run(request: pytest.FixtureRequest) -> Drain:
    """`drain`, or `adrain` on an event loop."""

    def run_async(app: Holdfast, **options: Any) -> list[Job]:
        return asyncio.run(adrain(app, **options))

    return drain if request.param == "sync" else run_async


def test_due_jobs_and_the_jobs_that_they_enqueue_run(app: Holdfast, run: Drain) -> None:
    @app.task(queue="other")
    def leaf(n: int) -> int:
        return n * 10

    @app.task
    async def branch(ctx: Context, n: int) -> str:
        ctx.enqueue(leaf, n=n)
        await leaf.aenqueue(n=n + 1)
        return "branched"

    @app.task
    def later() -> None: ...

    job = branch.enqueue(1)
    waiting = later.using(delay="1h").enqueue()
    ran = run(app)
    assert [(one.type, one.status, one.result) for one in ran] == [
        ("branch", "completed", "branched"),
        ("leaf", "completed", 10),
        ("leaf", "completed", 20),
    ]
    assert (ran[0].id, app.jobs.get(waiting.id).status) == (job.id, "scheduled")
    assert run(app) == []


def test_the_clock_of_the_application_decides_what_is_due(
    app: Holdfast, clock: FakeClock, run: Drain
) -> None:
    @app.task
    def later() -> None: ...

    later.using(delay="1h").enqueue()
    clock.advance(3599)
    assert run(app) == []
    clock.advance(1)
    assert [job.status for job in run(app)] == ["completed"]


def test_the_first_failure_is_raised_after_it_was_written(app: Holdfast, run: Drain) -> None:
    @app.task
    def fails(n: int) -> None:
        raise LookupError(f"number {n}")

    first, second = fails.enqueue(1), fails.enqueue(2)
    with pytest.raises(LookupError, match="number 1") as caught:
        run(app)
    assert caught.value.__notes__ == [f"raised by job {first.id} (fails), attempt 1"]
    now = app.jobs.get(first.id)
    assert (now.status, now.error) == ("retrying", "LookupError: number 1")
    assert app.jobs.get(second.id).status == "pending"


def test_retries_run_when_they_are_due(app: Holdfast, clock: FakeClock, run: Drain) -> None:
    @app.task(max_attempts=2)
    async def fails() -> None:
        raise LookupError("no")

    job = fails.enqueue()
    assert [one.status for one in run(app, raise_errors=False)] == ["retrying"]
    assert run(app, raise_errors=False) == []
    clock.advance(60)
    assert [one.status for one in run(app, raise_errors=False)] == ["failed"]
    assert len(app.jobs.attempts(job.id)) == 2


def test_a_snooze_is_no_failure_and_a_retry_is_one(
    app: Holdfast, clock: FakeClock, run: Drain
) -> None:
    @app.task
    def waits(ctx: Context) -> None:
        if ctx.job.claim_no == 1:
            raise Snooze(5)
        if ctx.attempt == 1:
            raise Retry("again", after=5)

    waits.enqueue()
    assert [job.status for job in run(app)] == ["scheduled"]
    clock.advance(5)
    with pytest.raises(Retry, match="again"):
        run(app)
    clock.advance(5)
    assert [job.status for job in run(app)] == ["completed"]


def test_failures_without_an_exception_are_raised_by_name(app: Holdfast, run: Drain) -> None:
    @app.task
    def returns() -> Any:
        return object()

    job = returns.enqueue()
    with pytest.raises(JobFailed, match=rf"{job.id} \(returns\): .* cannot be written as JSON"):
        run(app)


def test_hooks_middleware_events_and_folders_are_as_in_a_worker(
    database: Database, tmp_path: Path, run: Drain
) -> None:
    seen: list[Any] = []

    class Diary(Middleware):
        def run(self, ctx: Context, proceed: Callable[[], Any]) -> Any:
            seen.append("run")
            return proceed()

        async def arun(self, ctx: Context, proceed: Callable[[], Any]) -> Any:
            seen.append("arun")
            return await proceed()

    app = database.app(middleware=[Diary()], workdir=tmp_path / "work")
    app.on()(lambda event: seen.append(event.kind))

    async def ahook(end: RunEnd) -> None:
        await asyncio.sleep(0)
        seen.append(("ahook", end.result))

    @app.task(on_success=lambda end: seen.append(("hook", end.result)))
    def plain(ctx: Context) -> int:
        (ctx.workdir / "file").write_text("x")
        ctx.progress(70, "on the way")
        return 1

    @app.task(on_success=ahook)
    async def asynchronous() -> int:
        return 2

    plain.enqueue()
    [job] = run(app)
    asynchronous.enqueue()
    run(app)
    assert seen == [
        *["enqueued", "started", "run", ("hook", 1), "completed"],
        *["enqueued", "started", "arun", ("ahook", 2), "completed"],
    ]
    assert (job.progress, job.message) == (70, "on the way")
    assert list(app.settings.workdir.iterdir()) == []


def test_a_hook_that_fails_is_a_failure(app: Holdfast, run: Drain) -> None:
    async def breaks(end: RunEnd) -> None:
        raise ValueError("the hook")

    @app.task(on_success=breaks)
    def works() -> None: ...

    works.enqueue()
    with pytest.raises(JobFailed, match="ValueError: the hook"):
        run(app)


def test_a_completion_on_its_own_transaction(
    app: Holdfast, database: Database, clock: FakeClock
) -> None:
    told: list[Event] = []
    app.on("completed", "retrying")(told.append)

    @app.task
    def works(ctx: Context, commits: bool) -> None:
        if database.kind == "sqlite":
            mine: Any = sqlite3.connect(database.path)
        else:
            mine = psycopg.connect(database.url)
        ctx.complete("written", tx=mine)
        if commits:
            mine.commit()
        mine.close()

    works.enqueue(commits=True)
    assert [(job.status, job.result) for job in drain(app)] == [("completed", "written")]
    works.enqueue(commits=False)
    [job] = drain(app, raise_errors=False)
    assert (job.status, str(job.error).startswith("RolledBack")) == ("retrying", True)
    assert [event.kind for event in told] == ["completed", "retrying"]


def test_priorities_and_pauses_apply_and_unknown_types_are_skipped(
    app: Holdfast, run: Drain
) -> None:
    @app.task
    def works(name: str) -> str:
        return name

    app.engine.insert([new("unknown", priority=99)])
    works.enqueue("low")
    works.using(priority=1).enqueue("high")
    works.using(queue="paused").enqueue("never")
    app.queues.pause("paused")
    assert [job.result for job in run(app)] == ["high", "low"]
    assert app.jobs.count(status="pending") == 2


def test_a_suspect_is_run_too(app: Holdfast, run: Drain) -> None:
    @app.task
    def works() -> None: ...

    works.enqueue()
    execute(app.engine, "UPDATE {jobs} SET suspect = CAST(1 AS boolean)")
    assert [job.status for job in run(app)] == ["completed"]


def test_a_drain_without_end_raises(app: Holdfast, run: Drain) -> None:
    @app.task
    def again(ctx: Context) -> None:
        ctx.enqueue(again)

    again.enqueue()
    with pytest.raises(HoldfastError, match="after 7 runs there is still work to do"):
        run(app, limit=7)
    assert app.jobs.count(status="completed") == 7
    assert app.jobs.count(status="running") == 0


def test_def_handlers_run_in_this_thread_and_coroutines_on_this_loop(app: Holdfast) -> None:
    @app.task
    def thread() -> int:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        return threading.get_ident()

    loops: list[Any] = []

    @app.task
    async def loop() -> int:
        loops.append(asyncio.get_running_loop())
        return threading.get_ident()

    thread.enqueue()
    loop.enqueue()
    assert [job.result for job in drain(app)] == [threading.get_ident()] * 2

    async def host() -> None:
        await loop.aenqueue()
        await thread.aenqueue()
        ran = await adrain(app)
        assert loops[-1] is asyncio.get_running_loop()
        assert (ran[0].result, ran[1].result == threading.get_ident()) == (
            threading.get_ident(),
            False,
        )
        with pytest.raises(HoldfastError, match="await adrain"):
            drain(app)

    asyncio.run(host())


def test_a_drain_leaves_no_worker_in_the_database(app: Holdfast, run: Drain) -> None:
    @app.task
    def fails() -> None:
        raise ValueError

    fails.enqueue()
    with pytest.raises(ValueError):  # noqa: PT011
        run(app)
    assert app.stats().workers == 0
