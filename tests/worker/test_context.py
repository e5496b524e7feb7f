"""What a handler can ask of its run."""

import asyncio
import logging
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from holdfast import Context, Event, Holdfast, InvalidInput, JobNotFound
from holdfast.worker.liveness.claim_watch import LOOK
from tests.support.waiting import finished, until, wait_for_status


def test_progress_is_throttled_and_the_last_value_is_always_written(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    report = app.engine.report

    def counted(reports: Any) -> None:
        written.extend(reports)
        report(reports)

    monkeypatch.setattr(app.engine, "report", counted)
    seen = threading.Event()
    app.on("progress")(lambda event: seen.set())

    @app.task
    def counts(ctx: Context) -> None:
        for step in range(2000):
            ctx.progress(step / 20, f"step {step}")
        assert seen.wait(10)  # one was written while it ran
        for step in range(2000, 2500):
            ctx.progress(99.5, f"step {step}")

    begin = time.monotonic()
    with app.worker():
        done = finished(app, counts.enqueue())
    assert (done.status, done.progress, done.message) == ("completed", 99.5, "step 2499")
    took = time.monotonic() - begin
    assert 2 <= len(written) <= 3 + took / LOOK
    assert written[-1].message == "step 2499"


def test_progress_is_visible_while_the_job_runs_and_written_once(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    written, looks = [], []
    report, held = app.engine.report, app.engine.held

    def counted(reports: Any) -> None:
        written.extend(reports)
        report(reports)

    def looked(worker: str) -> Any:
        looks.append(1)
        return held(worker)

    monkeypatch.setattr(app.engine, "report", counted)
    monkeypatch.setattr(app.engine, "held", looked)

    @app.task
    async def moves(ctx: Context) -> None:
        ctx.progress(30, "a third")
        while not go.is_set() and not ctx.cancelled:
            await asyncio.sleep(0.01)

    job = moves.enqueue()
    with app.worker():
        until(lambda: app.jobs.get(job.id).progress == 30)
        assert app.jobs.get(job.id).message == "a third"
        seen = len(looks)
        until(lambda: len(looks) >= seen + 3)
        go.set()
        finished(app, job)
    assert len(written) == 1


def test_the_last_progress_of_a_failed_run_is_written_and_a_retry_starts_again(
    app: Holdfast,
) -> None:
    found: list[Any] = []

    @app.task(backoff=0.3)
    def stumbles(ctx: Context) -> None:
        if ctx.attempt == 1:
            ctx.progress(80, "nearly")
            raise ValueError
        now = app.jobs.get(ctx.job.id)
        found.append((now.progress, now.message))

    job = stumbles.enqueue()
    with app.worker():
        waiting = wait_for_status(app, job, "retrying")
        assert (waiting.progress, waiting.message) == (80, "nearly")
        done = finished(app, job)
    assert found == [(None, None)]
    assert (done.status, done.progress, done.message) == ("completed", None, None)


def test_progress_that_is_no_number_is_refused(app: Holdfast) -> None:
    @app.task
    def tells(ctx: Context) -> int:
        bad: list[Any] = [True, None, "50", float("nan")]
        for percent in bad:
            with pytest.raises(InvalidInput, match="give a number from 0 to 100"):
                ctx.progress(percent)
        return len(bad)

    with app.worker():
        assert finished(app, tells.enqueue()).result == 4


def test_progress_stays_between_0_and_100(app: Holdfast) -> None:
    @app.task
    def tells(ctx: Context, percent: float) -> None:
        ctx.progress(percent)

    with app.worker():
        assert finished(app, tells.enqueue(-3)).progress == 0
        assert finished(app, tells.enqueue(250)).progress == 100


def test_jobs_enqueued_by_a_handler_commit_with_its_completion(app: Holdfast) -> None:
    told: list[str] = []
    go = threading.Event()

    @app.task
    def child(n: int) -> int:
        return n

    @app.task
    def parent(ctx: Context) -> str:
        told.append(ctx.enqueue(child, n=1))
        told.append(ctx.enqueue(child.using(priority=5, delay="1h"), 2))
        assert go.wait(10)
        return "done"

    job = parent.enqueue()
    with app.worker():
        until(lambda: len(told) == 2)
        with pytest.raises(JobNotFound):
            app.jobs.get(told[0])
        go.set()
        finished(app, job)
        first, second = (app.jobs.get(id) for id in told)
        assert finished(app, first).result == 1
    assert (second.status, second.priority, second.payload) == ("scheduled", 5, {"n": 2})


def test_jobs_enqueued_by_a_failed_run_never_exist(app: Holdfast) -> None:
    told: list[str] = []

    @app.task
    def child() -> None: ...

    @app.task(max_attempts=2)
    def parent(ctx: Context) -> None:
        told.append(ctx.enqueue(child))
        raise ValueError("after all")

    with app.worker():
        assert finished(app, parent.enqueue()).status == "failed"
    assert len(told) == 2
    assert app.jobs.count(type="child") == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [({"key": "k", "on_conflict": "raise"}, "could undo"), ({"tx": object()}, "tx= is not for")],
)
def test_an_enqueue_that_could_fail_the_completion_is_refused(
    app: Holdfast, options: dict[str, Any], words: str
) -> None:
    @app.task
    def child() -> None: ...

    @app.task(max_attempts=1)
    def parent(ctx: Context) -> None:
        with pytest.raises(InvalidInput, match="give a task"):
            ctx.enqueue("child")
        ctx.enqueue(child.using(**options))

    with app.worker():
        assert words in str(finished(app, parent.enqueue()).error)


@pytest.mark.parametrize("kind", ["async", "def"])
def test_the_workdir_belongs_to_one_run_and_is_removed_with_it(app: Holdfast, kind: str) -> None:
    folders: list[Path] = []

    def use(ctx: Context) -> None:
        assert ctx.workdir is ctx.workdir
        (ctx.workdir / "sub").mkdir()
        (ctx.workdir / "sub" / "file").write_text("x")
        folders.append(ctx.workdir)
        if ctx.attempt < 3:
            raise ValueError

    @app.task(name="async")
    async def asynchronous(ctx: Context) -> None:
        use(ctx)

    @app.task(name="def")
    def plain(ctx: Context) -> None:
        use(ctx)

    with app.worker():
        assert finished(app, app.enqueue(kind)).status == "completed"
    assert len(set(folders)) == 3
    assert [folder for folder in folders if folder.exists()] == []
    assert {folder.parent for folder in folders} == {app.settings.workdir}


def test_the_contexts_log_names_the_job(app: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    @app.task
    def speaks(ctx: Context) -> None:
        ctx.log.warning("hello %s", "there", extra={"more": 1})

    job = speaks.enqueue()
    with app.worker():
        finished(app, job)
    [record] = [record for record in caplog.records if record.name == "holdfast.job"]
    assert (record.getMessage(), record.levelno) == ("hello there", logging.WARNING)
    extras = {key: getattr(record, key) for key in ("job_id", "task", "attempt", "more")}
    assert extras == {"job_id": job.id, "task": "speaks", "attempt": 1, "more": 1}


def test_the_contexts_token_belongs_to_the_claim_and_grows(app: Holdfast) -> None:
    tokens: list[str] = []

    @app.task
    def fences(ctx: Context) -> None:
        tokens.append(ctx.token)
        if ctx.attempt < 3:
            raise ValueError

    job = fences.enqueue()
    with app.worker():
        finished(app, job)
    assert tokens == [f"{job.id}:{number}" for number in (1, 2, 3)]


def test_a_context_works_in_a_process_of_its_own(processes: ModuleType) -> None:
    """Progress, what it enqueues and its folder work as in the worker's own process."""
    app = processes.app
    told: list[Event] = []
    app.on("completed")(told.append)
    job = processes.busy_context.enqueue(3)
    with app.worker():
        done = finished(app, job)
        [chained] = until(lambda: list(app.jobs.search(type="after")))
        assert finished(app, chained).result == 3
    assert (done.progress, done.message) == (75.0, "step 3")
    assert done.result == {
        "workdir": str(app.settings.workdir / f"{job.id}-1"),
        "token": f"{job.id}:1",
        "attempt": 1,
    }
    assert list(app.settings.workdir.iterdir()) == []
    assert [event.job.type for event in told] == ["busy_context", "after"]


def test_a_plain_call_gets_a_context_without_effects(app: Holdfast) -> None:
    @app.task
    def child() -> None: ...

    @app.task
    def works(ctx: Context, n: int) -> list[Any]:
        ctx.progress(50, "half")
        ctx.enqueue(child)
        folder = ctx.workdir
        ctx.clean()
        with pytest.raises(InvalidInput, match="detached"):
            ctx.complete(tx=object())
        return [ctx.attempt, ctx.cancelled, folder.exists(), n]

    assert works(4) == [1, False, False, 4]
    assert app.jobs.count() == 0
