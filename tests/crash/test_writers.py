import subprocess
import sys
import threading
import time

import pytest

from tests.crash import writers
from tests.crash.testbed import CrashTestbed
from tests.crash.worker_group import ROOT


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_no_writer_gets_a_database_is_locked_error(testbed: CrashTestbed) -> None:
    report = writers.run(testbed, seconds=5.0)
    assert report.problems == []


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_thread_that_waits_for_hints_does_not_disturb_a_writing_thread(
    testbed: CrashTestbed,
) -> None:
    """Both threads use the database in one process, while another process writes."""
    listening = True
    with testbed.app() as app:
        wakeups = app.engine.wakeups()

        def listen() -> None:
            while listening:
                wakeups.wait(0.1)

        listener = threading.Thread(target=listen)
        listener.start()
        command = [sys.executable, "-m", "tests.crash.writers", testbed.url, "3"]
        other = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT)
        try:
            acknowledged = 0
            deadline = time.monotonic() + 3.0
            while time.monotonic() < deadline:
                app.enqueue("threaded", {"ms": 1})
                acknowledged += 1
            assert app.jobs.count(type="threaded") == acknowledged
        finally:
            listening = False
            listener.join()
            other.wait()
            wakeups.close()
