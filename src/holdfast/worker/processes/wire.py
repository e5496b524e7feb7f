"""What a worker and its handler processes say to each other: JSON, a line each, over a socket."""

import dataclasses
import json
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

from holdfast.jobs.job import Body, Edge, Job, NewJob, Status
from holdfast.jobs.outcome import Ended, Raised, Returned, Snoozed, Unreadable

_TIMES = (
    *("created_at", "updated_at", "run_at", "started_at", "completed_at", "keep_until"),
    *("expires_at", "due_at", "last_run_at", "unreadable_since"),
)


_MOST_UNSENT = 65_536  # bytes that are kept for one that does not read
_LOOK = 1.0  # seconds between two looks whether the other end's process lives


class Wire:
    """One end. Any thread may send; one reads."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()  # two messages at once could be mixed
        self._unsent = b""
        self._part: list[bytes] = []  # of a message that has not come whole yet
        self._lines: deque[bytes] = deque()
        self.is_shut = False  #: by us

    def send(self, message: dict[str, Any]) -> bool:
        """Wait until it is sent. False: the other end is gone."""
        try:
            with self._sending:
                self._connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return False
        return True

    def send_now(self, message: dict[str, Any]) -> bool:
        """Send without waiting, to one that may be frozen. What it does not take now is kept for the
        next call. False: the message is dropped, since too much is kept already, or the other end is
        gone. (Not to be mixed with `send`.)"""
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

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self.messages()

    def messages(self, lives: Callable[[], bool] | None = None) -> Iterator[dict[str, Any]]:
        """What comes, until the other end is gone. `lives`: whether its process does; asked since
        others that it started may keep the connection open after its death."""
        try:
            while True:
                while self._lines:
                    yield json.loads(self._lines.popleft())
                if lives is not None and not self._comes_within(_LOOK):
                    if lives():
                        continue
                    if not self._comes_within(0):
                        return
                data = self._connection.recv(65536)
                if not data:
                    return
                self._part.append(data)
                if b"\n" in data:
                    *lines, rest = b"".join(self._part).split(b"\n")
                    self._lines += lines
                    self._part = [rest]
        except (OSError, ValueError):  # gone, also in the middle of a message
            return

    def _comes_within(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        return bool(poll.poll(1000 * seconds))

    def shut(self) -> None:
        """Let who reads here see the end, whoever keeps the other end open."""
        self.is_shut = True
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._connection.close()


def pack_job(job: Job) -> dict[str, Any]:
    fields = {field.name: getattr(job, field.name) for field in dataclasses.fields(job)}
    for name in _TIMES:
        fields[name] = fields[name] and fields[name].isoformat()
    fields["body"] = list(job.body or Body("{}"))
    return fields


def unpack_job(fields: dict[str, Any]) -> Job:
    for name in _TIMES:
        fields[name] = fields[name] and datetime.fromisoformat(fields[name])
    return Job(**{**fields, "status": Status(fields["status"]), "body": Body(*fields["body"])})


def pack_ended(ended: Ended) -> dict[str, Any]:
    match ended:
        case Returned(result, enqueue, next_run):
            return {
                "returned": result,
                "enqueue": [_pack_new(job) for job in enqueue],
                "next_run": next_run.isoformat() if isinstance(next_run, datetime) else next_run,
            }
        case Raised():
            return {"raised": list(ended)}
        case Snoozed(delay):
            return {"snoozed": delay}
        case Unreadable(error):
            return {"unreadable": error}
        case _:
            raise TypeError(f"a handler does not end so: {ended!r}")


def unpack_ended(message: dict[str, Any]) -> Ended:
    if "raised" in message:
        return Raised(*message["raised"])
    if "snoozed" in message:
        return Snoozed(message["snoozed"])
    if "unreadable" in message:
        return Unreadable(message["unreadable"])
    next_run = message["next_run"]
    return Returned(
        message["returned"],
        tuple(_unpack_new(one) for one in message["enqueue"]),
        datetime.fromisoformat(next_run) if isinstance(next_run, str) else next_run,
    )


def _pack_new(job: NewJob) -> dict[str, Any]:
    fields = {field.name: getattr(job, field.name) for field in dataclasses.fields(job)}
    fields["run_at"] = job.run_at and job.run_at.isoformat()
    return fields


def _unpack_new(fields: dict[str, Any]) -> NewJob:
    run_at = fields["run_at"]
    after = tuple(Edge(*edge) for edge in fields["after"])
    return NewJob(**{**fields, "run_at": run_at and datetime.fromisoformat(run_at), "after": after})
