"""Events as they are sent: encoded once for all subscribers. Pure."""

import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from holdfast.events.event import JobEvent
from holdfast.jobs.job import FINISHED, EventKind, Job, Json, Status
from holdfast.jobs.job_json import iso

#: What a subscriber sees. whole: everything; bare: no results; result: for guests that may see the
#: result and the error; guest: for all other guests.
View = Literal["whole", "bare", "result", "guest"]
NAMES = {kind: f"job:{kind.value}" for kind in EventKind} | {EventKind.COMPLETED: "job:complete"}
KINDS = {name: kind for kind, name in NAMES.items()} | {kind.value: kind for kind in EventKind}
#: Events that a guest with a link gets.
FOR_GUESTS = (
    *(EventKind.STARTED, EventKind.PROGRESS, EventKind.RETRYING),
    *(EventKind.COMPLETED, EventKind.FAILED, EventKind.CANCELLED),
)
_INTERNAL = ("worker_id", "queue", "entity_type", "entity_id")  #: hidden from guests
_HIDDEN: dict[View, tuple[str, ...]] = {
    "whole": (),
    "bare": ("result",),
    "result": _INTERNAL,
    "guest": ("result", "error", *_INTERNAL),
}

_FINAL_KINDS = {
    Status.COMPLETED: EventKind.COMPLETED,
    Status.FAILED: EventKind.FAILED,
    Status.CANCELLED: EventKind.CANCELLED,
}


@dataclass(frozen=True)
class Message:
    name: str
    text: str  #: JSON, in one line of ASCII
    id: int | str  #: from which a browser resumes

    @cached_property
    def sse(self) -> str:
        """The message as part of an event stream."""
        if self.name == "ping":  # a comment: it only moves the position from which a client resumes
            return f": ping\nid: {self.id}\n\n"
        return f"id: {self.id}\nevent: {self.name}\ndata: {self.text}\n\n"


def message(name: str, data: dict[str, Any], position: int) -> Message:
    whole = {"event": name, "data": data, "position": position}
    return Message(name, json.dumps(whole, allow_nan=False, separators=(",", ":")), position)


class Frame:
    """An event. Its messages are made when first needed, and shared by all subscribers."""

    __slots__ = ("_messages", "event", "position", "size")

    def __init__(self, event: JobEvent, result: Json) -> None:
        """`result` is redacted. The event is kept without its result, since many events are kept."""
        self.event = replace(event, result=None) if event.result is not None else event
        self.position = event.position
        whole = message(NAMES[event.kind], data_of(event, result), event.position)
        self.size = len(whole.text)
        self._messages: dict[View, Message] = {"whole": whole}

    @property
    def is_final(self) -> bool:
        return self.event.status in FINISHED

    def message(self, view: View) -> Message:
        if view not in self._messages:
            made = whole = self._messages["whole"]
            data = data_of(self.event, None)
            if any(key in data for key in _HIDDEN[view]):
                made = message(whole.name, without(data, view), self.position)
            self._messages[view] = made
        return self._messages[view]


def data_of(event: JobEvent, result: Json) -> dict[str, Any]:
    """Return the data of an event, as its message has it."""
    data = _data(event.kind, event.job_id, event, result)
    if event.kind is EventKind.COMPLETED and event.result_left_out:
        data["result_left_out"] = True
    return data


def _data(kind: EventKind, job_id: str, of: JobEvent | Job, result: Json) -> dict[str, Any]:
    fields: dict[str, Any] = {"job_id": job_id, "type": of.type}
    attempts = {"attempts": of.attempts, "max_attempts": of.max_attempts}
    if kind is EventKind.COMPLETED:
        return fields | {"result": result}
    if kind is EventKind.FAILED:
        return fields | {"error": of.error} | attempts
    fields["status"] = of.status.value
    if kind is EventKind.PROGRESS:
        return fields | {"progress": of.progress, "message": of.message}
    if kind is EventKind.RETRYING:
        return fields | {"error": of.error} | attempts | {"run_at": iso(of.run_at)}
    entity = {"entity_type": of.entity_type, "entity_id": of.entity_id}
    fields |= {"queue": of.queue} | entity | attempts
    if kind is EventKind.STARTED:
        return fields | {"worker_id": of.worker_id}
    if kind is EventKind.CANCELLED:
        return fields | {"error": of.error}
    return fields | {"run_at": iso(of.run_at)}


def without(data: dict[str, Any], view: View) -> dict[str, Any]:
    """Return the data with None for what this view does not show."""
    hidden = [key for key in _HIDDEN[view] if key in data]
    left_out = {"result_left_out": True} if "result" in hidden else {}
    return data | dict.fromkeys(hidden) | left_out


def present(job: Job, result: Json) -> tuple[str, dict[str, Any]]:
    """Return the present state of a job as the event that led to it."""
    kind = _FINAL_KINDS.get(job.status, EventKind.PROGRESS)
    return NAMES[kind], _data(kind, job.id, job, result)
