"""Handler processes that lose their connection to the worker, or die while another keeps it open."""

import os
import signal
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.waiting import finished, is_alive, until


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("then", ["return", "raise", "reopen"])
def test_a_process_that_cannot_answer_ends_immediately(processes: ModuleType, then: str) -> None:
    with processes.app.worker(concurrency=1):
        job = processes.closes_descriptors.using(timeout=300).enqueue(then=then)
        done = finished(processes.app, job, patience=60)
    assert done.status == "failed"
    assert str(done.error).startswith("Quarantined: its process died 3 times")
    assert "closed the connection to the worker" in str(done.error)
    left = processes.FOLDER / "any"
    assert not left.exists() or left.read_bytes() == b""  # the answer went nowhere else


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_process_without_its_connection_ends_at_its_timeout(processes: ModuleType) -> None:
    with processes.app.worker(concurrency=1):
        job = processes.closes_descriptors.using(timeout=3).enqueue(then="go on")
        done = finished(processes.app, job, patience=60)
    assert (done.status, done.error) == ("failed", "TimeoutError: timed out after 3 s")


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_the_death_of_a_process_is_noticed_although_its_connection_stays_open(
    processes: ModuleType, tmp_path: Path
) -> None:
    try:
        with processes.app.worker(concurrency=1):
            job = processes.dies_with_a_survivor.using(timeout=None).enqueue()
            done = finished(processes.app, job, patience=60)
    finally:
        for pid in (tmp_path / "survivors").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
    assert "exit code 3" in str(done.error)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_an_idle_process_that_was_killed_is_replaced_and_no_job_is_charged(
    processes: ModuleType,
) -> None:
    app = processes.app
    with app.worker(concurrency=1):
        first = finished(app, processes.where.enqueue(size=processes.Size(1)))
        os.kill(first.result["pid"], signal.SIGKILL)
        until(lambda: not is_alive(first.result["pid"]), "the end of the idle process")
        second = finished(app, processes.where.enqueue(size=processes.Size(1)))
    assert second.result["pid"] != first.result["pid"]
    assert (second.status, second.claim_no, second.crashes) == ("completed", 1, 0)
