"""The steps of the quickstart work in an empty folder, including the killed worker."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.docs.pages import DOCS, blocks

PAGE = DOCS / "quickstart.md"
PATIENCE = 100.0
BIN = Path(sys.executable).parent


def until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"it never came to this: {what}"
        time.sleep(0.05)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    [file] = blocks(PAGE, "python")
    assert file.startswith("# hello.py\n")
    (tmp_path / "hello.py").write_text(file)
    return tmp_path


@pytest.fixture
def worker(folder: Path) -> Iterator[Callable[[], "subprocess.Popen[bytes]"]]:
    """Yield a function that starts the worker of the page; workers that are left are ended."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> "subprocess.Popen[bytes]":
        words = ["holdfast", "worker", "hello:app"]
        assert " ".join(words) in "".join(blocks(PAGE, "sh"))
        one = subprocess.Popen(
            [BIN / words[0], *words[1:]], cwd=folder, stderr=subprocess.DEVNULL, process_group=0
        )
        started.append(one)
        return one

    yield start
    for one in started:
        if one.poll() is None:
            one.terminate()
        one.wait(PATIENCE)


def run(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [BIN / words[0], *words[1:]], cwd=folder, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_quickstart_works_with_one_file_and_one_command(folder: Path) -> None:
    assert "python hello.py" in "".join(blocks(PAGE, "sh"))
    assert run(folder, "python", "hello.py") == "hello world\n"
    assert "`hello world`" in PAGE.read_text()


@pytest.mark.timeout(300)
def test_a_killed_job_runs_again(folder: Path, worker: Callable[[], "subprocess.Popen[bytes]"]):
    lines = "".join(blocks(PAGE, "sh")).splitlines()
    [enqueue] = [line for line in lines if "seconds=30" in line]
    run(folder, "python", "hello.py")
    first = worker()
    words = shlex.split(re.sub("seconds=30", "seconds=3", enqueue))  # shorter than on the page
    id = run(folder, *words).strip()
    with Holdfast(f"sqlite:///{folder}/jobs.db") as app:
        until(lambda: app.jobs.get(id).status == "running", "it runs")
        os.killpg(first.pid, signal.SIGKILL)
        first.wait(PATIENCE)
        worker()
        until(lambda: app.jobs.get(id).status == "completed", "it ran again")
        assert app.jobs.get(id).result == "hello ben"
        assert app.jobs.get(id).claim_no == 2
    assert id in run(folder, "holdfast", "jobs", "list", "--app", "hello:app", "--json")
