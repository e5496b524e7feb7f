"""The listening socket of the web server, when the system refuses to accept."""

import errno
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.web.http.connections import ConnectionLimits
from holdfast.web.http.listener import Admission, Listener


@pytest.fixture
def listener() -> Iterator[Listener]:
    inner = socket.create_server(("127.0.0.1", 0))
    with Listener(Admission(ConnectionLimits(), (), tls=False), inner) as made:
        made.setblocking(False)
        yield made


@pytest.mark.parametrize("number", [errno.ENOBUFS, errno.ENOMEM, errno.ENFILE, errno.EMFILE])
def test_one_call_sleeps_once(
    listener: Listener, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop serves what is open between two attempts."""
    naps: list[float] = []

    def refuse(_: socket.socket) -> Any:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket.socket, "accept", refuse)
    monkeypatch.setattr(time, "sleep", naps.append)
    for count in (1, 2):
        with pytest.raises(BlockingIOError):
            listener.accept()
        assert len(naps) == count
