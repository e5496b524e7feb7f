"""Verbs on many jobs, as they go: started by a request, looked at by others. What they did is in the
database; how far they are is known to this process alone."""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

from holdfast.core.ids import new_id
from holdfast.errors import HoldfastError
from holdfast.jobs.bulk_result import Changed

logger = logging.getLogger("holdfast.web")

_KEPT = 200  # operations that are remembered
_AT_ONCE = 2  # so that a few large ones do not take the database for themselves

State = Literal["running", "done", "stopped", "failed"]
Told = Callable[[Changed], None]


class Stopped(Exception):
    """Somebody asked it to stop: raised between two batches."""


@dataclass
class Operation:
    action: str
    matched: int | None
    id: str = field(default_factory=new_id)
    state: State = "running"
    done: Changed = field(default_factory=Changed)
    error: str | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def tell(self, done: Changed) -> None:
        self.done = done
        if self.stop.is_set():
            raise Stopped

    def fields(self) -> dict[str, Any]:
        done = self.done
        return {
            "id": self.id,
            "action": self.action,
            "state": self.state,
            "seen": done.matched,
            "changed": done.changed,
            "skipped": dict(done.skipped),
            "matched": self.matched,
            "error": self.error,
        }


class Operations:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Operation] = OrderedDict()
        self._threads: ThreadPoolExecutor | None = None

    def start(self, operation: Operation, work: Callable[[Told], Changed]) -> Operation:
        """It goes on by itself; a short one is over when this returns."""
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="holdfast-bulk")
            self._known[operation.id] = operation
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
            self._threads.submit(self._run, operation, work)
        operation.ended.wait(0.3)
        return operation

    def _run(self, operation: Operation, work: Callable[[Told], Changed]) -> None:
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
        """Stop what goes on, between two batches."""
        with self._lock:
            for operation in self._known.values():
                operation.stop.set()
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)
