"""Ends calls that a server does not answer, and closes connections that were not used for a while.

A server or a proxy can keep a connection alive and say nothing for ever. A thread that waits for it
cannot end its own wait; so one thread of each engine looks at all of them, and shuts down the socket of
a call that is overdue, which ends the wait with an error.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psycopg

from holdfast.engine.postgres.connection import Connection

logger = logging.getLogger("holdfast.engine")

LOOK = 0.5  # seconds between two looks


class CallDeadlines:
    """The calls under way on the connections of one engine, and the thread that ends overdue ones."""

    def __init__(self) -> None:
        self._calls: dict[
            Connection, float
        ] = {}  # until when each may take, by the monotonic clock
        # Held while a socket is shut down, so that its call does not end and another begin meanwhile.
        self._ending = threading.Lock()
        self._tidy: list[Callable[[float], None]] = []
        self._starting = threading.Lock()
        self._users = 0
        self._closed = threading.Event()
        # Made by `start()`: Python 3.13 cannot start a thread after a fork that was made before it.
        self._thread: threading.Thread | None = None

    def start(self, *tidy: Callable[[float], None]) -> None:
        """Start the thread, unless it runs. Each `start()` needs a `close()`; the last of them ends the
        thread. `tidy`: called with the time at each look."""
        with self._starting:
            self._tidy += tidy
            self._users += 1
            if self._thread is None or not self._thread.is_alive():
                closed = self._closed = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=[closed], name="holdfast-deadlines", daemon=True
                )
                self._thread.start()

    def close(self) -> None:
        with self._starting:
            self._users -= 1
            if self._users or self._thread is None:
                return
            self._closed.set()
            self._thread.join(2 * LOOK)
            self._thread = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the thread run inside: without it nothing is `bounded`."""
        self.start()
        try:
            yield
        finally:
            self.close()

    def begin(self, connection: Connection, deadline: float) -> None:
        self._calls[connection] = deadline

    def end(self, connection: Connection) -> None:
        with self._ending:
            self._calls.pop(connection, None)

    @contextmanager
    def bounded(self, connection: Connection, seconds: float) -> Iterator[None]:
        """End calls on the connection inside the block after `seconds`, or at the bound of an outer
        block if that comes first. They raise psycopg's OperationalError then."""
        outer = self._calls.get(connection)
        deadline = time.monotonic() + seconds
        self.begin(connection, deadline if outer is None else min(outer, deadline))
        try:
            yield
        except (psycopg.Error, OSError) as problem:
            if connection.was_cut:
                text = f"the server did not answer within {seconds:g} s"
                raise psycopg.OperationalError(text) from problem
            raise
        finally:
            self.end(connection)
            if outer is not None:
                self.begin(connection, outer)

    def _run(self, closed: threading.Event) -> None:
        while not closed.wait(LOOK):
            now = time.monotonic()
            for connection, deadline in self._calls.copy().items():
                if now > deadline:
                    with _logged("end an overdue call"):
                        self._end_overdue(connection, deadline)
            for tidy in self._tidy:
                with _logged("close idle connections"):
                    tidy(now)

    def _end_overdue(self, connection: Connection, deadline: float) -> None:
        with self._ending:
            if self._calls.get(connection) == deadline:
                connection.was_cut = True
                _shut_down(connection)


@contextmanager
def _logged(what: str) -> Iterator[None]:
    """Log any exception: without this thread no call of the engine would have a deadline."""
    try:
        yield
    except Exception:
        logger.exception("could not %s; trying again in %g s", what, LOOK)


def _shut_down(connection: Connection) -> None:
    """End the wait of the thread that uses a connection. (That thread closes the connection.)"""
    with suppress(psycopg.Error, OSError):
        number = os.dup(connection.fileno())
        try:
            same = socket.socket(fileno=number)
        except BaseException:
            os.close(number)
            raise
        with same:
            same.shutdown(socket.SHUT_RDWR)
