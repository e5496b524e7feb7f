"""The thread that ends overdue calls of a PostgreSQL engine."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NoReturn

import psycopg
import pytest

from holdfast.engine.postgres import call_deadlines as module
from holdfast.engine.postgres.call_deadlines import CallDeadlines
from holdfast.engine.postgres.connection import Connection


@pytest.fixture
def connection(postgres_url: str) -> Iterator[Connection]:
    with closing(Connection.connect(postgres_url, autocommit=True)) as connection:
        yield connection


@pytest.fixture
def deadlines() -> Iterator[CallDeadlines]:
    with closing(CallDeadlines()) as deadlines:
        yield deadlines


def test_the_thread_starts_with_the_first_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was made before a fork cannot be started after it, by Python 3.13.0."""
    made: list[threading.Thread] = []

    class Recorded(threading.Thread):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)
            made.append(self)

    monkeypatch.setattr(threading, "Thread", Recorded)
    deadlines = CallDeadlines()
    assert made == []
    deadlines.close()  # without a thread there is none to wait for
    deadlines = CallDeadlines()
    deadlines.start()
    assert [thread.is_alive() for thread in made] == [True]
    deadlines.close()
    assert [thread.is_alive() for thread in made] == [False]


def test_the_thread_survives_an_unexpected_exception(
    connection: Connection, deadlines: CallDeadlines, caplog: pytest.LogCaptureFixture
) -> None:
    raised = threading.Event()

    def tidy(_: float) -> NoReturn:
        raised.set()
        raise RuntimeError("not expected")

    deadlines.start(tidy)
    assert raised.wait(20)
    with pytest.raises(psycopg.OperationalError), deadlines.bounded(connection, 0.1):
        connection.execute("SELECT pg_sleep(60)")
    assert connection.was_cut
    assert "could not close idle connections; trying again" in caplog.text


def test_an_error_of_one_connection_does_not_keep_another_from_its_deadline(
    connection: Connection, deadlines: CallDeadlines, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def fileno(self) -> NoReturn:
            raise RuntimeError("not expected")

    deadlines.begin(Broken(), 0.0)
    deadlines.start()
    with pytest.raises(psycopg.OperationalError), deadlines.bounded(connection, 0.1):
        connection.execute("SELECT pg_sleep(60)")
    assert "could not end an overdue call" in caplog.text


def test_a_failed_socket_leaves_no_descriptor(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    class Refused(socket.socket):
        def __init__(self, *, fileno: int) -> None:
            made.append(fileno)
            raise OSError("too many open files")

    monkeypatch.setattr(socket, "socket", Refused)
    module._shut_down(connection)
    monkeypatch.undo()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(made[0])


def test_a_finished_call_is_not_interrupted(
    connection: Connection, deadlines: CallDeadlines
) -> None:
    deadline = time.monotonic() - 1
    deadlines.begin(connection, deadline)
    deadlines.end(connection)
    deadlines._end_overdue(connection, deadline)  # as a look that began before the end does
    assert not connection.was_cut
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_call_does_not_end_while_its_socket_is_shut_down(
    connection: Connection, deadlines: CallDeadlines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the next call would begin, on this connection, and lose its socket."""
    order: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def shut_down(_: Any) -> None:
        begun.set()
        assert go_on.wait(20)
        order.append("shut down")

    def end() -> None:
        deadlines.end(connection)
        order.append("ended")

    monkeypatch.setattr(module, "_shut_down", shut_down)
    deadlines.begin(connection, 0.0)
    deadlines.start()
    assert begun.wait(20)
    ends = threading.Thread(target=end)
    ends.start()
    ends.join(0.1)  # it would have ended by now
    go_on.set()
    ends.join(20)
    assert order == ["shut down", "ended"]
