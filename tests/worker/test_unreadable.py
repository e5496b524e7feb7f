"""Rolling deploys: payloads that a worker's code cannot read, while another worker's may."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BeforeValidator

from holdfast import Holdfast, Limit, RunEnd
from holdfast.core.clock import FakeClock
from holdfast.testing import drain
from tests.conftest import Database
from tests.support.jobs import execute
from tests.support.waiting import finished, until, wait_for_status
from tests.worker.conftest import quick

ROOT = Path(__file__).resolve().parents[2]
REASON = "the stored payload does not fit task 'convert': copies: there is no such argument"


def older(database: Database, folder: Path, **options: Any) -> Holdfast:
    """The version that does not know `copies`."""
    app = quick(database, folder, **{"heartbeat": 0.2, **options})

    @app.task
    def convert(n: int) -> int:
        return n

    return app


def newer(database: Database, folder: Path, **options: Any) -> Holdfast:
    app = quick(database, folder, **options)

    @app.task
    def convert(n: int, copies: int = 1) -> int:
        return n * copies

    return app


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_an_unreadable_job_is_released_until_a_worker_can_read_it(
    database: Database, tmp_path: Path, kind: str
) -> None:
    old, new = quick(database, tmp_path), newer(database, tmp_path)

    if kind == "def":

        @old.task(name="convert")
        def plain(n: int) -> int:
            return n

    else:

        @old.task(name="convert")
        async def asynchronous(n: int) -> int:
            return n

    job = new.tasks["convert"].enqueue(n=2, copies=2)
    with old.worker():
        until(lambda: old.jobs.get(job.id).claim_no >= 2, "the second look of the older worker")
        seen = wait_for_status(old, job, "scheduled")
    assert (seen.attempts, seen.worker_id) == (0, None)
    assert seen.unreadable_since is not None
    assert str(seen.error).startswith(f"InvalidArguments: {REASON}; it fails at 2")
    assert old.jobs.attempts(job.id) == []
    with new.worker():
        done = finished(new, job)
    assert (done.status, done.attempts, done.result) == ("completed", 1, 4)
    assert (done.error, done.unreadable_since) == (None, None)


def test_the_reason_why_an_unreadable_job_waits(database: Database, tmp_path: Path) -> None:
    old, new = older(database, tmp_path), newer(database, tmp_path)
    job = new.tasks["convert"].enqueue(n=1, copies=2)
    with old.worker():
        until(lambda: old.jobs.get(job.id).unreadable_since, "the first look")
        wait_for_status(old, job, "scheduled")
    due, unread = old.jobs.why(job.id)
    assert due.startswith("due ")
    since = f"{old.jobs.get(job.id).unreadable_since:%Y-%m-%d %H:%M:%S}"
    assert unread.startswith(
        f"no worker could read its payload since {since} UTC: InvalidArguments"
    )
    assert "copies: there is no such argument; it fails at " in unread


def test_health_and_the_log_name_the_task_and_the_field_once_for_many_jobs(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = older(database, tmp_path), newer(database, tmp_path)
    new.tasks["convert"].enqueue_many([{"n": n, "copies": 2} for n in range(50)])
    with caplog.at_level(logging.WARNING, "holdfast.worker"), old.worker(concurrency=10) as worker:
        until(lambda: all(job.unreadable_since for job in new.jobs.search()), "a look at each")
        problem = until(
            lambda: [text for text in new.health().problems if "'convert'" in text], "its problem"
        )[0]
        [told] = [one for one in new.health().checks if one.name == "unreadable"]
        logged = [record.getMessage() for record in caplog.records if "convert" in record.message]
    assert f"({'InvalidArguments: ' + REASON})" in problem
    assert "it fails at" not in problem
    assert worker.id is not None
    assert worker.id in problem
    assert (told.ok, told.threshold) == (False, 0)
    assert told.measured is not None
    assert 0 <= told.measured < 60
    assert len(logged) == 1
    assert REASON in logged[0]
    with new.worker():
        until(lambda: new.jobs.count(status="completed") == 50, "all of them")
    assert [one.ok for one in new.health().checks if one.name == "unreadable"] == [True]


def test_listeners_and_followers_get_the_release_event(database: Database, tmp_path: Path) -> None:
    old, new = older(database, tmp_path), newer(database, tmp_path)
    heard: list[tuple[str, str | None]] = []
    old.on("released")(lambda event: heard.append((event.job.id, event.error)))
    with new.events(kinds="released", timeout=30) as events:
        job = new.tasks["convert"].enqueue(n=1, copies=2)
        with old.worker():
            event = next(iter(events))
    assert event.job_id == job.id
    until(lambda: heard, "the listener")
    assert heard[0][0] == job.id
    assert "copies" in str(heard[0][1])


def test_an_unreadable_job_fails_after_an_hour_and_its_hook_is_called(
    database: Database, tmp_path: Path
) -> None:
    clock = FakeClock()
    old, new = quick(database, tmp_path, clock=clock), newer(database, tmp_path, clock=clock)
    ends: list[RunEnd] = []
    calls: list[int] = []

    @old.task(on_failure=ends.append)
    def convert(n: int) -> None:
        calls.append(n)

    job = new.tasks["convert"].enqueue(n=1, copies=2)
    for look in (1, 2, 3):  # a new worker each time: one that lives waits by the real clock
        with old.worker():
            until(lambda: old.jobs.get(job.id).claim_no >= look, "another look")  # noqa: B023
            wait_for_status(old, job, "scheduled")
        clock.advance(19 * 60)
    assert ends == []
    clock.advance(5 * 60)
    with old.worker():
        done = finished(old, job)
    assert (done.status, done.attempts, calls) == ("failed", 1, [])
    assert done.error == f"InvalidArguments: {REASON}; no worker could read it for 3600 s"
    assert done.unreadable_since is None
    assert [(end.job.id, end.final, end.error) for end in ends] == [(job.id, True, done.error)]
    assert [run.error for run in old.jobs.attempts(job.id)] == [done.error]
    old.jobs.retry(job.id)
    with new.worker():
        assert finished(new, job).status == "completed"


def test_the_time_before_an_unreadable_job_fails_is_a_setting(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_UNREADABLE_FOR", "0")
    old, new = older(database, tmp_path), newer(database, tmp_path)
    job = new.tasks["convert"].enqueue(n=1, copies=2)
    with old.worker():
        done = finished(old, job)
    assert (done.status, done.error) == ("failed", f"InvalidArguments: {REASON}")
    assert older(database, tmp_path, unreadable_for="2d").settings.unreadable_for == 2 * 86400


def test_a_recurring_job_waits_for_a_reader_and_then_has_a_failed_run(
    database: Database, tmp_path: Path
) -> None:
    clock = FakeClock()
    old, new = (version(database, tmp_path, clock=clock) for version in (older, newer))
    row = new.tasks["convert"].using(key="k", every="1d").schedule(n=1, copies=2)
    with old.worker():
        until(lambda: old.jobs.get(row.id).unreadable_since, "the first look")
        waits = wait_for_status(old, row, "scheduled")
    assert (waits.consecutive_failures, waits.last_run_at, waits.due_at) == (0, None, row.due_at)
    clock.advance(3601)
    with old.worker():
        until(lambda: old.jobs.get(row.id).consecutive_failures, "the failed run")
    failed = old.jobs.get(row.id)
    assert isinstance(failed.last_error, str)
    assert failed.last_error.startswith(f"InvalidArguments: {REASON}")
    assert (failed.status, failed.unreadable_since) == ("scheduled", None)


def test_a_validator_that_raises_does_not_lose_the_run(database: Database, tmp_path: Path) -> None:
    def knows(value: Any) -> Any:
        return {"a": 1}[value]

    app = quick(database, tmp_path, unreadable_for=0)

    @app.task
    def look(letter: Annotated[int, BeforeValidator(knows)]) -> int:
        return letter

    job = app.enqueue("other", {"letter": "b"})
    execute(app.engine, "UPDATE {jobs} SET type = 'look' WHERE id = :id", id=job.id)
    with app.worker():
        done = finished(app, job)
    assert (done.status, done.error) == ("failed", "KeyError: 'b'")


def test_a_limit_by_a_function_does_not_fail_an_unreadable_job(
    database: Database, tmp_path: Path
) -> None:
    """The function gets the arguments, so the older code tries to read the payload for it, too."""
    old, new = quick(database, tmp_path), newer(database, tmp_path)

    @old.task(concurrency=Limit(1, per=lambda n: n))
    def convert(n: int) -> int:
        return n

    job = new.tasks["convert"].enqueue(n=2, copies=2)
    with old.worker():
        until(lambda: old.jobs.get(job.id).claim_no >= 2, "the second look of the older worker")
        seen = wait_for_status(old, job, "scheduled")
        assert (seen.attempts, old.jobs.attempts(job.id)) == (0, [])
        assert seen.unreadable_since is not None
        assert finished(old, convert.enqueue(n=1)).result == 1


def test_an_unreadable_job_can_be_cancelled(database: Database, tmp_path: Path) -> None:
    old, new = older(database, tmp_path), newer(database, tmp_path)
    job = new.tasks["convert"].enqueue(n=1, copies=2)
    with old.worker():
        until(lambda: old.jobs.get(job.id).unreadable_since, "the first look")
        old.jobs.cancel(job.id)
        assert finished(old, job).status == "cancelled"


def test_drain_does_not_wait_for_unreadable_jobs(database: Database, tmp_path: Path) -> None:
    old, new = older(database, tmp_path), newer(database, tmp_path)
    job = new.tasks["convert"].enqueue(n=1, copies=2)
    drain(old, raise_errors=False)
    done = old.jobs.get(job.id)
    assert (done.status, done.error) == ("failed", f"InvalidArguments: {REASON}")


# a whole deploy, in processes of their own

MODULE = """
import os
from holdfast import Holdfast

app = Holdfast(os.environ["ROLLING_URL"], schema=os.environ["ROLLING_SCHEMA"], heartbeat=0.5)


@app.task(process={process})
def convert({parameters}) -> int:
    return {result}
"""


@contextmanager
def worker_of(module: str, folder: Path, database: Database) -> Iterator[subprocess.Popen[bytes]]:
    environment = {
        **os.environ,
        "ROLLING_URL": database.url,
        "ROLLING_SCHEMA": database.schema,
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "src")]),
    }
    command = [sys.executable, "-m", "holdfast", "worker", f"{module}:app", "--queues", "default=4"]
    with (folder / f"{module}.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


@pytest.mark.parametrize("process", [False, True])
def test_a_rolling_deploy_in_the_wrong_order_loses_no_job(
    database: Database, tmp_path: Path, process: bool
) -> None:
    """Version 2 enqueues while only a worker of version 1 lives; then version 2's worker starts, and
    version 1's stops."""
    versions = {"v1": ("n: int", "n"), "v2": ("n: int, copies: int = 1", "n * copies")}
    for name, (parameters, result) in versions.items():
        text = MODULE.format(process=process, parameters=parameters, result=result)
        (tmp_path / f"{name}.py").write_text(text)
    app = newer(database, tmp_path)
    with worker_of("v1", tmp_path, database) as first:
        until(lambda: app.stats().workers, "the worker of version 1", patience=60)
        jobs = app.tasks["convert"].enqueue_many([{"n": n, "copies": 2} for n in range(20)])
        until(
            lambda: all(
                job.unreadable_since or job.status == "failed" for job in all_of(app, jobs)
            ),
            "a look at each",
            patience=60,
        )
        assert {job.status for job in all_of(app, jobs)} <= {"scheduled", "pending", "running"}
        until(
            lambda: any("copies" in text for text in app.health().problems), "health", patience=60
        )
        with worker_of("v2", tmp_path, database):
            until(lambda: app.stats().workers == 2, "both", patience=60)
            first.send_signal(signal.SIGTERM)
            first.wait(60)
            until(lambda: app.jobs.count(status="completed") == 20, "all of them", patience=120)
    done = all_of(app, jobs)
    assert [(job.attempts, job.error, job.result) for job in done] == [
        (1, None, 2 * n) for n in range(20)
    ]


def all_of(app: Holdfast, jobs: list[Any]) -> list[Any]:
    return [app.jobs.get(job.id) for job in jobs]
