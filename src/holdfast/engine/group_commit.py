"""Group commit: what many threads write at the same time is written in one transaction.

There is no thread of its own. The first to come leads: it writes its own request, and those that
gathered meanwhile; when it is done, the oldest that waits leads next. One thread alone pays nothing,
sixty-four share one fsync.
"""

import math
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Generic, TypeVar

from holdfast.errors import DatabaseBusy, DatabaseError, HoldfastError, OutcomeUnknown

MANY = 16  # from a group of this size on, the next leader waits for others to gather
GATHERING = 0.001  # seconds: measured to give a seventh more at sixty-four threads

R = TypeVar("R")
T = TypeVar("T")


class Request(Generic[R, T]):
    """One caller's work and, later, its answer."""

    __slots__ = ("_woken", "deadline", "error", "gone", "next", "ready", "result", "work")

    def __init__(self, work: R, deadline: float = math.inf) -> None:
        self.work = work
        self.deadline = deadline  #: by the monotonic clock
        self.ready = False
        self.result: T
        self.error: BaseException | None = None
        self.next: Request[R, T] | None = None  # the request to wake after this one
        self.gone = False  # its thread has given up
        self._woken = threading.Lock()
        self._woken.acquire()

    def resolve(self, result: T) -> None:
        self.result = result
        self.ready = True

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.ready = True

    def wait(self, timeout: float) -> None:
        if not self._woken.acquire(timeout=timeout):
            raise TimeoutError

    def wake(self) -> None:
        self._woken.release()

    def was_woken(self) -> bool:
        return self._woken.acquire(blocking=False)

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
        self._last_size = 0
        self._promoted: Request[R, T] | None = None

    def submit(self, work: R, timeout: float = threading.TIMEOUT_MAX) -> T:
        """Have it written; raises if that takes longer than `timeout` seconds. The leader of a group
        is not bounded here: `write` has to bound itself."""
        request: Request[R, T] = Request(work, time.monotonic() + timeout)
        with self._lock:
            self._waiting.append(request)
            leads = not self._led
            self._led = True
        if not leads:
            self._wait(request, timeout)
        if not request.ready:
            self._lead()
        return request.outcome()

    def _wait(self, request: Request[R, T], timeout: float) -> None:
        """Until it is answered, or until it is its turn to lead."""
        try:
            request.wait(timeout)
        except BaseException as error:  # it must not leave the others asleep or without a leader
            with self._lock:
                request.gone = True
                taken = request not in self._waiting
                first = bool(self._waiting) and self._waiting[0] is request
                if not taken:
                    self._waiting.remove(request)
                if first and self._promoted is request:
                    self._promote()
                elif request.was_woken():
                    self._wake(request.next)
            if isinstance(error, TimeoutError):
                raise _overdue(timeout, taken) from None
            raise
        if request.next is not None:
            with self._lock:
                self._wake(request.next)

    def _wake(self, request: Request[R, T] | None) -> None:
        """Under the lock: one after the other, each woken one wakes the next. All at once they would
        fight for Python's lock: that took a third of the time of sixty-four threads."""
        while request is not None and request.gone:
            request = request.next
        if request is not None:
            request.wake()

    def _promote(self) -> None:
        """Under the lock: the oldest that waits leads next."""
        self._promoted = self._waiting[0] if self._waiting else None
        self._led = self._promoted is not None
        if self._promoted is not None:
            self._promoted.wake()

    def _lead(self) -> None:
        if self._last_size > MANY:
            time.sleep(GATHERING)
        with self._lock:
            group = self._waiting[: self._largest]
            del self._waiting[: self._largest]
            self._last_size = len(group)
        try:
            self._write(group)
        except BaseException as error:
            for request in group:
                if not request.ready:
                    request.fail(_for_others(error) if request is not group[0] else error)
        finally:
            # The leader heads its own group, and does not wait.
            for one, after in pairwise(group[1:]):
                one.next = after
            with self._lock:
                self._promote()
                self._wake(group[1] if len(group) > 1 else None)


def _overdue(timeout: float, taken: bool) -> DatabaseError:
    if taken:
        return OutcomeUnknown(f"the database did not answer a write within {timeout:g} s")
    return DatabaseBusy(
        f"other writes of this process took more than {timeout:g} s, and this one was not begun: "
        "try again"
    )


def _for_others(error: BaseException) -> BaseException:
    """Errors of ours say what became of the group. Any other one is the leader's own, such as an
    interrupt: it may have come after the commit."""
    if isinstance(error, HoldfastError):
        return error
    return OutcomeUnknown(f"the thread that wrote for all of a group was interrupted ({error!r})")
