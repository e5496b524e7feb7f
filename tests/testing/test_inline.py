"""`Inline`: an enqueue runs its job, without a database."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Context,
    Holdfast,
    HoldfastError,
    InvalidArguments,
    Job,
    Middleware,
    UnknownTask,
)
from holdfast.jobs.job import NewJob
from holdfast.testing import Inline, JobFailed


@dataclass
class Order:
    id: int
    at: datetime


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Holdfast]:
    """Yield an application whose database does not exist, and must not be made."""
    with Holdfast("postgresql://nobody@127.0.0.1:1/nothing", workdir=tmp_path / "work") as app:
        yield app


def test_an_enqueue_runs_the_job_immediately(app: Holdfast) -> None:
    seen: list[Order] = []

    @app.task
    def ship(order: Order, copies: int = 2) -> dict[str, Any]:
        seen.append(order)
        return {"order": order, "copies": copies}

    order = Order(7, datetime(2030, 1, 2, tzinfo=UTC))
    with Inline(app) as inline:
        job = ship.using(priority=3, key="k", delay="1h", entity=("order", 7)).enqueue(order)
    assert seen == [order]
    assert seen[0] is not order, "the arguments did not go through JSON"
    assert (job.status, job.created, job.priority, job.entity) == (
        "completed",
        True,
        3,
        ("order", 7),
    )
    assert job.payload == {"order": {"id": 7, "at": "2030-01-02T00:00:00Z"}}
    assert job.result == {"order": {"id": 7, "at": "2030-01-02T00:00:00Z"}, "copies": 2}
    assert inline.jobs == [job]


@pytest.mark.parametrize("completes", [False, True])
def test_the_jobs_of_then_run_after_the_jobs_that_the_run_enqueued(
    app: Holdfast, completes: bool
) -> None:
    @app.task
    def notify(to: str) -> None: ...

    @app.task(then=notify)
    def assemble(ctx: Context, to: str) -> dict[str, str]:
        ctx.enqueue(notify, to="first")
        if completes:
            ctx.complete({"to": to}, tx=None)
        return {"to": to}

    with Inline(app) as inline:
        assemble.enqueue("ann")
    ran = [(job.type, job.payload["to"]) for job in inline.jobs]
    assert ran == [("assemble", "ann"), ("notify", "first"), ("notify", "ann")]


def test_workflows_and_schedules_are_refused(app: Holdfast) -> None:
    """A test must never reach the application's own database."""

    @app.task
    def works() -> None: ...

    with Inline(app) as inline:
        with pytest.raises(HoldfastError, match=r"the workflow 'chain' needs a database.*drain"):
            app.chain(works.call(), works.call())
        with pytest.raises(HoldfastError, match="the schedule of task 'works' needs a database"):
            works.using(key="k", every="1h").schedule()
    assert inline.jobs == []


async def refused_async(app: Holdfast) -> None:
    @app.task
    def works() -> None: ...

    with Inline(app):
        with pytest.raises(HoldfastError, match="the workflow 'chain' needs a database"):
            await app.achain(works.call())
        with pytest.raises(HoldfastError, match="the schedule of task 'works'"):
            await works.using(key="k", every="1h").aschedule()


def test_asynchronous_workflows_and_schedules_are_refused(app: Holdfast) -> None:
    asyncio.run(refused_async(app))


def test_arguments_and_results_that_are_not_json_are_refused(app: Holdfast) -> None:
    @app.task
    def takes(n: int) -> Any:
        return object()

    with Inline(app) as inline:
        with pytest.raises(InvalidArguments):
            takes.enqueue("many")
        with pytest.raises(JobFailed, match="cannot be written as JSON"):
            takes.enqueue(1)
    assert inline.jobs == []


def test_the_exception_of_a_handler_is_raised(app: Holdfast) -> None:
    @app.task
    def fails() -> None:
        raise LookupError("no")

    with Inline(app), pytest.raises(LookupError, match="no"):
        fails.enqueue()


def test_jobs_that_a_handler_enqueues_run_after_it(app: Holdfast) -> None:
    order: list[str] = []

    @app.task
    def child(name: str) -> None:
        order.append(name)

    @app.task
    def parent(ctx: Context) -> None:
        ctx.enqueue(child, "with the finish")
        child.enqueue("at once")
        (ctx.workdir / "file").write_text("x")
        ctx.progress(50)
        order.append("parent")

    @app.task
    def fails(ctx: Context) -> None:
        ctx.enqueue(child, "never")
        raise ValueError

    with Inline(app) as inline:
        parent.enqueue()
        with pytest.raises(ValueError):  # noqa: PT011
            fails.enqueue()
    assert order == ["at once", "parent", "with the finish"]
    assert [job.type for job in inline.jobs] == ["child", "parent", "child"]
    assert list(app.settings.workdir.iterdir()) == []


def test_a_completion_is_checked_and_not_written(app: Holdfast) -> None:
    @app.task
    def works(ctx: Context) -> str:
        ctx.complete({"kept": 1}, tx=object())
        return "ignored"

    with Inline(app):
        assert works.enqueue().result == {"kept": 1}


def test_every_way_to_enqueue_and_every_kind_of_handler(app: Holdfast) -> None:
    threads: list[int] = []
    loops: list[Any] = []

    @app.task
    def plain(n: int) -> int:
        threads.append(threading.get_ident())
        return n

    @app.task
    async def asynchronous(n: int) -> int:
        loops.append(asyncio.get_running_loop())
        return n

    @app.task(process=True)
    def process(n: int) -> int:
        return n

    async def host() -> list[Job]:
        jobs = [await task.aenqueue(5) for task in (plain, asynchronous, process)]
        assert loops[-1] is asyncio.get_running_loop()
        jobs += await asynchronous.using(tx=object()).aenqueue_many([{"n": 5}])
        jobs.append(asynchronous.enqueue(5))  # a call that blocks a running event loop
        return jobs

    with Inline(app):
        jobs = [task.enqueue(5) for task in (plain, asynchronous, process)]
        jobs += plain.enqueue_many([{"n": 5}, {"n": 5}])
        jobs.append(app.enqueue("plain", {"n": 5}))
        assert set(threads) == {threading.get_ident()}
        jobs += asyncio.run(host())
    assert [job.result for job in jobs] == [5] * 11


def test_middleware_wraps_the_enqueue_and_the_run(tmp_path: Path) -> None:
    lines: list[str] = []

    class Diary(Middleware):
        def enqueue(self, jobs: Sequence[NewJob], proceed: Callable[..., list[Job]]) -> list[Job]:
            lines.append("enqueue")
            return proceed(jobs)

        def run(self, ctx: Context, proceed: Callable[[], Any]) -> Any:
            lines.append(f"run {ctx.job.type}")
            return proceed()

        async def arun(self, ctx: Context, proceed: Callable[[], Any]) -> Any:
            lines.append(f"arun {ctx.job.type}")
            return await proceed()

    with Holdfast(f"sqlite:///{tmp_path}/never.db", middleware=[Diary()]) as app:

        @app.task
        def plain() -> None: ...

        @app.task
        async def asynchronous() -> None: ...

        with Inline(app):
            plain.enqueue()
            asynchronous.enqueue()
    assert lines == ["enqueue", "run plain", "enqueue", "arun asynchronous"]
    assert not (tmp_path / "never.db").exists()


def test_an_unregistered_task_is_refused(app: Holdfast) -> None:
    with Inline(app), pytest.raises(UnknownTask, match="elsewhere"):
        app.enqueue("elsewhere", {"n": 1})


def test_after_the_block_jobs_are_stored_again(tmp_path: Path) -> None:
    with Holdfast(f"sqlite:///{tmp_path}/jobs.db") as app:

        @app.task
        def works() -> None: ...

        with Inline(app):
            assert works.enqueue().status == "completed"
        assert works.enqueue().status == "pending"
        assert app.jobs.count() == 1
