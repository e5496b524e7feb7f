"""Waits for coroutines in code that is not asynchronous."""

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


def await_on(caller: asyncio.AbstractEventLoop | None, answer: Awaitable[T]) -> T:
    """Wait for an answer on `caller`, the event loop of a thread that waits for this thread; if there
    is none, on a new event loop."""
    if running_loop() is not None:  # that loop is blocked until this function returns
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, awaited(answer)).result()
    if caller is not None and caller.is_running():
        return asyncio.run_coroutine_threadsafe(awaited(answer), caller).result()
    return asyncio.run(awaited(answer))
