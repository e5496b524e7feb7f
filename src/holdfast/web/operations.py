"""Bulk operations in the background: started by one request, followed by others. Their changes are in
the database; their progress is known to this process alone."""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

from holdfast.core.ids import new_id
from holdfast.errors import HoldfastError
from holdfast.jobs.changes import Changed

logger = logging.getLogger("holdfast.web")

_KEPT = 200  # operations that are remembered
_THREADS = 2  # so that a few large operations do not keep the database busy alone

Progress = Callable[[Changed], None]


class Stopped(Exception):
    """The operation was asked to stop: raised between two batches."""


@dataclass
class Operation:
    action: str
    matched: int | None
    id: str = field(default_factory=new_id)
    state: Literal["running", "done", "stopped", "failed"] = "running"
    done: Changed = field(default_factory=Changed)
    error: str | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def tell(self, done: Changed) -> None:
        """Take note of the progress. Raises Stopped if the operation was asked to stop."""
        self.done = done
        if self.stop.is_set():
            raise Stopped

    def fields(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in ("id", "action", "state", "matched", "error")},
            "seen": self.done.matched,
            "changed": self.done.changed,
            "skipped": dict(self.done.skipped),
        }


class Operations:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Operation] = OrderedDict()
        self._threads: ThreadPoolExecutor | None = None

    def start(self, operation: Operation, work: Callable[[Progress], Changed]) -> Operation:
        """Run it in a thread, and return after 0.3 s at most: a short operation is done by then."""
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="holdfast-bulk")
            self._known[operation.id] = operation
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
            self._threads.submit(self._run, operation, work)
        operation.ended.wait(0.3)
        return operation

    def _run(self, operation: Operation, work: Callable[[Progress], Changed]) -> None:
        try:
            operation.done = work(operation.tell)
            operation.state = "done"
        except Stopped:
            operation.state = "stopped"
        except HoldfastError as problem:
            operation.state, operation.error = "failed", str(problem)
        except Exception:
            logger.exception("%s of many jobs failed", operation.action)
            operation.state, operation.error = "failed", "the server's log has the reason"
        finally:
            operation.ended.set()

    def get(self, id: str) -> Operation | None:
        with self._lock:
            return self._known.get(id)

    def close(self) -> None:
        """Stop every operation after its present batch."""
        with self._lock:
            for operation in self._known.values():
                operation.stop.set()
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)
