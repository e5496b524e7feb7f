"""Group commit: what many threads ask for at the same moment is written in one transaction.

There is no thread of its own. The first to come leads: it writes its own request, and those that
gathered meanwhile; when it is done, the oldest that waits leads next. One thread alone pays nothing,
sixty-four share one fsync.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from holdfast.errors import DatabaseBusy

R = TypeVar("R")
T = TypeVar("T")


class Request(Generic[R, T]):
    """One caller's work and, later, its answer."""

    __slots__ = ("_woken", "error", "ready", "result", "work")

    def __init__(self, work: R) -> None:
        self.work = work
        self.ready = False
        self.result: T
        self.error: BaseException | None = None
        self._woken = threading.Lock()
        self._woken.acquire()

    def resolve(self, result: T) -> None:
        self.result = result
        self.ready = True

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.ready = True

    def wait(self) -> None:
        self._woken.acquire()

    def wake(self) -> None:
        self._woken.release()

    def outcome(self) -> T:
        if self.error is not None:
            raise self.error
        return self.result


class GroupCommit(Generic[R, T]):
    """`write` answers every request of a group, in one transaction if it can."""

    def __init__(self, write: Callable[[Sequence[Request[R, T]]], None], *, largest: int) -> None:
        self._write = write
        self._largest = largest
        self._lock = threading.Lock()
        self._waiting: list[Request[R, T]] = []
        self._led = False
        self._promoted: Request[R, T] | None = None

    def submit(self, work: R) -> T:
        request: Request[R, T] = Request(work)
        with self._lock:
            self._waiting.append(request)
            leads = not self._led
            self._led = True
        if not leads:
            self._wait(request)
        if not request.ready:
            self._lead()
        return request.outcome()

    def _wait(self, request: Request[R, T]) -> None:
        """Until it is answered, or until it is its turn to lead."""
        try:
            request.wait()
        except BaseException:  # an interrupt must not leave the others without a leader
            with self._lock:
                first = bool(self._waiting) and self._waiting[0] is request
                if request in self._waiting:
                    self._waiting.remove(request)
                if first and self._promoted is request:
                    self._promote()
            raise

    def _promote(self) -> None:
        """Under the lock: the oldest that waits leads next."""
        self._promoted = self._waiting[0] if self._waiting else None
        self._led = self._promoted is not None
        if self._promoted is not None:
            self._promoted.wake()

    def _lead(self) -> None:
        with self._lock:
            group = self._waiting[: self._largest]
            del self._waiting[: self._largest]
        try:
            self._write(group)
        except BaseException as error:
            for request in group:
                if not request.ready:
                    request.fail(_for_others(error) if request is not group[0] else error)
        finally:
            # The leader heads its own group, and does not wait.
            for request in group[1:]:
                request.wake()
            with self._lock:
                self._promote()


def _for_others(error: BaseException) -> BaseException:
    """An interrupt is the leader's own; the others learn that nothing was written."""
    if isinstance(error, Exception):
        return error
    return DatabaseBusy(f"the thread that wrote for all was interrupted ({error!r}): try again")
