import subprocess
import sys
import threading
import time

import pytest

from tests.crash import writers
from tests.crash.fleet import ROOT
from tests.crash.scene import Scene


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_nobody_hears_that_the_database_is_locked(scene: Scene) -> None:
    proof = writers.prove(scene, seconds=5.0)
    assert proof.problems == []


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_thread_that_waits_for_hints_does_not_disturb_one_that_writes(scene: Scene) -> None:
    """Both look at the database through one process, while another process writes."""
    listening = True
    with scene.app() as app:
        wakeups = app.engine.wakeups()

        def listen() -> None:
            while listening:
                wakeups.wait(0.1)

        listener = threading.Thread(target=listen)
        listener.start()
        command = [sys.executable, "-m", "tests.crash.writers", scene.url, "3"]
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
