"""Events as they are sent: encoded once, however many follow. Pure."""

import json
from dataclasses import replace
from typing import Any, Literal

from holdfast.events.event import JobEvent
from holdfast.jobs.job import FINISHED, EventKind, Job, Json, Status
from holdfast.jobs.job_json import iso

#: whole: all; bare: without results; result: for guests who are told it; guest: for all other guests.
View = Literal["whole", "bare", "result", "guest"]
NAMES = {kind: f"job:{kind.value}" for kind in EventKind} | {EventKind.COMPLETED: "job:complete"}
KINDS = {name: kind for kind, name in NAMES.items()} | {kind.value: kind for kind in EventKind}
#: What a guest with a link is told.
FOR_GUESTS = (
    *(EventKind.STARTED, EventKind.PROGRESS, EventKind.RETRYING),
    *(EventKind.COMPLETED, EventKind.FAILED, EventKind.CANCELLED),
)
_INSIDE = ("worker_id", "queue", "entity_type", "entity_id")  #: nobody's business outside
_HIDDEN: dict[View, tuple[str, ...]] = {
    "whole": (),
    "bare": ("result",),
    "result": _INSIDE,
    "guest": ("result", "error", *_INSIDE),
}


class Frame:
    """One message. Its texts are made when first asked for, and shared by all who get them."""

    __slots__ = ("_texts", "event", "name", "position", "size")

    def __init__(self, event: JobEvent, result: Json) -> None:
        """`result` as it may be shown; the event itself is kept without it, since many are kept."""
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
        """As JSON."""
        text = self._texts.get(view)
        if text is None:
            text = self._texts[view] = self._make(view)
        return text

    def _make(self, view: View) -> str:
        data = data_of(self.event, None)
        if not any(key in data for key in _HIDDEN[view]):
            return self._texts["whole"]
        return message(self.name, without(data, view), self.position)

    def sse(self, view: View) -> str:
        """As an event stream has it."""
        key = f"sse {view}"
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = sse(self.name, self.text(view), self.position)
        return text


def message(name: str, data: dict[str, Any], position: int) -> str:
    """ASCII and on one line, whatever a job holds."""
    told = {"event": name, "data": data, "position": position}
    return json.dumps(told, allow_nan=False, separators=(",", ":"))


def sse(name: str, text: str, id: int | str) -> str:
    return f"id: {id}\nevent: {name}\ndata: {text}\n\n"


def data_of(event: JobEvent, result: Json) -> dict[str, Any]:
    told: dict[str, Any] = {"job_id": event.job_id, "type": event.type}
    match event.kind:
        case EventKind.PROGRESS:
            return told | {
                "status": event.status.value,
                "progress": event.progress,
                "message": event.message,
            }
        case EventKind.COMPLETED:
            left_out = {"result_left_out": True} if event.result_left_out else {}
            return told | {"result": result} | left_out
        case EventKind.FAILED:
            return told | _failure(event)
        case EventKind.RETRYING:
            again = {"run_at": iso(event.run_at)}
            return told | {"status": event.status.value} | _failure(event) | again
    told |= {
        "status": event.status.value,
        "queue": event.queue,
        "entity_type": event.entity_type,
        "entity_id": event.entity_id,
        "attempts": event.attempts,
        "max_attempts": event.max_attempts,
    }
    if event.kind is EventKind.STARTED:
        told["worker_id"] = event.worker_id
    elif event.kind is EventKind.CANCELLED:
        told["error"] = event.error
    else:
        told["run_at"] = iso(event.run_at)
    return told


def _failure(of: JobEvent | Job) -> dict[str, Any]:
    return {"error": of.error, "attempts": of.attempts, "max_attempts": of.max_attempts}


def without(data: dict[str, Any], view: View) -> dict[str, Any]:
    """What is left for those who may not see all of it. Its keys stay."""
    hidden = [key for key in _HIDDEN[view] if key in data]
    left_out = {"result_left_out": True} if "result" in hidden else {}
    return data | dict.fromkeys(hidden) | left_out


def present(job: Job, result: Json) -> tuple[str, dict[str, Any]]:
    """How a job stands, as the event that would have told so."""
    told: dict[str, Any] = {"job_id": job.id, "type": job.type}
    if job.status is Status.COMPLETED:
        return NAMES[EventKind.COMPLETED], told | {"result": result}
    if job.status is Status.FAILED:
        return NAMES[EventKind.FAILED], told | _failure(job)
    told["status"] = job.status.value
    if job.status is Status.CANCELLED:
        entity = {"entity_type": job.entity_type, "entity_id": job.entity_id}
        return NAMES[EventKind.CANCELLED], told | {"queue": job.queue} | entity | _failure(job)
    return NAMES[EventKind.PROGRESS], told | {"progress": job.progress, "message": job.message}
