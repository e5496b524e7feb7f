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
        self._room = threading.Semaphore(MOST)
        self._idle: list[Connection] = []
        self._closed = False

    def use(self, work: Callable[[Connection], T]) -> T:
        """Do it, and once more on a new connection if the server went away meanwhile. Every verb may
        be repeated: an insert by its ids, a finish by its claim, the rest by what it says."""
        if not self._room.acquire(timeout=_PATIENCE):
            raise DatabaseBusy(
                f"all {MOST} connections of this engine were in use for {_PATIENCE:g} s"
            )
        try:
            connection = self._take()
            try:
                return work(connection)
            except (psycopg.Error, OSError) as problem:
                if not went_away(problem):
                    raise
                self._drop(connection)
                connection = self._connect()
                return work(connection)
            finally:
                self._give(connection)
        finally:
            self._room.release()

    def _take(self) -> Connection:
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def _give(self, connection: Connection) -> None:
        sound = not connection.closed and (
            connection.pgconn.transaction_status == TransactionStatus.IDLE
        )
        if sound and not self._closed:
            self._idle.append(connection)
        else:
            _close(connection)

    def _drop(self, broken: Connection) -> None:
        """What happened to one has happened to all that are idle."""
        _close(broken)
        while self._idle:
            _close(self._idle.pop())

    def close(self) -> None:
        self._closed = True
        while self._idle:
            _close(self._idle.pop())


def _close(connection: Connection) -> None:
    with suppress(psycopg.Error, OSError):
        connection.close()
