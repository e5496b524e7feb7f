"""Middleware: around every enqueue and every run."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from holdfast import Context, Holdfast, Job, Middleware
from holdfast.jobs.job import NewJob
from tests.conftest import Database
from tests.support.waiting import finished
from tests.worker.conftest import quick


class Diary(Middleware):
    """Writes down what it sees."""

    def __init__(self, name: str, lines: list[str]) -> None:
        self.name = name
        self.lines = lines

    def enqueue(
        self, jobs: Sequence[NewJob], proceed: Callable[[Sequence[NewJob]], list[Job]]
    ) -> list[Job]:
        self.lines.append(f"{self.name} before enqueue of {len(jobs)}")
        made = proceed(jobs)
        self.lines.append(f"{self.name} after enqueue of {len(made)}")
        return made

    def run(self, ctx: Context, proceed: Callable[[], Any]) -> Any:
        self.lines.append(f"{self.name} before {ctx.job.type}")
        try:
            return proceed()
        finally:
            self.lines.append(f"{self.name} after {ctx.job.type}")

    async def arun(self, ctx: Context, proceed: Callable[[], Awaitable[Any]]) -> Any:
        self.lines.append(f"{self.name} before {ctx.job.type}")
        try:
            return await proceed()
        finally:
            self.lines.append(f"{self.name} after {ctx.job.type}")


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def app(database: Database, tmp_path: Path, lines: list[str]) -> Holdfast:
    return quick(database, tmp_path, middleware=[Diary("outer", lines), Diary("inner", lines)])


@pytest.mark.parametrize("takes_context", [True, False])
@pytest.mark.parametrize("kind", ["async", "def"])
def test_the_first_middleware_is_the_outermost(
    app: Holdfast, lines: list[str], kind: str, takes_context: bool
) -> None:
    if kind == "async":

        async def with_context(ctx: Context, n: int) -> int:
            lines.append(f"handler {ctx.attempt}")
            return n

        async def without(n: int) -> int:
            lines.append("handler 1")
            return n
    else:

        def with_context(ctx: Context, n: int) -> int:  # type: ignore[misc]
            lines.append(f"handler {ctx.attempt}")
            return n

        def without(n: int) -> int:  # type: ignore[misc]
            lines.append("handler 1")
            return n

    task = app.task(name="works")(with_context if takes_context else without)
    job = task.enqueue(7)
    with app.worker():
        assert finished(app, job).result == 7
    assert lines == [
        "outer before enqueue of 1",
        "inner before enqueue of 1",
        "inner after enqueue of 1",
        "outer after enqueue of 1",
        "outer before works",
        "inner before works",
        "handler 1",
        "inner after works",
        "outer after works",
    ]


def test_an_asynchronous_enqueue_is_wrapped(app: Holdfast, lines: list[str]) -> None:
    @app.task
    def works() -> None: ...

    asyncio.run(works.aenqueue_many([{}, {}]))
    assert lines == [
        "outer before enqueue of 2",
        "inner before enqueue of 2",
        "inner after enqueue of 2",
        "outer after enqueue of 2",
    ]


class Meddler(Middleware):
    """Changes what goes through."""

    def enqueue(
        self, jobs: Sequence[NewJob], proceed: Callable[[Sequence[NewJob]], list[Job]]
    ) -> list[Job]:
        if any('"forbidden"' in job.payload for job in jobs):
            raise PermissionError("not this one")
        return proceed([replace(job, priority=7) for job in jobs])

    def run(self, ctx: Context, proceed: Callable[[], Any]) -> Any:
        if ctx.job.payload["word"] == "skip":
            return "skipped"
        if ctx.job.payload["word"] == "break":
            raise LookupError("the middleware")
        try:
            return f"{proceed()}!"
        except ValueError:
            return "saved"

    async def arun(self, ctx: Context, proceed: Callable[[], Awaitable[Any]]) -> Any:
        if ctx.job.payload["word"] == "skip":
            return "skipped"
        if ctx.job.payload["word"] == "break":
            raise LookupError("the middleware")
        try:
            return f"{await proceed()}!"
        except ValueError:
            return "saved"


@pytest.fixture
def meddled(database: Database, tmp_path: Path) -> Holdfast:
    app = quick(database, tmp_path, middleware=[Meddler()])

    @app.task(name="async", max_attempts=1)
    async def asynchronous(word: str) -> str:
        if word == "raise":
            raise ValueError
        return word

    @app.task(name="def", max_attempts=1)
    def plain(word: str) -> str:
        if word == "raise":
            raise ValueError
        return word

    return app


@pytest.mark.parametrize("kind", ["async", "def"])
def test_middleware_can_change_results_and_exceptions(meddled: Holdfast, kind: str) -> None:
    with meddled.worker():
        jobs = {
            word: finished(meddled, meddled.enqueue(kind, {"word": word}))
            for word in ("hello", "skip", "raise", "break")
        }
    assert {word: job.result for word, job in jobs.items()} == {
        "hello": "hello!",
        "skip": "skipped",
        "raise": "saved",
        "break": None,
    }
    assert (jobs["break"].status, jobs["break"].error) == ("failed", "LookupError: the middleware")


def test_middleware_can_change_and_refuse_enqueues(meddled: Holdfast) -> None:
    task = meddled.tasks["def"]
    assert task.enqueue("hello").priority == 7
    with pytest.raises(PermissionError, match="not this one"):
        task.enqueue("forbidden")
    with pytest.raises(PermissionError):
        task.enqueue_many([{"word": "fine"}, {"word": "forbidden"}])
    assert meddled.jobs.count() == 1


def test_middleware_wraps_a_handler_with_a_process_of_its_own(processes: ModuleType) -> None:
    with processes.app.worker():
        done = finished(processes.app, processes.wrapped.enqueue())
    assert done.result["wrapped"] == "inside"
    assert done.result["pid"] != os.getpid()
