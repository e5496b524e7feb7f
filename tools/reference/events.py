"""The page of events: the fields of each kind, read from a sample of each."""

from datetime import UTC, datetime

from holdfast.events.event import JobEvent
from holdfast.jobs.job import EventKind, Status
from holdfast.web.live.frames import FOR_GUESTS, NAMES, data_of
from tools.reference.markdown import code, heading, plain, sentence, table
from tools.reference.source import source_of

MOMENT = datetime(2030, 1, 1, tzinfo=UTC)


def sample(kind: EventKind) -> JobEvent:
    return JobEvent(
        position=1,
        at=MOMENT,
        kind=kind,
        job_id="0",
        type="send",
        queue="default",
        status=Status.RUNNING,
        entity_type=None,
        entity_id=None,
        attempts=1,
        max_attempts=3,
        claim_no=1,
        worker_id="w",
        run_at=MOMENT,
        error=None,
        result=None,
        result_left_out=False,
        progress=None,
        message=None,
    )


def keys(kind: EventKind) -> list[str]:
    """Return the keys of `event.data`, in Python."""
    return list(sample(kind).data)


def sent(kind: EventKind) -> list[str]:
    """Return the keys of `data`, over SSE and WebSocket."""
    return list(data_of(sample(kind), None))


def page() -> str:
    words = {one.name: one.words for one in source_of(EventKind).fields()}
    python = (
        [code(kind.value), _meaning(words, kind), ", ".join(map(code, keys(kind)))]
        for kind in EventKind
    )
    live = (
        [code(NAMES[kind]), ", ".join(map(code, sent(kind))), "yes" if kind in FOR_GUESTS else ""]
        for kind in EventKind
    )
    return (
        "# Events\n\nThe events of a job, in Python, over SSE and over WebSocket. The guides: "
        "[Results and events](../guides/events.md), [Live events](../guides/live.md).\n"
        + heading(2, "In Python", "python")
        + "`app.events()` gives a [`JobEvent`](values.md#JobEvent) from every process, `@app.on(...)` "
        "an [`Event`](values.md#Event) from this one. `event.data` of a `JobEvent` has:\n"
        + table(("kind", "when", "`event.data`"), python)
        + "`result_left_out` is present, and true, if the result is larger than 64 KiB.\n"
        + heading(2, "Over SSE and WebSocket", "live")
        + '`{"event": ..., "data": {...}, "position": ...}`, at `/api/v1/events`:\n'
        + table(("event", "`data`", "with a link"), live)
        + "A stream also sends `hello`, `gone` and `ping`, which are about the stream itself: see "
        "[Live events](../guides/live.md#what-is-sent).\n"
    )


def _meaning(words: dict[str, str], kind: EventKind) -> str:
    return sentence(plain(words[kind.name])) or f"It is {kind.value}."
