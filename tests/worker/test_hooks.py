"""Hooks: called before the end of a run is written, and able to write it themselves."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from holdfast import Context, Discard, Holdfast, RunEnd, Snooze
from holdfast.worker.running import hooks
from tests.conftest import Database
from tests.support import engine_commands
from tests.support.callers import find
from tests.support.jobs import execute
from tests.support.waiting import PATIENCE, finished, until


@pytest.fixture(params=["sync", "async"])
def hook(request: pytest.FixtureRequest) -> Callable[[Callable[[RunEnd], Any]], Any]:
    """Makes a hook of either kind from a function."""

    def make(function: Callable[[RunEnd], Any]) -> Any:
        async def asynchronous(end: RunEnd) -> None:
            await asyncio.sleep(0)
            function(end)

        return function if request.param == "sync" else asynchronous

    return make


def test_the_success_hook_runs_before_the_finish_is_written(app: Holdfast, hook: Any) -> None:
    seen: list[Any] = []

    def look(end: RunEnd) -> None:
        row = app.jobs.get(end.job.id)
        seen.append((end.job.id, end.result, end.error, end.final, end.retry_in, row.status))

    @app.task(on_success=hook(look), on_failure=lambda end: seen.append("failure"))
    def works(n: int) -> tuple[int, str]:
        return n, "two"

    job = works.enqueue(1)
    with app.worker():
        assert finished(app, job).status == "completed"
    assert seen == [(job.id, (1, "two"), None, True, None, "running")]


def test_the_failure_hook_runs_for_every_failed_run_with_its_outcome(
    app: Holdfast, hook: Any
) -> None:
    seen: list[Any] = []

    def look(end: RunEnd) -> None:
        assert "in fails" in str(end.trace)
        seen.append((end.job.attempts, end.error, end.final, end.retry_in))

    @app.task(on_failure=hook(look), on_success=lambda end: seen.append("success"), backoff=0.1)
    async def fails(ctx: Context) -> None:
        raise ValueError(f"attempt {ctx.attempt}")

    with app.worker():
        assert finished(app, fails.enqueue()).status == "failed"
    assert seen == [
        (1, "ValueError: attempt 1", False, 0.1),
        (2, "ValueError: attempt 2", False, 0.1),
        (3, "ValueError: attempt 3", True, None),
    ]


def test_a_snooze_is_neither_success_nor_failure(app: Holdfast) -> None:
    seen: list[str] = []

    @app.task(
        on_success=lambda end: seen.append("success"),
        on_failure=lambda end: seen.append("failure"),
    )
    def waits(ctx: Context) -> None:
        if ctx.job.claim_no < 3:
            raise Snooze(0.05)

    with app.worker():
        finished(app, waits.enqueue())
    assert seen == ["success"]


@pytest.mark.parametrize("error", [ValueError("the hook"), SystemExit(2)])
def test_a_success_whose_hook_fails_is_a_failure(
    app: Holdfast, hook: Any, error: BaseException
) -> None:
    seen: list[Any] = []

    def breaks(end: RunEnd) -> None:
        if end.job.attempts == 1:
            raise error

    @app.task(on_success=hook(breaks), on_failure=lambda end: seen.append((end.error, end.final)))
    async def works() -> str:
        return "done"

    job = works.enqueue()
    with app.worker():
        done = finished(app, job)
        assert finished(app, works.enqueue()).attempts == 2  # the loop goes on
    assert (done.status, done.attempts, done.result) == ("completed", 2, "done")
    [attempt] = app.jobs.attempts(job.id)
    assert str(error) in str(attempt.error)
    assert seen == [(attempt.error, False)] * 2


def test_a_hook_that_raises_discard_makes_the_failure_permanent(app: Holdfast) -> None:
    def breaks(end: RunEnd) -> None:
        raise Discard("not wanted")

    @app.task(on_success=breaks)
    def works() -> None: ...

    with app.worker():
        done = finished(app, works.enqueue())
    assert (done.status, done.attempts, done.error) == ("failed", 1, "Discard: not wanted")


def test_a_failing_failure_hook_is_retried_and_then_abandoned(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hooks, "_PAUSES", (0.01, 0.01))
    calls: list[str] = []

    def breaks(end: RunEnd) -> None:
        calls.append(end.job.payload["name"])
        if end.job.payload["name"] == "always" or len(calls) < 2:
            raise ValueError("the hook")

    @app.task(on_failure=breaks, max_attempts=1)
    def fails(name: str) -> None:
        raise LookupError("the handler")

    with app.worker():
        for name in ("once", "always"):
            done = finished(app, fails.enqueue(name))
            assert (done.status, done.error) == ("failed", "LookupError: the handler")
    assert calls == ["once"] * 2 + ["always"] * 3
    assert "on_failure failed 3 times and was given up" in caplog.text


def test_a_slow_hook_does_not_delay_other_jobs(app: Holdfast) -> None:
    go, waits = threading.Event(), threading.Event()

    def slow(end: RunEnd) -> None:
        waits.set()
        assert go.wait(PATIENCE)

    @app.task(on_success=slow)
    async def first() -> None: ...

    @app.task
    async def second() -> None: ...

    job = first.enqueue()
    with app.worker():
        assert waits.wait(PATIENCE)
        finished(app, second.enqueue())
        assert app.jobs.get(job.id).status == "running"
        go.set()
        finished(app, job)


# finish(tx=)


class Own:
    """A table of the application's."""

    def __init__(self, app: Holdfast, database: Database) -> None:
        app.migrate()
        self.database = database
        self.engine = app.engine
        self.name = "own" if database.kind == "sqlite" else f"{database.schema}.own"
        execute(self.engine, f"CREATE TABLE {self.name} (name text)")

    def rows(self) -> list[str]:
        return [row[0] for row in execute(self.engine, f"SELECT name FROM {self.name}")]

    def connect(self) -> Any:
        if self.database.kind == "sqlite":
            return sqlite3.connect(self.database.path, timeout=30)
        return psycopg.connect(self.database.url)


@pytest.fixture
def own(app: Holdfast, database: Database) -> Own:
    return Own(app, database)


def test_a_hook_writes_the_end_with_its_own_row(app: Holdfast, own: Own) -> None:
    """Retries and the end: the application's rows and the job never disagree."""

    def record(end: RunEnd) -> None:
        mine = own.connect()
        word = "done" if end.error is None else "final" if end.final else "again"
        mine.execute(f"INSERT INTO {own.name} VALUES ('{word}')")
        end.finish(tx=mine)
        assert app.jobs.get(end.job.id).status == "running", "seen before the commit"
        mine.commit()
        assert (
            app.jobs.get(end.job.id).status
            == {
                "done": "completed",
                "final": "failed",
                "again": "retrying",
            }[word]
        )
        mine.close()

    @app.task(on_success=record, on_failure=record, max_attempts=2)
    def works(ctx: Context, fails: int) -> str:
        if ctx.attempt <= fails:
            raise ValueError
        return "result"

    told: list[str] = []
    app.on("completed", "retrying", "failed")(lambda event: told.append(event.kind))
    with app.worker():
        done = finished(app, works.enqueue(1))
        assert (done.status, done.result) == ("completed", "result")
        assert finished(app, works.enqueue(2)).status == "failed"
        until(lambda: len(told) == 4)
    assert own.rows() == ["again", "done", "again", "final"]
    assert told == ["retrying", "completed", "retrying", "failed"]


def test_the_last_progress_is_written_with_an_end_that_a_hook_writes(
    app: Holdfast, own: Own
) -> None:
    def record(end: RunEnd) -> None:
        mine = own.connect()
        mine.execute(f"INSERT INTO {own.name} VALUES ('x')")
        end.finish(tx=mine)
        mine.commit()
        mine.close()

    @app.task(on_success=record, on_failure=record, max_attempts=1)
    def works(ctx: Context, fails: bool) -> None:
        ctx.progress(10)
        ctx.progress(90, "nearly")
        if fails:
            raise ValueError

    with app.worker():
        for fails in (False, True):
            done = finished(app, works.enqueue(fails))
            assert (done.progress, done.message) == (90, "nearly")
    assert own.rows() == ["x", "x"]


def test_a_hook_whose_transaction_rolls_back_has_failed(app: Holdfast, own: Own) -> None:
    calls: list[bool] = []

    def forgets(end: RunEnd) -> None:
        calls.append(end.final)
        mine = own.connect()
        mine.execute(f"INSERT INTO {own.name} VALUES ('x')")
        end.finish(tx=mine)
        if len(calls) > 1:
            mine.commit()
        mine.close()

    @app.task(on_success=forgets)
    def works() -> None: ...

    job = works.enqueue()
    with app.worker():
        done = finished(app, job)
    assert (done.status, done.attempts, own.rows()) == ("completed", 2, ["x"])
    [attempt] = app.jobs.attempts(job.id)
    assert "gave to finish() was rolled back" in str(attempt.error)


def test_a_hook_that_fails_after_its_commit_changes_nothing(app: Holdfast, own: Own) -> None:
    told: list[str] = []
    app.on("completed", "retrying", "failed")(lambda event: told.append(event.kind))

    def stumbles(end: RunEnd) -> None:
        mine = own.connect()
        mine.execute(f"INSERT INTO {own.name} VALUES ('x')")
        end.finish(tx=mine)
        mine.commit()
        mine.close()
        raise ValueError("too late")

    @app.task(on_success=stumbles, on_failure=lambda end: told.append("hook"))
    def works() -> str:
        return "kept"

    job = works.enqueue()
    with app.worker():
        until(lambda: told)
    assert (app.jobs.get(job.id).result, told) == ("kept", ["completed"])
    assert app.jobs.attempts(job.id) == []


def test_an_async_hook_writes_the_end(app: Holdfast, own: Own, database: Database) -> None:
    kind = find(
        "sqlite-aiosqlite-awaited" if database.kind == "sqlite" else "postgres-asyncpg-awaited"
    )

    async def record(end: RunEnd) -> None:
        async with kind.opened(database) as caller:
            await caller.begin()
            await caller.execute(f"INSERT INTO {own.name} VALUES ('x')")
            await end.afinish(tx=caller.tx)
            await caller.commit()

    @app.task(on_success=record, on_failure=record, max_attempts=1)
    async def works(fails: bool) -> str:
        if fails:
            raise ValueError
        return "kept"

    with app.worker():
        assert finished(app, works.enqueue(False)).result == "kept"
        assert finished(app, works.enqueue(True)).status == "failed"
    assert own.rows() == ["x", "x"]


def test_a_hook_of_a_run_that_lost_its_job_cannot_write(app: Holdfast, own: Own) -> None:
    problems: list[BaseException] = []

    def late(end: RunEnd) -> None:
        engine_commands.delete(app.engine, [end.job.id])
        mine = own.connect()
        try:
            mine.execute(f"INSERT INTO {own.name} VALUES ('x')")
            end.finish(tx=mine)
            mine.commit()
        except Exception as problem:
            mine.rollback()
            problems.append(problem)
            raise
        finally:
            mine.close()

    @app.task(on_success=late)
    def works() -> None: ...

    works.enqueue()
    with app.worker() as worker:
        until(lambda: problems)
        until(lambda: not worker.executions())
    assert type(problems[0]).__name__ == "LostClaim"
    assert own.rows() == []
