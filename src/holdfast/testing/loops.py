"""Waiting for coroutines from code that is not one."""

import asyncio
import threading
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def awaited(answer: Awaitable[T]) -> T:
    return await answer


def running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def await_on(host: asyncio.AbstractEventLoop | None, answer: Awaitable[T]) -> T:
    """On the loop that waits for us in another thread; where there is none, on a new one."""
    if running_loop() is not None:
        return _in_thread(answer)  # this loop cannot go on before we return
    if host is not None and host.is_running():
        return asyncio.run_coroutine_threadsafe(awaited(answer), host).result()
    return asyncio.run(awaited(answer))


def _in_thread(answer: Awaitable[T]) -> T:
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(asyncio.run(awaited(answer)))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
