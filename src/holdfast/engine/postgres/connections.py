"""The connections of one engine: taken for one piece of work, given back, made anew when broken.

Written by hand where psycopg_pool would serve, because it is on the way of every single enqueue: the
pool took 90 µs of 560 (decision 0005). It has no threads, and a server that cannot be reached is
told at once, with the reason.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from holdfast.engine.postgres.connection import Connection, went_away
from holdfast.errors import DatabaseBusy

T = TypeVar("T")

MOST = 20  # at the same time
_PATIENCE = 30.0  # seconds to wait for one of them


class Connections:
    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._idle: list[Connection] = []
        self._changed = threading.Condition()
        self._made = 0
        self._waiting = 0
        self._closed = False

    def use(self, work: Callable[[Connection], T]) -> T:
        """Do it, and once more on a new connection if the server went away meanwhile. Every verb may
        be repeated: an insert by its ids, a finish by its claim, the rest by what it says."""
        try:
            return self._once(work)
        except (psycopg.Error, OSError) as problem:
            if not went_away(problem):
                raise
        self._drop_idle()  # what happened to one has happened to all that are idle
        return self._once(work)

    def _once(self, work: Callable[[Connection], T]) -> T:
        connection = self._take()
        try:
            return work(connection)
        finally:
            self._give(connection)

    def _take(self) -> Connection:
        try:
            return self._idle.pop()  # no lock on the way of most
        except IndexError:
            pass
        with self._changed:
            # First counted as waiting, then a look: who gives back later is sure to notice.
            self._waiting += 1
            try:
                found = self._changed.wait_for(lambda: self._idle or self._made < MOST, _PATIENCE)
                if not found:
                    raise DatabaseBusy(
                        f"all {MOST} connections of this engine were in use for {_PATIENCE:g} s"
                    )
                if self._idle:
                    return self._idle.pop()
                self._made += 1
            finally:
                self._waiting -= 1
        try:
            return self._connect()
        except BaseException:
            self._forget()
            raise

    def _give(self, connection: Connection) -> None:
        sound = not connection.closed and (
            connection.pgconn.transaction_status == TransactionStatus.IDLE
        )
        if not sound or self._closed:
            _close(connection)
            self._forget()
            return
        self._idle.append(connection)
        if self._waiting:
            with self._changed:
                self._changed.notify()

    def _forget(self) -> None:
        with self._changed:
            self._made -= 1
            self._changed.notify()

    def _drop_idle(self) -> None:
        while self._idle:
            _close(self._idle.pop())
            self._forget()

    def close(self) -> None:
        self._closed = True
        self._drop_idle()


def _close(connection: Connection) -> None:
    with suppress(psycopg.Error, OSError):
        connection.close()
