"""The pool of connections of one engine: each is taken for one piece of work and given back, and
replaced when it breaks.

It is not psycopg_pool, because every single enqueue goes through it: that pool took 90 µs of 560
(docs/decisions/0005). If a server cannot be reached, the call fails at once, with the reason. Every
piece of work has a deadline; connections that were not used for a while are closed.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from holdfast.engine.postgres.call_deadlines import CallDeadlines
from holdfast.engine.postgres.connection import Connection, Cut, has_broken, went_away
from holdfast.errors import DatabaseBusy, HoldfastError

logger = logging.getLogger("holdfast.engine")
T = TypeVar("T")

MOST = 20  # connections at the same time
UNUSED = 30.0  # seconds after which an idle connection is closed
FIRST_TRY = 0.8  # part of the deadline for the first attempt: the rest is for a new connection
_FULL = 10.0  # seconds without new connections, after the server had none left
# Texts of errors that a refused connection has instead of a SQLSTATE: by the limit of the server, of a
# role or database, or of pgbouncer.
_TOO_MANY = (
    "too many clients",
    "too many connections",
    "slots are reserved",
    "no more connections",
)


class Connections:
    def __init__(
        self, connect: Callable[[], Connection], deadlines: CallDeadlines, *, timeout: float
    ) -> None:
        """`timeout`: seconds that a piece of work may take, with the wait for a connection."""
        self._connect = connect
        self._deadlines = deadlines
        self._timeout = timeout
        self._idle: list[Connection] = []
        self._changed = threading.Condition()
        self._made = 0
        self._most = MOST
        self._full_until = 0.0
        self._waiting = 0
        self._closed = False

    def use(
        self,
        work: Callable[[Connection], T],
        deadline: float | None = None,
        *,
        repeatable: bool = True,
    ) -> T:
        """Do some work on a connection, and once more on a new one if the server went away meanwhile.
        Nearly all work may be repeated: an insert is known by its ids, a finish by its claim, and other
        writes set the same values again. Work that is not `repeatable` is repeated only if the first
        attempt was certainly not committed. Raises `Cut` if an attempt may have been committed."""
        now = time.monotonic()
        deadline = now + self._timeout if deadline is None else deadline
        try:
            return self._once(work, now + FIRST_TRY * (deadline - now))
        except (psycopg.Error, OSError) as problem:
            if not went_away(problem):
                raise
            self._drop_idle()  # the idle sessions are gone, too
            if time.monotonic() >= deadline or (isinstance(problem, Cut) and not repeatable):
                raise
            first = problem
        try:
            return self._once(work, deadline)
        except (psycopg.Error, OSError, HoldfastError) as problem:
            # Whatever this error says, the first attempt may be committed, or may still be under way.
            if isinstance(first, Cut):
                raise Cut(str(problem)) from problem
            raise

    def _once(self, work: Callable[[Connection], T], deadline: float) -> T:
        connection = self._take(deadline)
        self._deadlines.begin(connection, deadline)
        try:
            return work(connection)
        except (psycopg.Error, OSError) as problem:
            if went_away(problem):
                _close(connection)
                if connection.was_cut:
                    spent = FIRST_TRY * self._timeout
                    text = (
                        f"the server did not answer within {spent:g} s: its connection is given up"
                    )
                    logger.warning("%s", text)
                    raise Cut(text) from problem
                if has_broken(problem):
                    raise Cut(str(problem)) from problem
            raise
        finally:
            self._deadlines.end(connection)
            self._give(connection)

    def _take(self, deadline: float) -> Connection:
        while True:
            try:
                connection: Connection | None = self._idle.pop()  # no lock on the way of most
            except IndexError:
                connection = self._wait(deadline)
            if connection is not None:
                if not connection.has_unread_input():
                    return connection
                _close(connection)
                self._forget()
                continue
            try:
                return self._connect()
            except BaseException as problem:
                self._forget()
                if not self._is_server_full(problem):
                    raise

    def _wait(self, deadline: float) -> Connection | None:
        """Wait for an idle connection and return it; None if the caller may make a new one, which is
        counted already."""
        with self._changed:
            # First counted as waiting, then a look: a thread that gives back later is sure to notice.
            self._waiting += 1
            try:
                left = max(0.0, deadline - time.monotonic())
                if not self._changed.wait_for(lambda: self._idle or self._made < self._most, left):
                    raise DatabaseBusy(
                        f"all {self._made} connections of this engine were in use for "
                        f"{self._timeout:g} s"
                    )
                if self._idle:
                    return self._idle.pop()
                self._made += 1
                return None
            finally:
                self._waiting -= 1

    def _is_server_full(self, problem: BaseException) -> bool:
        """The server has no more connections, but we have some: they are shared for a while."""
        with self._changed:
            if not self._made or not any(words in str(problem) for words in _TOO_MANY):
                return False
            self._most = self._made
            self._full_until = time.monotonic() + _FULL
            return True

    def _give(self, connection: Connection) -> None:
        sound = not connection.closed and (
            connection.pgconn.transaction_status == TransactionStatus.IDLE
        )
        if not sound or self._closed or connection.was_cut:
            _close(connection)
            self._forget()
            return
        connection.used_at = time.monotonic()
        self._idle.append(connection)
        if self._waiting:
            with self._changed:
                self._changed.notify()

    def tidy(self, now: float) -> None:
        """Close connections that were not used for a while. (The last one given back is the first one
        taken, so that some stay unused.)"""
        if now > self._full_until:
            self._most = MOST
        with suppress(IndexError):  # others take them meanwhile
            while now - self._idle[0].used_at > UNUSED:
                _close(self._idle.pop(0))
                self._forget()

    def _forget(self) -> None:
        with self._changed:
            self._made -= 1
            self._changed.notify()

    def _drop_idle(self) -> None:
        with suppress(IndexError):  # none is left
            while True:
                _close(self._idle.pop())
                self._forget()

    def close(self) -> None:
        self._closed = True
        self._drop_idle()


def _close(connection: Connection) -> None:
    with suppress(psycopg.Error, OSError):
        connection.close()
