"""`ctx.complete(tx=)`: the handler's rows and its job's end commit together, or not at all."""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from holdfast import Context, Event, Holdfast, LostClaim, RunEnd
from tests.conftest import Database
from tests.support import engine_commands
from tests.support.callers import Kind, find
from tests.support.jobs import execute
from tests.support.waiting import finished, until, wait_for_status
from tests.worker.conftest import quick


class AppWithTable:
    """An application with a table of its own, and what was told of its jobs."""

    def __init__(self, app: Holdfast, table: str) -> None:
        self.app = app
        self.table = table
        self.events: list[Event] = []
        self.ends: list[RunEnd] = []
        app.on("completed", "retrying", "failed", "cancelled")(self.events.append)

    def rows(self) -> list[str]:
        found = execute(self.app.engine, f"SELECT name FROM {self.table}")
        return sorted(row[0] for row in found)

    def row(self, name: str) -> str:
        return f"INSERT INTO {self.table} VALUES ('{name}')"

    def told(self) -> list[str]:
        return [str(event.kind) for event in self.events]

    def hooked(self) -> list[tuple[bool, str | None]]:
        return [(end.final, end.error) for end in self.ends]


def make_setup(app: Holdfast, database: Database) -> AppWithTable:
    app.migrate()
    setup = AppWithTable(app, "own" if database.kind == "sqlite" else f"{database.schema}.own")
    execute(app.engine, f"CREATE TABLE {setup.table} (name text)")
    return setup


@pytest.fixture
def setup(database: Database, tmp_path: Path) -> AppWithTable:
    return make_setup(quick(database, tmp_path), database)


def over(kinds: list[Kind]) -> Callable[[Any], Any]:
    return pytest.mark.parametrize(
        ("database", "kind"),
        [pytest.param(kind.engine, kind, id=str(kind)) for kind in kinds],
        indirect=["database"],
    )


# One of each library and face. (How transactions are opened: tests/engine/test_transactions.py.)
NAMES = {
    "sqlite": [
        "sqlite3",
        "sqlite3-awaited",
        "aiosqlite-awaited",
        "sqlalchemy-session",
        "sqlalchemy-aiosqlite-awaited",
        "django",
    ],
    "postgres": [
        "psycopg",
        "psycopg-awaited",
        "psycopg-async-awaited",
        "asyncpg-awaited",
        "asyncpg-pooled-awaited",
        "sqlalchemy",
        "sqlalchemy-asyncpg-session-awaited",
        "sqlalchemy-psycopg-async-awaited",
        "django",
    ],
}
EACH = [find(f"{engine}-{name}") for engine, names in NAMES.items() for name in names]
FEW = [find(name) for name in ("sqlite-sqlite3", "postgres-psycopg", "postgres-asyncpg-awaited")]
ROLLED_BACK = "RolledBack: the transaction given to ctx.complete() was not committed"


def add_handler(setup: AppWithTable, kind: Kind, **options: Any) -> Callable[[Any], Any]:
    """A decorator: registers the body for this kind of connection, as its application would."""

    def add(body: Callable[..., Any]) -> Any:
        if kind.awaited:

            @setup.app.task(name="works", **options)
            async def works(ctx: Context) -> Any:
                return await body(ctx)
        else:

            @setup.app.task(name="works", **options)
            def works(ctx: Context) -> Any:
                return kind.drive(body(ctx))

        return works

    return add


@over(EACH)
def test_a_rolled_back_completion_is_retried_and_a_committed_one_applies(
    database: Database, setup: AppWithTable, kind: Kind
) -> None:
    app = setup.app

    @app.task
    def child() -> None: ...

    async def body(ctx: Context) -> str:
        async with kind.opened(database) as caller:
            await caller.begin()
            await caller.execute(setup.row(f"attempt {ctx.attempt}"))
            ctx.enqueue(child)
            ctx.progress(40 * ctx.attempt, "told last")
            await kind.call(ctx, "complete", {"attempt": ctx.attempt}, tx=caller.tx)
            await (caller.rollback() if ctx.attempt == 1 else caller.commit())
        return "ignored"

    hooks = {"on_success": setup.ends.append, "on_failure": setup.ends.append}
    job = add_handler(setup, kind, **hooks)(body).enqueue()
    with app.worker():
        done = finished(app, job)
        until(lambda: len(setup.told()) == 3)
    assert (done.status, done.attempts, done.result) == ("completed", 2, {"attempt": 2})
    assert (done.progress, done.message) == (80, "told last")
    assert [attempt.error for attempt in app.jobs.attempts(job.id)] == [ROLLED_BACK]
    assert setup.rows() == ["attempt 2"]
    assert app.jobs.count(type="child") == 1
    assert sorted(setup.told()) == ["completed", "completed", "retrying"]
    assert setup.hooked() == [(False, ROLLED_BACK)]


@over(FEW)
def test_the_end_is_invisible_before_the_commit(
    database: Database, setup: AppWithTable, kind: Kind
) -> None:
    written, go = threading.Event(), threading.Event()

    async def body(ctx: Context) -> None:
        async with kind.opened(database) as caller:
            await caller.begin()
            await caller.execute(setup.row("mine"))
            await kind.call(ctx, "complete", tx=caller.tx)
            written.set()
            while not go.is_set():
                if kind.awaited:
                    await asyncio.sleep(0.01)
                else:
                    go.wait(0.01)
            await caller.commit()

    job = add_handler(setup, kind)(body).enqueue()
    with setup.app.worker():
        assert written.wait(10)
        assert setup.app.jobs.get(job.id).status == "running"
        assert setup.rows() == []
        go.set()
        assert finished(setup.app, job).result is None
    assert setup.rows() == ["mine"]


@over(FEW)
def test_a_completion_of_a_lost_claim_is_an_error(
    database: Database, setup: AppWithTable, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is deleted before it completes: its rows must not be committed. The watch, which would
    stop the run, does not look."""
    monkeypatch.setattr("holdfast.worker.liveness.claim_watch.LOOK", 60.0)
    problems: list[BaseException] = []

    async def body(ctx: Context) -> None:
        engine_commands.delete(setup.app.engine, [ctx.job.id])
        async with kind.opened(database) as caller:
            await caller.begin()
            await caller.execute(setup.row("mine"))
            try:
                await kind.call(ctx, "complete", tx=caller.tx)
            except LostClaim as problem:
                problems.append(problem)
            finally:
                await caller.rollback()

    job = add_handler(setup, kind)(body).enqueue()
    with setup.app.worker():
        until(lambda: problems)
        until(lambda: not setup.app.jobs.count(status="running"))
    assert f"job {job.id} is no longer held by this run (claim 1)" in str(problems[0])
    assert (setup.rows(), setup.told()) == ([], [])


@over(FEW)
def test_errors_after_the_commit_change_nothing(
    database: Database, setup: AppWithTable, kind: Kind
) -> None:
    """It goes on for longer than two looks of the watch, and then raises."""
    after = threading.Event()

    async def body(ctx: Context) -> None:
        async with kind.opened(database) as caller:
            await caller.begin()
            await kind.call(ctx, "complete", "kept", tx=caller.tx)
            await caller.commit()
        deadline = time.monotonic() + 0.4
        while time.monotonic() < deadline and not ctx.cancelled:
            if kind.awaited:
                await asyncio.sleep(0.01)
            else:
                ctx.wait(0.01)
        if not ctx.cancelled:
            after.set()
        raise ValueError("too late")

    hooks = {"on_success": setup.ends.append, "on_failure": setup.ends.append}
    job = add_handler(setup, kind, **hooks)(body).enqueue()
    with setup.app.worker():
        done = wait_for_status(setup.app, job, "completed")
        until(lambda: setup.events)
    assert after.is_set(), "it was stopped, although its job had ended well"
    assert (done.result, setup.told()) == ("kept", ["completed"])
    assert (setup.hooked(), setup.app.jobs.attempts(job.id)) == ([], [])


def test_completions_work_in_a_process_of_their_own(
    database: Database, processes: ModuleType
) -> None:
    """It goes on for longer than two looks of the watch, too."""
    app = processes.app
    setup = make_setup(app, database)
    job = processes.completes.enqueue(commits_at=2, linger=0.4)
    with app.worker():
        done = finished(app, job)
        until(lambda: setup.told().count("completed") == 2)
    assert (done.status, done.attempts, done.result) == ("completed", 2, "by the transaction")
    assert [attempt.error for attempt in app.jobs.attempts(job.id)] == [ROLLED_BACK]
    assert (setup.rows(), app.jobs.count(type="after")) == (["mine"], 1)
    assert [(end.final, end.error) for end in processes.ends] == [(False, ROLLED_BACK)]
