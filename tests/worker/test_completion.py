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


class Dataset:
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


def make_world(app: Holdfast, database: Database) -> Dataset:
    app.migrate()
    world = Dataset(app, "own" if database.kind == "sqlite" else f"{database.schema}.own")
    execute(app.engine, f"CREATE TABLE {world.table} (name text)")
    return world


@pytest.fixture
def world(database: Database, tmp_path: Path) -> Dataset:
    return make_world(quick(database, tmp_path), database)


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


def add_handler(world: Dataset, kind: Kind, **options: Any) -> Callable[[Any], Any]:
    """A decorator: registers the body for this kind of connection, as its application would."""

    def add(body: Callable[..., Any]) -> Any:
        if kind.awaited:

            @world.app.task(name="works", **options)
            async def works(ctx: Context) -> Any:
                return await body(ctx)
        else:

            @world.app.task(name="works", **options)
            def works(ctx: Context) -> Any:
                return kind.drive(body(ctx))

        return works

    return add


@over(EACH)
def test_rolled_back_it_is_retried_and_committed_both_are_there(
    database: Database, world: Dataset, kind: Kind
) -> None:
    app = world.app

    @app.task
    def child() -> None: ...

    async def body(ctx: Context) -> str:
        async with kind.opened(database) as caller:
            await caller.begin()
            await caller.execute(world.row(f"attempt {ctx.attempt}"))
            ctx.enqueue(child)
            ctx.progress(40 * ctx.attempt, "told last")
            await kind.call(ctx, "complete", {"attempt": ctx.attempt}, tx=caller.tx)
            await (caller.rollback() if ctx.attempt == 1 else caller.commit())
        return "ignored"

    hooks = {"on_success": world.ends.append, "on_failure": world.ends.append}
    job = add_handler(world, kind, **hooks)(body).enqueue()
    with app.worker():
        done = finished(app, job)
        until(lambda: len(world.told()) == 3)
    assert (done.status, done.attempts, done.result) == ("completed", 2, {"attempt": 2})
    assert (done.progress, done.message) == (80, "told last")
    assert [attempt.error for attempt in app.jobs.attempts(job.id)] == [ROLLED_BACK]
    assert world.rows() == ["attempt 2"]
    assert app.jobs.count(type="child") == 1
    assert sorted(world.told()) == ["completed", "completed", "retrying"]
    assert world.hooked() == [(False, ROLLED_BACK)]


@over(FEW)
def test_before_the_commit_nobody_sees_the_end(
    database: Database, world: Dataset, kind: Kind
) -> None:
    written, go = threading.Event(), threading.Event()

    async def body(ctx: Context) -> None:
        async with kind.opened(database) as caller:
            await caller.begin()
            await caller.execute(world.row("mine"))
            await kind.call(ctx, "complete", tx=caller.tx)
            written.set()
            while not go.is_set():
                if kind.awaited:
                    await asyncio.sleep(0.01)
                else:
                    go.wait(0.01)
            await caller.commit()

    job = add_handler(world, kind)(body).enqueue()
    with world.app.worker():
        assert written.wait(10)
        assert world.app.jobs.get(job.id).status == "running"
        assert world.rows() == []
        go.set()
        assert finished(world.app, job).result is None
    assert world.rows() == ["mine"]


@over(FEW)
def test_a_run_whose_claim_is_gone_is_told_so(
    database: Database, world: Dataset, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is deleted before it completes: its rows must not be committed. The watch, which would
    stop the run, does not look."""
    monkeypatch.setattr("holdfast.worker.liveness.claim_watch.LOOK", 60.0)
    problems: list[BaseException] = []

    async def body(ctx: Context) -> None:
        engine_commands.delete(world.app.engine, [ctx.job.id])
        async with kind.opened(database) as caller:
            await caller.begin()
            await caller.execute(world.row("mine"))
            try:
                await kind.call(ctx, "complete", tx=caller.tx)
            except LostClaim as problem:
                problems.append(problem)
            finally:
                await caller.rollback()

    job = add_handler(world, kind)(body).enqueue()
    with world.app.worker():
        until(lambda: problems)
        until(lambda: not world.app.jobs.count(status="running"))
    assert f"job {job.id} is no longer held by this run (claim 1)" in str(problems[0])
    assert (world.rows(), world.told()) == ([], [])


@over(FEW)
def test_what_happens_after_the_commit_changes_nothing(
    database: Database, world: Dataset, kind: Kind
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

    hooks = {"on_success": world.ends.append, "on_failure": world.ends.append}
    job = add_handler(world, kind, **hooks)(body).enqueue()
    with world.app.worker():
        done = wait_for_status(world.app, job, "completed")
        until(lambda: world.events)
    assert after.is_set(), "it was stopped, although its job had ended well"
    assert (done.result, world.told()) == ("kept", ["completed"])
    assert (world.hooked(), world.app.jobs.attempts(job.id)) == ([], [])


def test_across_a_process(database: Database, processes: ModuleType) -> None:
    """It goes on for longer than two looks of the watch, too."""
    app = processes.app
    world = make_world(app, database)
    job = processes.completes.enqueue(commits_at=2, linger=0.4)
    with app.worker():
        done = finished(app, job)
        until(lambda: world.told().count("completed") == 2)
    assert (done.status, done.attempts, done.result) == ("completed", 2, "by the transaction")
    assert [attempt.error for attempt in app.jobs.attempts(job.id)] == [ROLLED_BACK]
    assert (world.rows(), app.jobs.count(type="after")) == (["mine"], 1)
    assert [(end.final, end.error) for end in processes.ends] == [(False, ROLLED_BACK)]
