"""Events: what happened to jobs, told to listeners in this process. They observe and change nothing;
one that raises is logged and harms nobody."""

import logging
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from holdfast.errors import InvalidInput
from holdfast.job import Job
from holdfast.value import value

logger = logging.getLogger("holdfast")


class EventKind(StrEnum):
    ENQUEUED = "enqueued"
    STARTED = "started"
    PROGRESS = "progress"
    COMPLETED = "completed"
    RETRYING = "retrying"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SNOOZED = "snoozed"
    RELEASED = "released"
    RESCUED = "rescued"


@value
class Event:
    """Something that happened to a job."""

    kind: EventKind
    job: Job  #: as it was known when it happened
    error: str | None = None
    result: str | None = None  #: JSON text
    progress: float | None = None
    message: str | None = None
    retry_in: float | None = None  #: seconds


Listener = Callable[[Event], Any]


class Listeners:
    """Who listens to what."""

    def __init__(self) -> None:
        self._of: dict[EventKind, list[Listener]] = {}

    def add(self, kinds: tuple[str, ...], listener: Listener) -> None:
        try:
            wanted = [EventKind(kind) for kind in kinds] or list(EventKind)
        except ValueError:
            raise InvalidInput(
                f"events {kinds!r}: there are {', '.join(EventKind)}; none given: all of them"
            ) from None
        for kind in wanted:
            self._of.setdefault(kind, []).append(listener)

    def wants(self, kind: EventKind) -> bool:
        return kind in self._of

    def tell(self, event: Event) -> None:
        for listener in self._of.get(event.kind, ()):
            try:
                listener(event)
            except Exception:
                logger.exception("a listener to %s failed", event.kind)
