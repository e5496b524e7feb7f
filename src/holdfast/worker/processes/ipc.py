"""Messages between a process of ours and the processes that it starts: JSON, a line for each message,
over a socket."""

import json
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from pydantic import TypeAdapter

from holdfast.jobs.job import Job
from holdfast.jobs.outcome import Ended, Raised, Returned, Snoozed, Unreadable

_MOST_UNSENT = 65_536  # bytes that are kept for a process that does not read
_LOOK = 1.0  # seconds between two checks whether the other process is alive

_JOB = TypeAdapter(Job)
_ENDS: dict[str, TypeAdapter[Any]] = {
    kind.__name__: TypeAdapter(kind) for kind in (Returned, Raised, Snoozed, Unreadable)
}


class Channel:
    """One end of a connection between two processes. Any thread may send; one thread reads."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()  # two messages at the same time could be mixed
        self._unsent = b""
        self._part: list[bytes] = []  # of a message that has not arrived completely
        self.is_shut = False  #: by us

    def send(self, message: dict[str, Any]) -> bool:
        """Send a message, and wait until it is sent. Returns False if the other end is closed."""
        try:
            with self._sending:
                self._connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return False
        return True

    def send_now(self, message: dict[str, Any]) -> bool:
        """Send a message without waiting, to a process that may be frozen. Bytes that the socket does
        not take now are kept for the next call. Returns False if the message is dropped, since too many
        bytes are kept already, or the other end is closed. (Not to be mixed with `send`.)"""
        line = json.dumps(message).encode() + b"\n"
        with self._sending:
            try:
                sent = self._connection.send(self._unsent + line, socket.MSG_DONTWAIT)
            except BlockingIOError:
                sent = 0
            except OSError:
                return False
            if not sent and len(self._unsent) + len(line) > _MOST_UNSENT:
                return False
            self._unsent = (self._unsent + line)[sent:]
        return True

    def receive(self, *, wait: bool = True) -> list[bytes] | None:
        """Return the messages that one read completes, undecoded; None if the other end is closed, or
        has sent nothing and `wait` is False."""
        try:
            data = self._connection.recv(65536, 0 if wait else socket.MSG_DONTWAIT)
        except OSError:
            return None
        if not data:
            return None
        self._part.append(data)
        if b"\n" not in data:
            return []
        *lines, rest = b"".join(self._part).split(b"\n")
        self._part = [rest]
        return lines

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.messages()

    def messages(self, lives: Callable[[], bool] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the messages that arrive until the other end is closed. `lives`: returns whether the
        other process is alive; processes that it started may keep the connection open after its
        death."""
        while True:
            if lives is not None and not self._arrives_within(_LOOK):
                if lives():
                    continue
                if not self._arrives_within(0):
                    return
            lines = self.receive()
            if lines is None:
                return
            try:
                yield from map(json.loads, lines)
            except ValueError:
                return

    def _arrives_within(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        return bool(poll.poll(1000 * seconds))

    def fileno(self) -> int:
        return self._connection.fileno()

    def shut(self) -> None:
        """End `messages` here, whatever process keeps the other end open."""
        self.is_shut = True
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._connection.close()


def start_process(
    module: str, *files: int, **options: Any
) -> tuple["subprocess.Popen[bytes]", Channel]:
    """Start a module as a process, by exec. Its arguments are its end of the connection, and `files`.
    `options`: of Popen."""
    ours, theirs = socket.socketpair()
    with theirs:
        descriptors = (theirs.fileno(), *files)
        try:
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", module, *map(str, descriptors)],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                **options,
            )
        except BaseException:
            ours.close()
            raise
    return process, Channel(ours)


def pack_job(job: Job) -> dict[str, Any]:
    packed: dict[str, Any] = _JOB.dump_python(job, mode="json")
    return packed


def unpack_job(packed: dict[str, Any]) -> Job:
    return _JOB.validate_python(packed)


def pack_ended(ended: Ended) -> dict[str, Any]:
    name = type(ended).__name__
    return {"ended": name, "values": _ENDS[name].dump_python(ended, mode="json", warnings=False)}


def unpack_ended(message: dict[str, Any]) -> Ended:
    ended: Ended = _ENDS[message["ended"]].validate_python(message["values"])
    return ended
