"""What a handler is given, where it runs, and what becomes of what it returns or raises."""

import asyncio
import os
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from holdfast import Context, Holdfast, InvalidInput
from tests.conftest import Database
from tests.support.jobs import execute
from tests.support.waiting import finished, is_alive, until
from tests.worker.conftest import quick


class Color(Enum):
    RED = "red"


@dataclass
class Address:
    street: str
    since: datetime


class Person(BaseModel):
    name: str
    address: Address


MOMENT = datetime(2031, 2, 3, 4, 5, 6, tzinfo=UTC)
ARGUMENTS: dict[str, Any] = {
    "person": Person(name="Ann", address=Address("Elm St", MOMENT)),
    "color": Color.RED,
    "id": UUID(int=7),
    "price": Decimal("1.10"),
    "folder": Path("/a/b"),
    "pause": timedelta(minutes=3),
    "parts": [Address("Oak St", MOMENT)],
}


def test_arguments_arrive_as_their_types(app: Holdfast) -> None:
    seen: list[dict[str, Any]] = []

    @app.task
    async def takes(
        person: Person,
        color: Color,
        id: UUID,
        price: Decimal,
        folder: Path,
        pause: timedelta,
        parts: list[Address],
        count: int = 3,
    ) -> None:
        seen.append(dict(locals()))

    job = takes.enqueue(**ARGUMENTS)
    with app.worker():
        finished(app, job)
    assert [{key: call[key] for key in (*ARGUMENTS, "count")} for call in seen] == [
        {**ARGUMENTS, "count": 3}
    ]


@pytest.mark.parametrize("kind", ["async", "def"])
def test_a_result_is_stored_by_its_type(app: Holdfast, kind: str) -> None:
    if kind == "async":

        @app.task(name="gives")
        async def gives(n: int) -> Person:
            return Person(name=f"Ann {n}", address=Address("Elm St", MOMENT))
    else:

        @app.task(name="gives")
        def gives(n: int) -> Person:
            return Person(name=f"Ann {n}", address=Address("Elm St", MOMENT))

    job = gives.enqueue(4)
    with app.worker():
        done = finished(app, job)
    address = {"street": "Elm St", "since": "2031-02-03T04:05:06Z"}
    assert (done.status, done.result) == ("completed", {"name": "Ann 4", "address": address})
    assert (done.attempts, done.error, done.started_at is None) == (1, None, False)
    assert done.completed_at is not None
    assert done.worker_id is not None
    assert app.jobs.attempts(job.id) == []


def test_async_handlers_share_a_loop_and_def_handlers_have_threads(app: Holdfast) -> None:
    """Three of each kind wait for one another: they run at the same time."""
    gate = threading.Barrier(3)
    together = asyncio.Event()
    loops: list[Any] = []
    threads: set[int] = set()

    @app.task
    async def on_loop() -> int:
        loops.append(asyncio.get_running_loop())
        if len(loops) == 3:
            together.set()
        await asyncio.wait_for(together.wait(), 10)
        return threading.get_ident()

    @app.task
    def in_thread() -> int:
        gate.wait(10)
        threads.add(threading.get_ident())
        return threading.get_ident()

    jobs = [task.enqueue() for task in (on_loop, in_thread) for _ in range(3)]
    with app.worker():
        results = [finished(app, job).result for job in jobs]
    assert len(set(loops)) == 1
    assert len(set(results[:3])) == 1
    assert len(set(results[3:])) == len(threads) == 3
    assert threading.get_ident() not in results


def test_a_process_handler_runs_in_a_warm_process_of_its_own(processes: ModuleType) -> None:
    app = processes.app
    with app.worker(concurrency=1):
        results = []
        for width in (1, 2):  # one after the other: the second finds the first one's process
            job = processes.where.enqueue(size=processes.Size(width, timedelta(seconds=9)))
            results.append(finished(app, job).result)
        pid = results[0]["pid"]
        assert is_alive(pid)
    assert pid != os.getpid()
    assert results == [
        {"pid": pid, "doubled": 2, "pause": 9.0},
        {"pid": pid, "doubled": 4, "pause": 9.0},
    ]
    assert not is_alive(pid)


def test_a_process_task_that_a_child_cannot_import_is_refused_at_start(app: Holdfast) -> None:
    @app.task(process=True)
    def hidden() -> None: ...

    worker = app.worker()
    with pytest.raises(InvalidInput, match=r"'hidden' \(process=True\) cannot be found"):
        worker.start()
    worker.stop()


def test_a_process_task_without_a_module_is_refused_at_start(app: Holdfast) -> None:
    """As typed in a notebook, or run by exec."""
    names: dict[str, Any] = {"app": app, "__name__": "pasted"}
    exec("@app.task(process=True)\ndef hidden() -> None: ...", names)
    worker = app.worker()
    with pytest.raises(InvalidInput, match="define it at the top of a module"):
        worker.start()
    worker.stop()


@pytest.mark.parametrize("kind", ["async", "def", "process"])
def test_a_result_that_is_not_json_fails_the_run(
    app: Holdfast, processes: ModuleType, kind: str
) -> None:
    @app.task(name="async")
    async def asynchronous() -> Any:
        return object()

    @app.task(name="def")
    def plain() -> Any:
        return object()

    if kind == "process":
        app = processes.app
        kind = "returns_no_json"
    job = app.enqueue(kind, max_attempts=2)
    with app.worker():
        done = finished(app, job)
    assert (done.status, done.attempts, done.result) == ("failed", 2, None)
    assert "cannot be written as JSON" in str(done.error)


@pytest.mark.parametrize("kind", ["async", "def"])
def test_no_exception_of_a_handler_ends_the_worker(app: Holdfast, kind: str) -> None:
    errors = [SystemExit(3), KeyboardInterrupt("ctrl"), BaseException("odd"), GeneratorExit()]

    @app.task(name="async", max_attempts=1)
    async def asynchronous(number: int) -> None:
        raise errors[number]

    @app.task(name="def", max_attempts=1)
    def plain(number: int) -> None:
        raise errors[number]

    @app.task
    async def async_after() -> str:
        return "still here"

    @app.task
    def after() -> str:
        return "still here"

    with app.worker(concurrency=1):
        for number, error in enumerate(errors):
            done = finished(app, app.enqueue(kind, {"number": number}))
            assert done.status == "failed"
            assert str(done.error).startswith(type(error).__name__)
            assert finished(app, after.enqueue()).result == "still here"
            assert finished(app, async_after.enqueue()).result == "still here"


def test_a_process_handler_that_exits_fails_the_run(processes: ModuleType) -> None:
    app = processes.app
    with app.worker():
        done = finished(app, processes.exits.enqueue())
    assert (done.status, done.error, done.crashes) == ("failed", "SystemExit: 3", 0)


@pytest.mark.parametrize("kind", ["async", "def"])
def test_a_payload_that_does_not_fit_fails_permanently_and_calls_the_hook(
    database: Database, tmp_path: Path, kind: str
) -> None:
    """Where the application does not want to wait for other code (see test_unreadable.py)."""
    app = quick(database, tmp_path, unreadable_for=0)
    ends: list[Any] = []
    calls: list[int] = []

    @app.task(name="async", on_failure=ends.append)
    async def asynchronous(n: int) -> None:
        calls.append(n)

    @app.task(name="def", on_failure=ends.append)
    def plain(n: int) -> None:
        calls.append(n)

    job = app.enqueue(kind, {"n": 1})
    table = "{payloads} SET payload = :text WHERE job_id = :id"
    if not hasattr(app.engine, "path"):
        table = "{jobs} SET payload = :text WHERE id = :id"
    execute(app.engine, f"UPDATE {table}", text='{"n":"many"}', id=job.id)
    with app.worker():
        done = finished(app, job)
    assert (done.status, done.attempts, calls) == ("failed", 1, [])
    assert "does not fit" in str(done.error)
    assert "n: Input should be a valid integer" in str(done.error)
    assert [(end.job.id, end.final, end.error) for end in ends] == [(job.id, True, done.error)]


def test_a_handler_that_takes_a_context_still_takes_its_arguments(app: Holdfast) -> None:
    @app.task
    def takes(ctx: Context, n: int, *, word: str = "w") -> list[Any]:
        return [ctx.job.id, ctx.job.payload, n, word]

    job = takes.enqueue(n=3)
    with app.worker():
        assert finished(app, job).result == [job.id, {"n": 3}, 3, "w"]


def test_a_task_registered_while_the_worker_runs_is_served(app: Holdfast) -> None:
    with app.worker():

        @app.task
        def late() -> int:
            return 1

        assert finished(app, late.enqueue()).result == 1


def test_threads_are_reused(app: Holdfast) -> None:
    @app.task
    def ident() -> int:
        return threading.get_ident()

    with app.worker(concurrency=1):
        idents = [finished(app, ident.enqueue()).result for _ in range(5)]
        names = [t.name for t in threading.enumerate() if t.name.startswith("holdfast-job")]
    assert len(set(idents)) <= len(names) <= 2
    until(lambda: not [t for t in threading.enumerate() if t.name.startswith("holdfast-job")])
