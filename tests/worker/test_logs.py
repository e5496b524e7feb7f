"""What handlers write with `ctx.log` is kept with their job."""

import asyncio
import logging
import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from holdfast import Context, Holdfast, LogLine
from holdfast.core.log_format import MAX_LINE
from holdfast.errors import DatabaseUnavailable
from holdfast.worker.housekeeping import log_writer
from tests.support.waiting import finished, until, wait_for_status


@pytest.fixture(autouse=True)
def quick_logbook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "EVERY", 0.05)


def told(app: Holdfast, id: str) -> list[tuple[str, str]]:
    return [(line.level, line.text) for line in app.jobs.logs(id)]


def texts(app: Holdfast, id: str) -> list[str]:
    return [line.text for line in app.jobs.logs(id)]


def speak(ctx: Context) -> None:
    ctx.log.debug("not kept")
    ctx.log.info("hello %s", "there")
    ctx.log.log(25, "between")
    ctx.log.warning("%(n)d of two", {"n": 1})
    ctx.log.error("100 %")
    ctx.log.critical("the end")


SPOKEN = [
    ("info", "hello there"),
    ("info", "between"),
    ("warning", "1 of two"),
    ("error", "100 %"),
    ("critical", "the end"),
]


@pytest.mark.parametrize("kind", ["async", "def"])
def test_log_lines_are_stored_with_the_job(app: Holdfast, kind: str) -> None:
    @app.task(name="async")
    async def asynchronous(ctx: Context) -> None:
        speak(ctx)

    @app.task(name="def")
    def plain(ctx: Context) -> None:
        speak(ctx)

    job = app.enqueue(kind)
    with app.worker():
        done = finished(app, job)
    assert told(app, job.id) == SPOKEN
    lines = app.jobs.logs(job.id)
    assert [(line.claim_no, line.attempt, line.line_no) for line in lines] == [
        (1, 1, number) for number in range(1, 6)
    ]
    assert done.started_at is not None
    assert done.completed_at is not None
    slack = timedelta(seconds=0.5)  # PostgreSQL's clock is known by the claim's moment
    for line in lines:
        assert done.started_at - slack <= line.at <= done.completed_at + slack


def test_log_lines_of_a_process_are_stored(processes: ModuleType) -> None:
    app = processes.app
    job = processes.speaks.enqueue()
    with app.worker():
        finished(app, job)
    assert told(app, job.id) == [("info", "hello 7"), ("error", "a \\ud800 surrogate")]


def test_log_lines_of_a_process_that_dies_are_stored(processes: ModuleType) -> None:
    app = processes.app
    job = processes.speaks_and_dies.enqueue()
    with app.worker():
        wait_for_status(app, job, "failed")
    assert texts(app, job.id) == ["last words"] * 3  # three deaths, and it is failed


def test_log_lines_are_stored_however_logging_is_configured(app: Holdfast) -> None:
    logger = logging.getLogger("holdfast.job")

    @app.task
    def speaks(ctx: Context) -> None:
        speak(ctx)

    job = speaks.enqueue()
    logger.disabled, level = True, logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with app.worker():
            finished(app, job)
    finally:
        logger.disabled = False
        logger.setLevel(level)
    assert told(app, job.id) == SPOKEN


def test_log_records_name_the_caller(app: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    @app.task
    def speaks(ctx: Context) -> None:
        ctx.log.warning("here")
        ctx.log.log(logging.WARNING, "and here")

    with app.worker():
        finished(app, speaks.enqueue())
    records = [record for record in caplog.records if record.name == "holdfast.job"]
    assert [(Path(record.pathname).name, record.funcName) for record in records] == [
        ("test_logs.py", "speaks")
    ] * 2


def test_log_lines_are_visible_while_the_job_runs(app: Holdfast) -> None:
    go = threading.Event()

    @app.task
    async def moves(ctx: Context) -> None:
        ctx.log.info("begins")
        while not go.is_set():
            await asyncio.sleep(0.01)
        ctx.log.info("ends")

    job = moves.enqueue()
    with app.worker():
        [first] = until(lambda: app.jobs.logs(job.id))
        assert app.jobs.get(job.id).status == "running"
        go.set()
        [second] = until(lambda: app.jobs.logs(job.id, after=first.cursor))
    assert (first.text, second.text) == ("begins", "ends")


def test_each_run_has_its_own_log_lines(app: Holdfast) -> None:
    @app.task
    def stumbles(ctx: Context) -> None:
        ctx.log.info("attempt %d", ctx.attempt)
        if ctx.attempt < 3:
            raise ValueError

    job = stumbles.enqueue()
    with app.worker():
        finished(app, job)
    assert [(line.cursor, line.attempt, line.text) for line in app.jobs.logs(job.id)] == [
        (f"{number}.1", number, f"attempt {number}") for number in (1, 2, 3)
    ]


def test_a_traceback_is_part_of_its_line(app: Holdfast) -> None:
    @app.task
    def stumbles(ctx: Context) -> None:
        try:
            raise KeyError("missing")
        except KeyError as error:
            ctx.log.exception("as a matter of course")
            ctx.log.warning("by hand", exc_info=error)
        ctx.log.info("none", exc_info=True)

    job = stumbles.enqueue()
    with app.worker():
        finished(app, job)
    first, second, third = texts(app, job.id)
    for text in (first, second):
        assert "Traceback (most recent call last)" in text
        assert text.endswith("KeyError: 'missing'")
    assert first.startswith("as a matter of course\nTraceback")
    assert third == "none"


class Bad:
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_a_line_that_cannot_be_formatted_harms_no_job(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)

    @app.task
    def speaks(ctx: Context) -> str:
        ctx.log.info("%d of %d", 1)
        ctx.log.info("%s", Bad())
        ctx.log.info(Bad())
        ctx.log.info("nul \x00 and \ud800")
        ctx.log.info("x" * 10_000)
        return "done"

    job = speaks.enqueue()
    with app.worker():
        assert finished(app, job).result == "done"
    *lines, long = texts(app, job.id)
    assert lines == [
        "%d of %d (this line cannot be formatted: TypeError)",
        "%s (this line cannot be formatted: RuntimeError)",
        "Bad (this line cannot be formatted: RuntimeError)",
        "nul \\x00 and \\ud800",
    ]
    assert long == "x" * (MAX_LINE - 1) + "…"


@pytest.mark.parametrize(
    ("size", "count", "most"), [(1, 1000, log_writer.RUN_LINES), (1000, 100, 65)]
)
def test_the_log_of_a_run_is_truncated_at_its_limit(
    app: Holdfast, size: int, count: int, most: int
) -> None:
    @app.task
    def babbles(ctx: Context) -> None:
        for _ in range(count):
            ctx.log.info("é" * (size // 2) if size > 1 else "x")
        ctx.log.info("small")

    job, other = babbles.enqueue(), babbles.enqueue()
    with app.worker():
        finished(app, job)
        finished(app, other)
    for id in (job.id, other.id):
        *lines, last = app.jobs.logs(id)
        assert (len(lines), last.line_no, last.level) == (most, most + 1, "warning")
        assert last.text == f"{count + 1 - most} more lines are left out"


def test_all_threads_of_a_handler_may_log(app: Holdfast) -> None:
    @app.task
    def crowd(ctx: Context) -> None:
        def write() -> None:
            for number in range(50):
                ctx.log.info("%d", number)

        threads = [threading.Thread(target=write) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    job = crowd.enqueue()
    with app.worker():
        finished(app, job)
    assert [line.line_no for line in app.jobs.logs(job.id)] == list(range(1, 401))


def test_unwritten_log_lines_are_bounded_and_drops_are_logged(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the database takes no lines, memory holds so many of all runs; runs do not wait."""
    monkeypatch.setattr(log_writer, "LINES", 30)
    monkeypatch.setattr(log_writer, "TRIES", 10**9)
    away, refused = threading.Event(), threading.Event()
    away.set()
    write = app.engine.log

    def log(lines: Sequence[LogLine]) -> None:
        if away.is_set():
            refused.set()
            raise DatabaseUnavailable("away")
        write(lines)

    monkeypatch.setattr(app.engine, "log", log)

    @app.task
    def speaks(ctx: Context) -> None:
        for number in range(20):
            ctx.log.info("%d", number)

    jobs = [speaks.enqueue() for _ in range(3)]
    with app.worker(concurrency=1):
        for job in jobs:
            assert finished(app, job).status == "completed"
        assert refused.wait(10)
        away.clear()
    assert [len(texts(app, job.id)) for job in jobs] == [20, 11, 1]
    assert [texts(app, job.id)[-1] for job in jobs[1:]] == [
        "10 more lines are left out",
        "20 more lines are left out",
    ]


def test_permanently_refused_log_lines_are_dropped(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_writer, "EVERY", 0.01)
    monkeypatch.setattr(log_writer, "TRIES", 3)
    tries: list[Any] = []
    write = app.engine.log

    def log(lines: Sequence[LogLine]) -> None:
        tries.append(lines)
        if len(tries) <= 3:
            raise ValueError("never")
        write(lines)

    monkeypatch.setattr(app.engine, "log", log)

    @app.task
    def speaks(ctx: Context, text: str) -> None:
        ctx.log.info(text)

    first, second = speaks.enqueue("a"), speaks.enqueue("b")
    with app.worker(concurrency=1):
        finished(app, first)
        until(lambda: "are lost: never" in caplog.text or len(tries) > 3)
        third = speaks.enqueue("c")
        finished(app, third)
    finished(app, second)
    assert len(tries) >= 4
    assert texts(app, first.id) == []
    assert texts(app, third.id) == ["c"]


def test_a_job_without_log_lines_costs_nothing(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(app.engine, "log", asked.append)

    @app.task
    def silent(ctx: Context) -> None:
        ctx.log.debug("nothing to keep")

    with app.worker():
        finished(app, silent.enqueue())
        assert "holdfast-logs" not in {thread.name for thread in threading.enumerate()}
    assert asked == []


def test_log_lines_of_a_job_deleted_while_it_runs_are_deleted(app: Holdfast) -> None:
    deleted = threading.Event()

    @app.task
    def runs(ctx: Context) -> None:
        assert deleted.wait(10)
        ctx.log.info("too late")

    @app.task
    def after(ctx: Context) -> None:
        ctx.log.info("in time")

    job = runs.enqueue()
    with app.worker():
        wait_for_status(app, job, "running")
        app.jobs.delete(job.id)
        deleted.set()
        other = after.enqueue()
        finished(app, other)
    assert texts(app, job.id) == []
    assert texts(app, other.id) == ["in time"]


def test_a_plain_call_stores_no_log_lines(app: Holdfast) -> None:
    @app.task
    def speaks(ctx: Context) -> str:
        ctx.log.info("hello")
        return "done"

    assert speaks() == "done"
