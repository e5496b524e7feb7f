"""Events: what happened to jobs. `Event` is for the listeners of this process: one that raises is
logged, and the others are called. `JobEvent` is what any process reads from the outbox (feed.py)."""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

from holdfast.core.records import value
from holdfast.errors import InvalidInput
from holdfast.jobs.job import EventKind, Job, Json, Status

logger = logging.getLogger("holdfast")


@value
class Event:
    """Something that happened to a job in this process."""

    kind: EventKind
    job: Job  #: as this process knew it then
    error: str | None = None
    result: str | None = None  #: JSON text
    progress: float | None = None
    message: str | None = None
    retry_in: float | None = None  #: seconds


@value
class JobEvent:
    """Something that happened to a job, and the job's fields right after that."""

    position: int  #: to resume after this event: `app.events(after=event.position)`
    at: datetime
    kind: EventKind
    job_id: str
    type: str
    queue: str
    status: Status
    entity_type: str | None
    entity_id: Json
    attempts: int
    max_attempts: int
    claim_no: int
    worker_id: str | None
    run_at: datetime  #: when it runs again, if it is retried or was snoozed
    error: str | None
    result: Json  #: of a completed run
    result_left_out: bool  #: True: the result is too large for an event; use `app.jobs.get`
    progress: float | None
    message: str | None

    @property
    def entity(self) -> tuple[str, Json] | None:
        return None if self.entity_type is None else (self.entity_type, self.entity_id)

    @property
    def data(self) -> dict[str, Json]:
        """Return the fields that matter for an event of this kind, as JSON values."""
        data: dict[str, Json] = {
            "job_id": self.job_id,
            "type": self.type,
            "queue": self.queue,
            "entity": self.entity,
            "status": self.status.value,
        }
        match self.kind:
            case EventKind.PROGRESS:
                data |= {"progress": self.progress, "message": self.message}
            case EventKind.COMPLETED:
                data |= {"result": self.result}
                if self.result_left_out:
                    data["result_left_out"] = True
            case EventKind.FAILED | EventKind.RETRYING | EventKind.CANCELLED:
                data |= {"error": self.error, "attempts": self.attempts}
                data["max_attempts"] = self.max_attempts
            case EventKind.STARTED:
                data |= {"attempts": self.attempts, "worker_id": self.worker_id}
        if self.kind in (EventKind.RETRYING, EventKind.SNOOZED, EventKind.ENQUEUED):
            data["run_at"] = self.run_at.isoformat()
        return data


Listener = Callable[[Event], Any]


def some_kinds(kinds: tuple[str, ...]) -> list[EventKind]:
    """Return the kinds with these names; without names, all kinds."""
    try:
        return [EventKind(kind) for kind in kinds] or list(EventKind)
    except ValueError:
        raise InvalidInput(
            f"events {kinds!r}: there are {', '.join(EventKind)}; none given: all of them"
        ) from None


class Listeners:
    """The listeners of an application, by kind of event."""

    def __init__(self) -> None:
        self._of: dict[EventKind, list[Listener]] = {}

    def add(self, kinds: tuple[str, ...], listener: Listener) -> None:
        for kind in some_kinds(kinds):
            self._of.setdefault(kind, []).append(listener)

    def wants(self, kind: EventKind) -> bool:
        return kind in self._of

    def tell(self, event: Event) -> None:
        for listener in self._of.get(event.kind, ()):
            try:
                listener(event)
            except Exception:
                logger.exception("a listener to %s failed", event.kind)
