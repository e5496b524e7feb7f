"""Events as they are sent: encoded once for all subscribers. Pure."""

import json
from dataclasses import replace
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

_LED_TO = {
    Status.COMPLETED: EventKind.COMPLETED,
    Status.FAILED: EventKind.FAILED,
    Status.CANCELLED: EventKind.CANCELLED,
}


class Frame:
    """One message. Its texts are made when first needed, and shared by all subscribers."""

    __slots__ = ("_texts", "event", "name", "position", "size")

    def __init__(self, event: JobEvent, result: Json) -> None:
        """`result` is redacted. The event is kept without its result, since many events are kept."""
        self.event = replace(event, result=None) if event.result is not None else event
        self.position = event.position
        self.name = NAMES[event.kind]
        whole = message(self.name, data_of(event, result), event.position)
        self.size = len(whole)
        self._texts: dict[str, str] = {"whole": whole}

    @property
    def is_final(self) -> bool:
        return self.event.status in FINISHED

    def text(self, view: View) -> str:
        """Return the message as JSON."""
        if view not in self._texts:
            data = data_of(self.event, None)
            hides = any(key in data for key in _HIDDEN[view])
            made = message(self.name, without(data, view), self.position) if hides else None
            self._texts[view] = made or self._texts["whole"]
        return self._texts[view]

    def sse(self, view: View) -> str:
        """Return the message as part of an event stream."""
        key = f"sse {view}"
        if key not in self._texts:
            self._texts[key] = sse(self.name, self.text(view), self.position)
        return self._texts[key]


def message(name: str, data: dict[str, Any], position: int) -> str:
    """Return a message as one line of ASCII, whatever a job holds."""
    whole = {"event": name, "data": data, "position": position}
    return json.dumps(whole, allow_nan=False, separators=(",", ":"))


def sse(name: str, text: str, id: int | str) -> str:
    return f"id: {id}\nevent: {name}\ndata: {text}\n\n"


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
    kind = _LED_TO.get(job.status, EventKind.PROGRESS)
    return NAMES[kind], _data(kind, job.id, job, result)
