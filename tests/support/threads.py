"""Threads that start at the same moment."""

import threading
from collections.abc import Callable
from typing import Any


def in_threads(count: int, work: Callable[[int], Any], *, timeout: float = 60.0) -> list[Any]:
    """Run `work(0..count-1)` at the same moment in threads; results in order, errors raised."""
    barrier = threading.Barrier(count)
    results: list[Any] = [None] * count

    def run(number: int) -> None:
        barrier.wait(timeout)
        try:
            results[number] = work(number)
        except BaseException as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
        assert not thread.is_alive(), "a thread is stuck"
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results
