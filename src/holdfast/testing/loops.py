"""Waiting for coroutines from code that is not asynchronous."""

import asyncio
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


async def awaited(answer: Awaitable[T]) -> T:
    return await answer


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, if there is one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def await_on(host: asyncio.AbstractEventLoop | None, answer: Awaitable[T]) -> T:
    """Wait for an answer on `host`, the loop of another thread that waits for this one; else on a new
    loop."""
    if running_loop() is not None:  # that loop is blocked until this function returns
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, awaited(answer)).result()
    if host is not None and host.is_running():
        return asyncio.run_coroutine_threadsafe(awaited(answer), host).result()
    return asyncio.run(awaited(answer))
