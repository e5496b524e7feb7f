"""What follows a failed run: retries, permanent errors, snoozes; and what is kept of each."""

import threading
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pytest

from holdfast import Backoff, Context, Discard, Event, Holdfast, Retry, Snooze
from tests.conftest import Database
from tests.support.waiting import PATIENCE, finished, until, wait_for_status


def test_a_failing_job_has_max_attempts(app: Holdfast) -> None:
    runs: list[int] = []

    @app.task(max_attempts=3)
    async def fails(ctx: Context) -> None:
        runs.append(ctx.attempt)
        raise ValueError(f"attempt {ctx.attempt}")

    job = fails.enqueue()
    with app.worker():
        done = finished(app, job)
    assert runs == [1, 2, 3]
    assert (done.status, done.attempts, done.error) == ("failed", 3, "ValueError: attempt 3")
    assert done.completed_at is not None


def test_a_success_clears_the_error(app: Holdfast) -> None:
    @app.task
    def recovers(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise ValueError("at first")
        return "well"

    job = recovers.enqueue()
    with app.worker():
        done = finished(app, job)
    assert (done.status, done.attempts, done.error, done.result) == ("completed", 2, None, "well")
    assert [attempt.error for attempt in app.jobs.attempts(job.id)] == ["ValueError: at first"]


BACKOFFS: dict[str, tuple[Any, list[float]]] = {
    "growing": (Backoff(delay=0.2, multiplier=3, jitter=0), [0.2, 0.6]),
    "capped": (Backoff(delay=0.2, multiplier=3, cap=0.3, jitter=0), [0.2, 0.3]),
    "constant": (0.2, [0.2, 0.2]),
    "function": (lambda attempts: attempts / 5, [0.2, 0.4]),
    "broken-function": (lambda attempts: 1 / 0, []),
}


def test_retries_are_delayed_by_the_backoff(app: Holdfast) -> None:
    """Told by the events, and kept by the database: no run begins before its time."""
    told: dict[str, list[float | None]] = {}
    app.on("retrying")(lambda event: told.setdefault(event.job.type, []).append(event.retry_in))

    def fails() -> None:
        raise ValueError

    jobs = {}
    for name, (backoff, _) in BACKOFFS.items():
        jobs[name] = app.task(name=name, backoff=backoff)(fails).enqueue()
    with app.worker():
        # A function that raises does not keep the failure from being recorded.
        assert wait_for_status(app, jobs.pop("broken-function"), "retrying").attempts == 1
        for job in jobs.values():
            finished(app, job)
    for name, job in jobs.items():
        delays = BACKOFFS[name][1]
        assert told[name] == pytest.approx(delays)
        third, second, first = app.jobs.attempts(job.id)
        for before, after, delay in ((first, second, delays[0]), (second, third, delays[1])):
            assert after.started_at is not None
            # The end is a little later than the moment from which the delay counts.
            assert after.started_at - before.finished_at >= timedelta(seconds=delay - 0.05)


def test_a_waiting_retry_is_retrying_and_has_no_worker(app: Holdfast) -> None:
    @app.task(backoff="1h")
    def fails() -> None:
        raise ValueError("no")

    job = fails.enqueue()
    with app.worker():
        now = wait_for_status(app, job, "retrying")
    assert (now.attempts, now.error) == (1, "ValueError: no")
    assert (now.worker_id, now.started_at, now.completed_at) == (None, None, None)
    assert now.run_at - now.updated_at >= timedelta(minutes=59)


@pytest.mark.parametrize("kind", ["async", "def"])
def test_each_failed_attempt_is_recorded(app: Holdfast, kind: str) -> None:
    def breaks(attempt: int) -> None:
        raise LookupError(f"attempt {attempt}")

    @app.task(name="async", max_attempts=2)
    async def asynchronous(ctx: Context) -> None:
        breaks(ctx.attempt)

    @app.task(name="def", max_attempts=2)
    def plain(ctx: Context) -> None:
        breaks(ctx.attempt)

    begin = datetime.now(UTC)
    job = app.enqueue(kind)
    with app.worker() as worker:
        finished(app, job)
        name = worker.id
    end = datetime.now(UTC)
    second, first = app.jobs.attempts(job.id)
    assert [(a.attempt, a.claim_no, a.status) for a in (first, second)] == [
        (1, 1, "retrying"),
        (2, 2, "failed"),
    ]
    for number, attempt in enumerate((first, second), 1):
        assert (attempt.worker_id, attempt.error) == (name, f"LookupError: attempt {number}")
        assert attempt.trace is not None
        assert "in breaks" in attempt.trace
        assert attempt.trace.endswith(f"LookupError: attempt {number}\n")
        assert attempt.started_at is not None
        assert begin <= attempt.started_at <= attempt.finished_at <= end


class Transient(Exception):
    pass


class Permanent(Exception):
    pass


DECISIONS: list[tuple[dict[str, Any], Exception, int]] = [
    ({}, Discard("no use"), 1),
    ({"discard_on": Permanent}, Permanent("gone"), 1),
    ({"discard_on": (Permanent,)}, Transient("later"), 3),
    ({"retry_on": (Transient,)}, Transient("later"), 3),
    ({"retry_on": (Transient,)}, ValueError("else"), 1),
    ({"retry_on": (Transient,)}, Retry("please", after=0), 3),
    ({"retry_on": Exception, "discard_on": Permanent}, Permanent("both"), 1),
]


@pytest.mark.parametrize("kind", ["async", "def"])
def test_error_classes_decide_about_retries(app: Holdfast, kind: str) -> None:
    def add(number: int, options: dict[str, Any], error: Exception) -> Any:
        if kind == "async":

            async def fails() -> None:
                raise error
        else:

            def fails() -> None:  # type: ignore[misc]
                raise error

        return app.task(name=f"case-{number}", **options)(fails)

    jobs = [
        add(number, options, error).enqueue()
        for number, (options, error, _) in enumerate(DECISIONS)
    ]
    with app.worker():
        for job, (_, error, attempts) in zip(jobs, DECISIONS, strict=True):
            done = finished(app, job)
            assert (done.status, done.attempts) == ("failed", attempts), done.type
            assert done.error == f"{type(error).__name__}: {error}"
            assert len(app.jobs.attempts(job.id)) == attempts


def test_a_job_may_override_its_tasks_max_attempts(app: Holdfast) -> None:
    @app.task(max_attempts=5)
    def fails() -> None:
        raise ValueError

    job = fails.using(max_attempts=1).enqueue()
    with app.worker():
        assert finished(app, job).attempts == 1


def test_retry_chooses_the_delay(app: Holdfast) -> None:
    told: list[Event] = []
    app.on("retrying")(told.append)

    @app.task(backoff="1h")
    def asks(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise Retry("not yet", after=0.2)

    job = asks.enqueue()
    with app.worker():
        done = finished(app, job)
    assert (done.status, done.attempts) == ("completed", 2)
    assert [(event.error, event.retry_in) for event in told] == [("Retry: not yet", 0.2)]


def test_retry_spends_an_attempt(app: Holdfast) -> None:
    @app.task(max_attempts=2)
    def asks() -> None:
        raise Retry(after=0)

    with app.worker():
        done = finished(app, asks.enqueue())
    assert (done.status, done.attempts) == ("failed", 2)


@pytest.mark.parametrize("kind", ["async", "def"])
def test_snooze_spends_no_attempt_and_is_no_failure(app: Holdfast, kind: str) -> None:
    told: list[str] = []
    app.on()(lambda event: told.append(event.kind))

    def waits(ctx: Context) -> int:
        if ctx.job.claim_no < 4:
            raise Snooze(0.05)
        return ctx.attempt

    @app.task(name="async", max_attempts=1)
    async def asynchronous(ctx: Context) -> int:
        return waits(ctx)

    @app.task(name="def", max_attempts=1)
    def plain(ctx: Context) -> int:
        return waits(ctx)

    job = app.enqueue(kind)
    with app.worker():
        done = finished(app, job)
        until(lambda: "completed" in told)
    assert (done.status, done.result, done.attempts) == ("completed", 1, 1)
    assert app.jobs.attempts(job.id) == []
    assert told == ["enqueued", *["started", "snoozed"] * 3, "started", "completed"]


def test_a_snoozed_job_is_scheduled(app: Holdfast) -> None:
    @app.task
    def waits() -> None:
        raise Snooze("1h")

    job = waits.enqueue()
    with app.worker():
        now = wait_for_status(app, job, "scheduled")
    assert (now.attempts, now.error, now.worker_id) == (0, None, None)
    assert now.run_at - now.updated_at >= timedelta(minutes=59)


def test_an_error_whose_text_cannot_be_shown_is_recorded(app: Holdfast) -> None:
    class Strange(Exception):
        def __str__(self) -> str:
            raise RuntimeError("and no text either")

    @app.task(max_attempts=1)
    def fails() -> None:
        raise Strange

    with app.worker():
        done = finished(app, fails.enqueue())
    assert (done.status, done.error) == ("failed", "Strange: (its message cannot be shown)")


def test_error_classes_decide_about_retries_across_a_process(processes: ModuleType) -> None:
    app = processes.app
    with app.worker():
        fails = processes.fails.enqueue()
        done = [
            finished(app, job)
            for job in (fails, processes.discards.enqueue(), processes.snoozes.enqueue())
        ]
    assert [(job.status, job.attempts) for job in done] == [
        ("failed", 2),
        ("failed", 1),
        ("completed", 1),
    ]
    assert (done[0].error, done[1].error) == ("ValueError: attempt 2", "Discard: no use")
    assert done[2].result == 1
    second, first = app.jobs.attempts(fails.id)
    assert first.error == "ValueError: attempt 1"
    assert "in fails" in str(second.trace)
    assert app.jobs.count(type="after") == 0, "what a failed run enqueued"


def test_a_retry_that_is_written_while_the_next_due_time_is_read_comes_in_time(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reading does not know of it, and says that nothing is due for an hour."""
    app = database.app(poll_interval=3600)
    handler_runs, armed = threading.Event(), threading.Event()
    is_read, expected = threading.Event(), threading.Event()
    next_due = app.engine.next_due

    def read_slowly() -> float | None:
        due = next_due()
        if armed.is_set() and not is_read.is_set():
            is_read.set()
            assert expected.wait(PATIENCE)
        return due

    @app.task
    def flaky(ctx: Context) -> None:
        if ctx.attempt == 1:
            handler_runs.set()
            assert is_read.wait(PATIENCE)
            raise Retry(after=0.2)

    @app.task
    def quick() -> None: ...

    quick.using(delay="1h").enqueue()
    monkeypatch.setattr(app.engine, "next_due", read_slowly)
    worker = app.worker()
    with worker:
        expect = worker._dispatcher.expect

        def note(seconds: float) -> None:
            expect(seconds)
            expected.set()

        monkeypatch.setattr(worker._dispatcher, "expect", note)
        job = flaky.enqueue()
        assert handler_runs.wait(PATIENCE)
        until(lambda: worker._dispatcher._due_is_known)
        armed.set()
        worker._dispatcher.clock_was_set()  # have it read once more, without any hint
        assert finished(app, job).status == "completed"


def test_a_job_of_which_no_hint_came_is_found_by_the_poll_when_it_is_due(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker knows of a job that is due in an hour, and hears nothing of a sooner one."""
    app, elsewhere = database.app(poll_interval=0.2), database.app()

    @app.task
    def quick() -> None: ...

    quick.using(delay="1h").enqueue()
    with app.worker() as worker:
        until(lambda: worker._dispatcher._due_is_known)
        monkeypatch.setattr(worker._dispatcher, "_note_hints", lambda hints: None)
        job = elsewhere.enqueue("quick", delay=0.3)
        assert finished(app, job).status == "completed"
