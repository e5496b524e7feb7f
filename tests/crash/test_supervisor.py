"""A supervisor survives faults of its machine and of its children: no free descriptors, a child that
does not read its messages."""

import os
import resource
import signal
import threading
from typing import Any

import pytest

from holdfast.worker.processes.exit_cause import Blame
from holdfast.worker.processes.worker_process import WorkerProcess
from tests.crash.testbed import CrashTestbed, until
from tests.crash.worker_group import environment, is_gone, worker_group


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_supervisor_that_cannot_start_a_process_retries(testbed: CrashTestbed) -> None:
    with testbed.app() as app, worker_group(testbed) as workers:
        workers.start().until_ready()
        [supervisor] = workers.supervisors
        [child] = workers.children()
        limits = resource.prlimit(supervisor.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(supervisor.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        os.kill(child, signal.SIGKILL)
        until(lambda: workers.log().count("no process could be started") >= 2, 60, "two attempts")
        assert workers.live_supervisors() == [supervisor]
        assert is_gone(child)
        resource.prlimit(supervisor.pid, resource.RLIMIT_NOFILE, limits)
        job = app.enqueue("threaded", {"ms": 1}).id
        until(lambda: app.jobs.get(job).status == "completed", 60, "a new process works")


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_deregistered_process_is_not_judged_by_its_exit(
    testbed: CrashTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process reports this to its supervisor, since the database may be unavailable."""
    for name, value in environment(testbed, None).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOLDFAST_URL", "postgresql://nobody@127.0.0.1:1/nothing")
    config: dict[str, Any] = {"location": "tests.crash.tasks:app", "queues": None, "grace": 1.0}
    child = WorkerProcess({**config, "concurrency": None, "log": {}}, level=0)
    try:
        until(child.receive, 60, "its first words")
        assert child.blame_for(0) is None
        os.kill(child.pid, signal.SIGTERM)
        words: list[dict[str, Any]] = []

        def leaves() -> bool:
            words.extend(child.receive() or ())
            return any("leaving" in word for word in words)

        until(leaves, 60, "it says that it leaves")
        child.leaving = True  # as the supervisor notes it
        assert child.process.wait(60) == 0
        assert child.blame_for(0) is Blame.GIVEN_BACK
        assert child.blame_for(-signal.SIGSEGV) is None  # it crashed on its way out
    finally:
        child.kill()
        child.process.wait()
        child.channel.close()


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_child_that_does_not_read_delays_no_other_child(
    testbed: CrashTestbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(testbed, None).items():
        monkeypatch.setenv(name, value)
    config: dict[str, Any] = {"location": "tests.crash.tasks:app", "queues": None, "grace": 1.0}
    child = WorkerProcess({**config, "concurrency": None, "log": {}}, level=0)
    try:
        os.kill(child.pid, signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)

        def confirm() -> None:
            for number in range(20_000):
                child.confirm(float(number))

        telling = threading.Thread(target=confirm, daemon=True)
        telling.start()
        telling.join(60)
        assert not telling.is_alive()
    finally:
        child.kill()
        child.process.wait()
        child.channel.close()
