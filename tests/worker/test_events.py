"""Events: what listeners of this process are told."""

import threading
from typing import Any

import pytest

from holdfast import Context, Event, Holdfast, InvalidInput, Snooze
from tests.support.waiting import PATIENCE, finished, until


def test_listeners_get_the_events_of_a_job_in_order(app: Holdfast) -> None:
    told: list[Event] = []
    app.on()(told.append)

    @app.task(backoff=0.05)
    def is_alive(ctx: Context) -> dict[str, int]:
        if ctx.job.claim_no == 1:
            raise Snooze(0.05)
        if ctx.attempt == 1:
            raise ValueError("once")
        return {"n": 1}

    job = is_alive.enqueue()
    with app.worker():
        finished(app, job)
        until(lambda: told[-1].kind == "completed")
    assert [event.kind for event in told] == [
        "enqueued",
        "started",
        "snoozed",
        "started",
        "retrying",
        "started",
        "completed",
    ]
    assert {event.job.id for event in told} == {job.id}
    retrying, completed = told[4], told[6]
    assert (retrying.error, retrying.retry_in) == ("ValueError: once", 0.05)
    assert (completed.result, completed.error, completed.job.attempts) == ('{"n":1}', None, 2)


def test_listeners_get_failures_when_they_are_final(app: Holdfast) -> None:
    told: list[Event] = []
    app.on("failed")(told.append)

    @app.task(max_attempts=2)
    async def fails() -> None:
        raise ValueError("no")

    with app.worker():
        finished(app, fails.enqueue())
        until(lambda: told)
    assert [(e.kind, e.error, e.retry_in) for e in told] == [("failed", "ValueError: no", None)]


def test_listeners_get_progress_when_it_is_written(app: Holdfast) -> None:
    told: list[Event] = []
    heard = threading.Event()

    @app.on("progress")
    def hear(event: Event) -> None:
        told.append(event)
        heard.set()

    @app.task
    def moves(ctx: Context) -> None:
        ctx.progress(25, "a quarter")
        assert heard.wait(PATIENCE)

    job = moves.enqueue()
    with app.worker():
        finished(app, job)
    [event] = told
    assert (event.job.id, event.progress, event.message) == (job.id, 25.0, "a quarter")


def test_a_listener_that_raises_harms_no_job(
    app: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Any] = []

    @app.on()
    def breaks(event: Event) -> None:
        raise ValueError("the listener")

    app.on()(told.append)

    @app.task
    def runs() -> None: ...

    with app.worker():
        assert finished(app, runs.enqueue()).status == "completed"
        until(lambda: len(told) == 3)
    assert "a listener to completed failed" in caplog.text


def test_an_unknown_event_is_refused(app: Holdfast) -> None:
    with pytest.raises(InvalidInput, match="there are enqueued, started"):
        app.on("complete")(print)
