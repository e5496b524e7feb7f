"""A thread that calls functions at intervals: heartbeats, looks at claims, housekeeping."""

import logging
import threading
import time
from collections.abc import Callable, Mapping

from holdfast.errors import HoldfastError

logger = logging.getLogger("holdfast.worker")

Tick = Callable[[], float]


class Ticker:
    """Calls ticks (functions), one after the other. Each returns the seconds until its next call; a
    tick that raises is called again."""

    def __init__(
        self,
        name: str,
        ticks: Mapping[str, Tick],
        *,
        retry: float | None = None,
        last: Callable[[], object] = lambda: None,
    ) -> None:
        """`retry`: seconds until a tick that failed is called again; None: 5 while the database is
        unavailable, 60 after a bug. `last`: called in the thread when it ends."""
        self._ticks = ticks
        self._retry = retry
        self._last = last
        self._due = dict.fromkeys(ticks, 0.0)
        self._asked: set[str] = set()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"holdfast-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout: float) -> None:
        self._closing.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def call_now(self, name: str) -> None:
        """Let the thread call a tick at once, although it is not due."""
        self._asked.add(name)
        self._wake.set()

    def _run(self) -> None:
        while not self._closing.is_set():
            for name, tick in self._ticks.items():
                is_due = name in self._asked or time.monotonic() >= self._due[name]
                if is_due and not self._closing.is_set():
                    self._asked.discard(name)
                    self._due[name] = time.monotonic() + self._call(name, tick)
            self._wake.wait(max(0.0, min(self._due.values()) - time.monotonic()))
            self._wake.clear()
        self._last()

    def _call(self, name: str, tick: Tick) -> float:
        try:
            return tick()
        except HoldfastError as problem:
            logger.debug("%s: the database is unavailable (%s); retrying", name, problem)
            return self._retry or 5.0
        except Exception:
            logger.exception("%s failed; retrying", name)
            return self._retry or 60.0
