"""A worker inside an application that has an event loop."""

import asyncio
import threading
import time
from typing import Any

from holdfast import Context, Holdfast, Job, RunEnd
from tests.support.waiting import PATIENCE


async def ended(app: Holdfast, job: Job) -> Job:
    deadline = time.monotonic() + PATIENCE
    while (now := await app.jobs.aget(job.id)).status not in ("completed", "failed", "cancelled"):
        assert time.monotonic() < deadline, f"{now.status}: {now.error}"
        await asyncio.sleep(0.01)
    return now


def test_coroutines_run_on_the_applications_loop_and_threads_beside_it(app: Holdfast) -> None:
    seen: list[Any] = []

    async def hook(end: RunEnd) -> None:
        seen.append(asyncio.get_running_loop())

    @app.task(on_success=hook)
    async def on_loop() -> int:
        seen.append(asyncio.get_running_loop())
        return threading.get_ident()

    @app.task
    def in_thread() -> int:
        return threading.get_ident()

    async def host() -> None:
        async with app.worker():
            first = await ended(app, await on_loop.aenqueue())
            second = await ended(app, await in_thread.aenqueue())
            assert seen == [asyncio.get_running_loop()] * 2
            assert first.result == threading.get_ident()
            assert second.result != threading.get_ident()

    asyncio.run(host())


def test_handlers_may_use_objects_of_the_applications_loop(app: Holdfast) -> None:
    async def host() -> None:
        inbox: asyncio.Queue[int] = asyncio.Queue()

        @app.task
        async def posts(n: int) -> None:
            await inbox.put(n)

        async with app.worker():
            await posts.aenqueue(4)
            assert await asyncio.wait_for(inbox.get(), PATIENCE) == 4

    asyncio.run(host())


def test_leaving_the_block_waits_for_running_jobs(app: Holdfast) -> None:
    async def host() -> None:
        started = asyncio.Event()

        @app.task
        async def works() -> str:
            started.set()
            await asyncio.sleep(0.3)
            return "done"

        async with app.worker():
            job = await works.aenqueue()
            await started.wait()
        assert (await app.jobs.aget(job.id)).result == "done"

    asyncio.run(host())


def test_leaving_the_block_releases_jobs_that_do_not_end_in_time(app: Holdfast) -> None:
    async def host() -> None:
        started = asyncio.Event()
        stopped: list[bool] = []

        @app.task
        async def sleeps(ctx: Context) -> None:
            started.set()
            try:
                await asyncio.sleep(600)
            finally:
                stopped.append(ctx.cancelled)

        async with app.worker(grace=0.2):
            job = await sleeps.aenqueue()
            await started.wait()
            begin = time.monotonic()
        assert time.monotonic() - begin < 1.2
        now = await app.jobs.aget(job.id)
        assert (now.status, now.attempts, stopped) == ("pending", 0, [True])

    asyncio.run(host())


def test_the_applications_loop_is_not_blocked(app: Holdfast) -> None:
    """It ticks on while jobs are claimed, run and written, and while the worker stops."""
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            begin = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - begin)

    @app.task
    def in_thread() -> None:
        time.sleep(0.5)

    async def host() -> None:
        ticking = asyncio.create_task(tick())
        async with app.worker():
            await in_thread.aenqueue()
            await asyncio.sleep(0.1)
        ticking.cancel()

    asyncio.run(host())
    assert longest < 0.4
