"""The tasks whose payloads this worker could not read recently: for its log and `app.health()`.

In a rolling deploy a worker of the older version may be offered a thousand payloads of the newer one,
each many times: they are counted by task, and one line a minute is written for each task.
"""

import logging
import threading
import time
from dataclasses import dataclass
from typing import Any

logger = logging.getLogger("holdfast.worker")

EVERY = 60.0  # seconds between two lines about one task
FORGET = 120.0  # seconds without another one; a job is offered again every 38 s at the latest
_TASKS = 20  # that are named
_TEXT = 500  # characters of an error


@dataclass(slots=True)
class _Seen:
    error: str
    since: float
    last: float
    logged: float = float("-inf")
    unlogged: int = 0


class UnreadablePayloads:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: dict[str, _Seen] = {}

    def add(self, task: str, error: str) -> None:
        """A job of this task was given back, for this reason."""
        now = time.monotonic()
        with self._lock:
            seen = self._tasks.get(task)
            if seen is None or now - seen.last > FORGET:
                seen = self._tasks[task] = _Seen(error, now, now)
            seen.error, seen.last = error[:_TEXT], now
            seen.unlogged += 1
            if now - seen.logged < EVERY:
                return
            count, seen.unlogged, seen.logged = seen.unlogged, 0, now
        logger.warning(
            "task %s: this worker could not read the payload (%d times since the last line): %s; such "
            "jobs are given back without spending an attempt, for a worker with other code",
            *(task, count, error),
        )

    def info(self) -> list[dict[str, Any]]:
        """What the workers' table shows."""
        now = time.monotonic()
        with self._lock:
            recent = [
                (task, seen) for task, seen in self._tasks.items() if now - seen.last <= FORGET
            ]
            return [
                {"task": task, "error": seen.error, "seconds": round(now - seen.since, 1)}
                for task, seen in sorted(recent, key=lambda one: one[0])[:_TASKS]
            ]
