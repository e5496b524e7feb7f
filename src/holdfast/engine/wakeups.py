"""Hints that jobs may be due. Workers that only poll would be correct, too; hints make them quick."""

import os
import select
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any

EVERYWHERE = frozenset({"*"})
_LONGEST = 3600.0  # seconds: poll() takes milliseconds, as a C integer


class Wakeups(ABC):
    """A subscription of one thread to hints. Another thread can end its wait through a pipe."""

    def __init__(self, on_close: Callable[[Any], None]) -> None:
        self._on_close = on_close
        self._closed = False
        self._lock = threading.Lock()
        self._poll = Poll()
        self._pipe, self._pipe_end = os.pipe()
        os.set_blocking(self._pipe, False)
        os.set_blocking(self._pipe_end, False)

    @abstractmethod
    def wait(self, timeout: float) -> frozenset[str]:
        """Wait for a hint, and return the queues to look at: `{"*"}` for all of them, none when the
        time is up."""

    def wake(self) -> None:
        """End the wait of another thread of this process, which then looks at all queues."""
        self._write(b"!")

    def nudge(self) -> None:
        """End the wait without a hint: the other thread checks by itself why."""
        self._write(b".")

    def _write(self, byte: bytes) -> None:
        with self._lock:
            if not self._closed:
                with suppress(BlockingIOError):  # the pipe is full of wake-ups already
                    os.write(self._pipe_end, byte)

    def _read_pipe(self) -> frozenset[str]:
        return EVERYWHERE if b"!" in os.read(self._pipe, 4096) else frozenset()

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._on_close(self)
        self._release()
        os.close(self._pipe)
        os.close(self._pipe_end)

    @abstractmethod
    def _release(self) -> None:
        """Release the resources that the engine holds for this subscription."""


class Poll:
    """Waits for files to be readable, in one thread. `select()` would refuse numbers from 1,024 on,
    which a host process with many connections has. Files are registered when they change only."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._files: tuple[int, ...] = ()

    def wait(self, files: tuple[int, ...], seconds: float) -> list[int]:
        """Return the files that can be read, or have failed, within the time."""
        if files != self._files:
            for file in self._files:
                self._poll.unregister(file)
            for file in files:
                self._poll.register(file, select.POLLIN)
            self._files = files
        if 0 < seconds < 0.001:  # poll() counts in milliseconds, and would wait for a whole one
            if ready := self._poll.poll(0):
                return [file for file, _ in ready]
            select.select((), (), (), seconds)  # of no file: only its time is wanted
            seconds = 0
        return [file for file, _ in self._poll.poll(min(seconds, _LONGEST) * 1000)]
