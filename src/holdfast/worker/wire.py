"""What a worker and its handler processes say to each other: JSON, a line each, over a socket."""

import dataclasses
import json
import socket
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from holdfast.job import Body, Edge, Job, NewJob, Status
from holdfast.outcome import Ended, Raised, Returned, Snoozed

_TIMES = (
    *("created_at", "updated_at", "run_at", "started_at", "completed_at", "keep_until"),
    *("expires_at", "due_at", "last_run_at"),
)


class Wire:
    """One end. Any thread may send; one reads."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()  # two messages at once could be mixed
        self._file = connection.makefile("rb")

    def send(self, message: dict[str, Any]) -> bool:
        """False: the other end is gone."""
        try:
            with self._sending:
                self._connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return False
        return True

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """What comes, until the other end is gone."""
        try:
            for line in self._file:
                if line.endswith(b"\n"):
                    yield json.loads(line)
        except (OSError, ValueError):  # gone, also in the middle of a message
            return

    def close(self) -> None:
        self._file.close()
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
        case _:
            raise TypeError(f"a handler does not end so: {ended!r}")


def unpack_ended(message: dict[str, Any]) -> Ended:
    if "raised" in message:
        return Raised(*message["raised"])
    if "snoozed" in message:
        return Snoozed(message["snoozed"])
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
