"""A clock that is set while a worker runs, by libfaketime: the machine's for SQLite, the server's for
PostgreSQL. Monotonic clocks go on, as they do on a real machine."""

import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.support.server import PostgresServer
from tests.support.waiting import until
from tools.programs import need

ROOT = Path(__file__).resolve().parents[2]
LONG = 90.0
KINDS = ("interval", "whole", "keyed", "failing")


class Clock:
    """What programs under libfaketime take for the time."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "offset"
        self.set("+0")
        shown = subprocess.run(
            [need("faketime"), "-m", "-f", "+0", "env"], capture_output=True, text=True, check=True
        )
        [library] = [
            line.partition("=")[2]
            for line in shown.stdout.splitlines()
            if line.startswith("LD_PRELOAD=")
        ]
        self.environment = {
            "LD_PRELOAD": library,
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, offset: str) -> None:
        other = self._file.with_suffix(".new")
        other.write_text(offset)
        other.chmod(0o644)
        other.replace(self._file)


class Runs:
    """What a program prints, counted."""

    def __init__(self, url: str, environment: dict[str, str]) -> None:
        self.seen: Counter[str] = Counter()
        self._program = subprocess.Popen(
            [sys.executable, "-m", "tests.worker.periodic_worker", url, "holdfast"],
            cwd=ROOT,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        for line in self._program.stdout or ():
            self.seen[line.strip()] += 1

    def more(self, times: int) -> None:
        """Wait until each kind has run so many times more."""
        before = self.seen.copy()
        for kind in KINDS:
            until(
                lambda kind=kind: self.seen[kind] >= before[kind] + times,  # type: ignore[misc]
                f"{times} runs of {kind} ({dict(self.seen - before)})",
                patience=LONG,
            )

    def end(self) -> None:
        try:
            assert self._program.stdin is not None
            self._program.stdin.close()
            self._program.wait(LONG)
        finally:
            self._program.kill()
            self._program.wait()
            self._thread.join()
            if self._program.stdout is not None:
                self._program.stdout.close()


@pytest.fixture
def clock() -> Iterator[Clock]:
    with tempfile.TemporaryDirectory(prefix="holdfast-clock-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)  # the server may run as another user
        yield Clock(Path(folder))


@contextmanager
def server_under(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a PostgreSQL server of its own whose clock this is."""
    monkeypatch.delenv("HOLDFAST_TEST_POSTGRES_URL", raising=False)
    server = PostgresServer()
    with monkeypatch.context() as changed:
        for name, value in clock.environment.items():
            changed.setenv(name, value)
        server.start()
    try:
        yield server.url()
    finally:
        server.stop()


def most_in_a_second(url: str, task: str) -> int:
    """By `started_at`, of those that have begun."""
    with Holdfast(url) as app:
        found = app.jobs.search(type=task, status="completed")
        starts = sorted(job.started_at.timestamp() for job in found if job.started_at)
    return max(sum(first <= at < first + 1 for at in starts) for first in starts)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_rates_intervals_and_retries_continue_when_the_clock_is_set_back(
    kind: str, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path}/jobs.db"
        step_back_under_load(Runs(url, clock.environment), clock)
        assert most_in_a_second(url, "whole") <= 2
        assert most_in_a_second(url, "keyed") <= 2
    else:
        with server_under(clock, monkeypatch) as url:
            step_back_under_load(Runs(url, {}), clock)


def step_back_under_load(runs: Runs, clock: Clock) -> None:
    try:
        runs.more(3)
        clock.set("-3600")
        runs.more(4)
    finally:
        runs.end()
