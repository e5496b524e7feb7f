"""A handler that holds Python's interpreter lock freezes its worker process. The supervisor kills the
process past the deadline that it had published before the handler began."""

import os
import signal

import pytest

from holdfast import DatabaseBusy, Holdfast
from tests.crash.testbed import CrashTestbed, jobs_of, until
from tests.crash.worker_group import is_gone, worker_group

APP = "tests.crash.frozen_tasks:app"


@pytest.mark.parametrize(
    ("database", "task"), [("sqlite", "freeze"), ("postgres", "freeze_loop")], indirect=["database"]
)
def test_a_frozen_process_is_killed_past_the_deadline(testbed: CrashTestbed, task: str) -> None:
    with (
        testbed.app() as app,
        worker_group(testbed, app=APP, queues="default=4", heartbeat=1.0) as workers,
    ):
        workers.start().until_ready()
        beside = app.enqueue("wait_in_thread", {"seconds": 0.5}).id
        until(lambda: testbed.entries("start", beside), 30, "the start of the job beside")
        job = app.enqueue(task, max_attempts=2).id
        until(lambda: testbed.entries("start", job), 30, "the start of the job that freezes")
        [start] = testbed.entries("start", job)
        behind = [app.enqueue("quick").id for _ in range(5)]

        def told() -> bool:
            problems = app.health().problems
            return any(job in text and str(start.pid) in text for text in problems)

        until(told, 30, "health names the job and the frozen process")
        others = [*behind, beside]
        until(lambda: all(one.status == "completed" for one in jobs_of(app, others)), 60, "others")
        until(lambda: app.jobs.get(job).status == "failed", 90, "the last timeout is recorded")
        ended, attempts, log = app.jobs.get(job), app.jobs.attempts(job), workers.log()
        innocents = jobs_of(app, others)
        until(lambda: not app.health().stuck_jobs, 30, "health names it no more")
    assert (ended.attempts, ended.crashes) == (2, 0)
    assert ended.error == "TimeoutError: timed out after 2 s"
    assert [attempt.error for attempt in attempts] == ["TimeoutError: timed out after 2 s"] * 2
    assert len(testbed.entries("start", job)) == 2  # the verdict is recorded without another run
    assert len(testbed.entries("hook", job)) == 2
    assert [one.error for one in innocents] == [None] * 6
    assert [one.crashes for one in innocents] == [0] * 6
    killed = [line for line in log.splitlines() if "is killed" in line]
    assert len(killed) == 2
    assert all(job in line for line in killed)
    assert f"process {start.pid} is killed" in killed[0]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_frozen_process_ends_with_its_supervisor(testbed: CrashTestbed) -> None:
    """The process cannot notice by itself, and would keep its locks of a SQLite database for ever."""
    with testbed.app() as app, worker_group(testbed, app=APP, queues="default=4") as workers:
        workers.start().until_ready()
        job = app.enqueue("freeze", max_attempts=1).id
        until(lambda: testbed.entries("start", job), 30, "the start of the job that freezes")
        [start] = testbed.entries("start", job)
        [supervisor] = workers.supervisors
        supervisor.kill()
        until(lambda: is_gone(start.pid), 30, "the end of the frozen process")


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("task", ["freeze_with_turn", "freeze_with_write_lock", "wait_with_turn"])
def test_a_silent_process_that_keeps_others_from_writing_is_killed(
    testbed: CrashTestbed, task: str
) -> None:
    with testbed.app() as app, worker_group(testbed, app=APP, queues="default=4") as workers:
        workers.start().until_ready()
        stopped = task == "wait_with_turn"  # from outside: no doing of its own, though it is alone
        others = [] if stopped else [app.enqueue("wait_in_thread", {"seconds": 1.0}).id]
        job = app.enqueue(task).id
        until(lambda: testbed.entries("start", job), 30, "the start of the job that freezes")
        [start] = testbed.entries("start", job)
        if stopped:
            os.kill(start.pid, signal.SIGSTOP)
        enqueued = until(lambda: enqueues(app), 30, "another process can write again")
        until(lambda: is_gone(start.pid), 30, "the end of the process")
        ids = [job, *others]
        until(lambda: all(one.status == "completed" for one in jobs_of(app, ids)), 90, "all ended")
        log, ended = workers.log(), app.jobs.get(job)
    if stopped:
        assert (ended.crashes, ended.deaths) == (0, 0)
    assert enqueued < 15  # 3 s, on a machine that has nothing else to do
    [killed] = [line for line in log.splitlines() if "is killed" in line]
    assert f"process {start.pid} is killed: silent for" in killed
    assert job in killed


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_a_frozen_process_for_isolated_jobs_does_not_hold_up_the_others(
    testbed: CrashTestbed,
) -> None:
    """By its last report it has free slots, but it claims nothing any more."""
    with testbed.app() as app, worker_group(testbed, app=APP, queues="default=4") as workers:
        workers.start().until_ready()
        freezer = app.enqueue("freeze_again").id
        until(
            lambda: testbed.entries("start", freezer), 30, "the start of the job that will freeze"
        )
        os.kill(testbed.entries("start", freezer)[0].pid, signal.SIGKILL)
        until(lambda: len(testbed.entries("start", freezer)) == 2, 30, "it runs again, and freezes")
        victims = [app.enqueue("wait_once").id for _ in range(2)]
        until(
            lambda: all(testbed.entries("start", id) for id in victims),
            30,
            "the next victims start",
        )
        os.kill(testbed.entries("start", victims[0])[0].pid, signal.SIGKILL)
        until(
            lambda: all(one.status == "completed" for one in jobs_of(app, victims)), 60, "they end"
        )
        assert app.jobs.get(freezer).status == "running"


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_a_freezing_job_is_distinguished_from_its_delayed_neighbour(testbed: CrashTestbed) -> None:
    """The job beside it times out. Which of the two froze the process is unknown: the one without a
    timeout runs with fewer others from then on, and harms no more jobs."""
    with testbed.app() as app, worker_group(testbed, app=APP, queues="default=4") as workers:
        workers.start().until_ready()
        beside = app.enqueue("wait_beside", max_attempts=1).id
        until(lambda: testbed.entries("start", beside), 30, "the start of the job beside")
        freezer = app.enqueue("freeze_for_good").id
        until(lambda: app.jobs.get(beside).status == "failed", 60, "its timeout is recorded")
        until(lambda: len(testbed.entries("start", freezer)) == 2, 60, "the other one runs again")
        [late, frozen] = jobs_of(app, [beside, freezer])
    assert str(late.error).startswith("TimeoutError")
    assert (late.deaths, frozen.deaths) == (0, 1)
    assert (late.crashes, frozen.crashes, frozen.attempts) == (0, 0, 1)


def enqueues(app: Holdfast) -> bool:
    try:
        return bool(app.enqueue("quick").id)
    except DatabaseBusy:
        return False
