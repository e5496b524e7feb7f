"""Wake-ups on PostgreSQL: NOTIFY with a queue's name, and nothing else in it.

Sending: NOTIFY makes commits queue behind one lock of the whole server. So our inserts notify at once
only up to a hundred times a second; in a burst they notify every 20 ms, and at its end. Receiving: one
connection LISTENs. When it breaks, a new one is opened, and workers look at all queues, because hints
may have been missed meanwhile.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import psycopg

from holdfast.engine.postgres.call_deadlines import CallDeadlines
from holdfast.engine.postgres.connection import Connection
from holdfast.engine.wakeups import EVERYWHERE, Wakeups

INTERVAL = 0.02  # seconds between two hints in a burst
OFTEN = 100.0  # hints a second: more is a burst
_SAVED = 10.0  # hints that a quiet time leaves for the next jobs
_RECONNECT = 1.0
_PING = 30.0
_ANSWER = 5.0  # seconds for an answer on the connection that listens


def channel(schema: str, events: bool = False) -> str:
    """Return the channel of NOTIFY that the statements `wake` (jobs/commands.postgres.sql) and `ring`
    (events/outbox.postgres.sql) use."""
    return f"{schema}_events" if events else f"{schema}_wake"


class Notifier:
    """Sends hints at our own inserts, not too often."""

    def __init__(self, send: Callable[[Iterable[str]], None]) -> None:
        self._send = send
        self._condition = threading.Condition()
        self._left: dict[str, tuple[float, float]] = {}  # hints that a queue had left, and when
        self._later: set[str] = set()
        self._thread: threading.Thread | None = None
        self._closed = False

    def due(self, queues: frozenset[str]) -> frozenset[str]:
        """The queues to hint at in the insert's own transaction. The others are for `later`."""
        now = time.monotonic()
        with self._condition:
            return frozenset(queue for queue in queues if self._spend(queue, now))

    def _spend(self, queue: str, now: float) -> bool:
        left, at = self._left.get(queue, (_SAVED, now))
        left = min(_SAVED, left + (now - at) * OFTEN)
        enough = left >= 1.0
        self._left[queue] = (left - 1.0 if enough else left, now)
        return enough

    def later(self, queues: frozenset[str]) -> None:
        """Send hints for these queues a little later. To be called after the commit: a hint before it
        would be of no use."""
        if self._later.issuperset(queues):
            return
        with self._condition:
            if self._closed:
                return
            self._later |= queues
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="holdfast-notifier", daemon=True
                )
                self._thread.start()
            self._condition.notify()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._later and not self._closed:
                    if not self._condition.wait(timeout=5.0):
                        self._thread = None
                        return
                if self._closed:
                    return
            time.sleep(INTERVAL)
            with self._condition:
                queues, self._later = self._later, set()
            with contextlib.suppress(Exception):  # a hint: polling is always correct
                self._send(queues)

    def close(self) -> None:
        with self._condition:
            self._closed = True
            thread = self._thread
            self._condition.notify()
        if thread is not None:
            thread.join(timeout=5.0)


class PostgresWakeups(Wakeups):
    """A subscription by LISTEN. `connect`: None where LISTEN cannot work; then waits only sleep."""

    def __init__(
        self,
        connect: Callable[[], Connection] | None,
        deadlines: CallDeadlines,
        channel: str,
        on_close: Callable[[Any], None],
    ) -> None:
        super().__init__(on_close)
        self._connect = connect
        self._deadlines = deadlines
        self._channel = channel
        self._connection: Connection | None = None
        self._retry_at = 0.0
        self._ping_at = 0.0
        self._listen()

    def wait(self, timeout: float) -> frozenset[str]:
        deadline = time.monotonic() + timeout
        while True:
            hints = self._heard() or self._slept(max(0.0, deadline - time.monotonic()))
            if hints is not None:
                return hints
            if time.monotonic() >= deadline:
                return frozenset()

    def _slept(self, seconds: float) -> frozenset[str] | None:
        """Wait until the connection can be read (None) or the time is up. Returns the hints of another
        thread of this process, if one ended the wait."""
        files: tuple[int, ...] = (self._pipe,)
        if self._connect is not None and self._connection is None:
            if time.monotonic() >= self._retry_at and self._listen():
                return EVERYWHERE
            seconds = min(seconds, max(0.0, self._retry_at - time.monotonic()))
        if self._connection is not None:
            files = (self._pipe, self._connection.fileno())
            seconds = min(seconds, _PING)
        ready = self._poll.wait(files, seconds)
        return self._read_pipe() if self._pipe in ready else None

    def _heard(self) -> frozenset[str]:
        connection = self._connection
        if connection is None:
            return frozenset()
        try:
            if time.monotonic() >= self._ping_at:
                with self._deadlines.bounded(connection, _ANSWER):
                    connection.execute("SELECT 1")  # a half-open connection says nothing by itself
                self._ping_at = time.monotonic() + _PING
            return frozenset(notify.payload for notify in connection.notifies(timeout=0))
        except (psycopg.Error, OSError):
            self._drop()
            return frozenset()

    def _listen(self) -> bool:
        if self._connect is None:
            return False
        try:
            self._connection = self._connect()
            with self._deadlines.bounded(self._connection, _ANSWER):
                self._connection.execute(f'LISTEN "{self._channel}"')
        except (psycopg.Error, OSError):
            self._drop()
            return False
        self._ping_at = time.monotonic() + _PING
        return True

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._retry_at = time.monotonic() + _RECONNECT

    def _release(self) -> None:
        self._drop()
