"""Threads for handlers. Daemons, unlike those of `concurrent.futures`: one that never returns must not
keep the process from ending."""

import logging
import queue
import threading
from collections.abc import Callable

logger = logging.getLogger("holdfast.worker")


class Threads:
    """As many threads as there is work at the same time; idle ones are used again."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._threads: set[threading.Thread] = set()
        self._number = 0

    def start(self) -> None:
        """Start the first thread: later the machine may have none left."""
        with self._lock:
            if not self._threads:
                self._start_another()

    def submit(self, work: Callable[[], None]) -> None:
        """Run it; it must not raise."""
        with self._lock:
            if self._idle < 1:
                self._start_another()
            self._idle -= 1
        self._work.put(work)

    def _start_another(self) -> None:
        """Start a thread, which is idle at first. If the machine has none left, the work waits for one
        of ours; a worker has one from its start (`start`)."""
        name = f"{self._name}-{self._number + 1}"
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError) as problem:
            if not self._threads:
                raise
            logger.error("no thread could be started (%s): a job waits for another to end", problem)
            return
        self._number += 1
        self._threads.add(thread)
        self._idle += 1

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except BaseException:  # the thread is used again, whatever happened
                logger.exception("a thread for handlers failed")
            del work
            with self._lock:
                self._idle += 1
        self._threads.discard(threading.current_thread())

    def close(self, timeout: float) -> None:
        """End the idle ones; a busy one ends when its work does."""
        threads = list(self._threads)
        for _ in threads:
            self._work.put(None)
        for thread in threads:
            thread.join(timeout / max(1, len(threads)))
