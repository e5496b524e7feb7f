"""Code of the application that raises SystemExit or KeyboardInterrupt wherever it may run: it fails its
own run at the most, and neither the event loop nor a thread of the worker ends with it."""

import _thread
import asyncio
import sys
from collections.abc import Awaitable, Callable

import pytest

from holdfast import Holdfast, RunEnd
from tests.support.waiting import finished, wait_for_status

Handler = Callable[[], Awaitable[None]]


def interrupt() -> None:
    raise KeyboardInterrupt


async def exits() -> None:
    await asyncio.sleep(0)
    sys.exit(3)


async def is_interrupted() -> None:
    await asyncio.sleep(0)
    interrupt()


async def in_a_task() -> None:
    await asyncio.create_task(exits())


async def in_an_interrupted_task() -> None:
    await asyncio.create_task(is_interrupted())


async def in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(exits())
        group.create_task(asyncio.sleep(600))


async def in_gather() -> None:
    await asyncio.gather(asyncio.sleep(0.01), exits())


async def in_a_thread() -> None:
    await asyncio.to_thread(sys.exit, 3)


async def by_a_threads_exit() -> None:
    await asyncio.to_thread(_thread.exit)


async def itself() -> None:
    sys.exit(3)


FAILING: list[Handler] = [
    *(in_a_task, in_an_interrupted_task, in_a_group, in_gather),
    *(in_a_thread, by_a_threads_exit, itself),
]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("handler", FAILING)
def test_a_coroutine_that_raises_system_exit_fails_alone(app: Holdfast, handler: Handler) -> None:
    app.task(name="exits", max_attempts=1, timeout=60)(handler)

    @app.task(timeout=60)
    async def innocent() -> str:
        await asyncio.sleep(0.5)
        return "done"

    with app.worker():
        beside = innocent.enqueue()
        failed = finished(app, app.enqueue("exits"), patience=60)
        after = finished(app, innocent.enqueue(), patience=60)
        assert finished(app, beside, patience=60).result == after.result == "done"
    assert failed.status == "failed"
    assert "SystemExit" in str(failed.error) or "KeyboardInterrupt" in str(failed.error)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_task_that_is_never_awaited_does_not_end_the_loop(
    app: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    kept: list[asyncio.Task[None]] = []

    @app.task(timeout=60)
    async def leaves_behind() -> str:
        loop = asyncio.get_running_loop()
        kept.append(loop.create_task(exits()))
        loop.call_soon(sys.exit, 3)
        loop.call_later(0.01, interrupt)
        loop.call_later(0.02, loop.stop)
        await asyncio.sleep(0.3)
        return "done"

    with app.worker():
        for _ in range(2):
            assert finished(app, leaves_behind.enqueue(), patience=60).result == "done"
    assert "the loop goes on" in caplog.text


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("leave", [sys.exit, _thread.exit, interrupt])
def test_a_thread_whose_handler_raises_system_exit_is_reused(
    app: Holdfast, leave: Callable[[], None]
) -> None:
    told: list[str] = []

    def gives_up(end: RunEnd) -> None:
        told.append(end.job.type)
        leave()

    async def gives_up_later(end: RunEnd) -> None:
        told.append(end.job.type)
        await asyncio.create_task(exits())

    def delay(attempts: int) -> float:
        leave() if leave is not interrupt else sys.exit()
        return 0.0

    @app.task(max_attempts=1)
    def fails() -> None:
        leave()

    @app.task(max_attempts=1, on_success=gives_up, on_failure=lambda end: told.append("failed"))
    def hooked() -> None: ...

    @app.task(max_attempts=1, on_failure=gives_up_later)
    def hooked_later() -> None:
        raise ValueError

    @app.task(max_attempts=2, backoff=delay)
    def again() -> None:
        raise ValueError

    with app.worker(concurrency=1):
        for name in ("fails", "hooked", "hooked_later"):
            assert finished(app, app.enqueue(name), patience=60).status == "failed"
        wait_for_status(app, again.enqueue(), "retrying", patience=60)
    assert told == ["hooked", "failed", *["hooked_later"] * 3]
