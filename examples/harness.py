"""A harness for end-to-end checks: starts and kills processes, waits for conditions, reports checks.

No part of an application: the `checks.py` of all five use it.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")
TIMEOUT = 60.0
ROOT = Path(__file__).resolve().parents[1]


class Harness:
    """A temporary folder and the processes started in it, which are killed when the block ends."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.checks: list[str] = []
        self._home = tempfile.TemporaryDirectory(prefix=f"{title}-")
        self.folder = Path(self._home.name)
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes:
            self.kill(process)
        if error is not None:
            print(self.logs(), file=sys.stderr)
        self._home.cleanup()

    def start(self, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start `python -m WORDS` as a process whose output goes to a log file in the folder."""
        log = self.folder / f"process-{len(self._processes)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", *words],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)
        return process

    def run(self, *words: str, **environment: str) -> str:
        """Run `python -m WORDS` and return its output; raises if its exit code is not 0."""
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT,
            check=True,
        )
        return done.stdout

    @staticmethod
    def kill(process: subprocess.Popen[bytes]) -> None:
        """kill -9: the process cannot clean up."""
        if process.poll() is None:
            process.kill()
        process.wait()

    @staticmethod
    def stop(process: subprocess.Popen[bytes]) -> int:
        """Send SIGTERM, as a deployment does; returns the exit code."""
        process.terminate()
        return process.wait(TIMEOUT)

    def until(
        self,
        what: str,
        ask: Callable[[], T | None],
        timeout: float = TIMEOUT,
        pause: float = 0.02,
    ) -> T:
        """Return the first true answer of `ask`; raises with the logs after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while not (answer := ask()):
            if time.monotonic() > deadline:
                missing = f"{self.title}: {what}: not within {timeout:g} s"
                raise AssertionError(f"{missing}\n{self.logs()}")
            time.sleep(pause)
        return answer

    def check(self, sentence: str, holds: object = True) -> None:
        """Print the sentence, or raise if it does not hold."""
        if not holds:
            raise AssertionError(f"{self.title}: does not hold: {sentence}")
        self.checks.append(sentence)
        print(f"  ✓ {sentence}", flush=True)

    def logs(self) -> str:
        files = sorted(self.folder.glob("process-*.log"))
        return "\n".join(f"--- {file.name}\n{file.read_text()[-4000:]}" for file in files)


@contextmanager
def run_harness(title: str) -> Iterator[Harness]:
    """Print the title, run the block with a harness, and print the number of checks and the time."""
    began = time.monotonic()
    print(title, flush=True)
    with Harness(title) as harness:
        yield harness
    print(f"{title}: {len(harness.checks)} checks passed in {time.monotonic() - began:.1f} s")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
