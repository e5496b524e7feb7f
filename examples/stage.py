"""What the five proofs share: processes to start and to kill, moments to wait for, and what was proved.

No part of an application: these are the hands of somebody who tries one out.
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
PATIENCE = 60.0
ROOT = Path(__file__).resolve().parents[1]


class Stage:
    """A temporary folder, and the processes that were started in it. All of them end with it."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.proved: list[str] = []
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
        """`python -m WORDS` in a process of its own; what it says goes to a file of the folder."""
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
        """`python -m WORDS`, to its end; what it printed. Raises if that went wrong."""
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        return done.stdout

    @staticmethod
    def kill(process: subprocess.Popen[bytes]) -> None:
        """kill -9: nothing in the process can tidy up."""
        if process.poll() is None:
            process.kill()
        process.wait()

    @staticmethod
    def stop(process: subprocess.Popen[bytes]) -> int:
        """SIGTERM, as a deployment sends it."""
        process.terminate()
        return process.wait(PATIENCE)

    def until(
        self,
        what: str,
        ask: Callable[[], T | None],
        patience: float = PATIENCE,
        pause: float = 0.02,
    ) -> T:
        """What `ask` answers, as soon as that is true. While it is not, a process may not have died."""
        deadline = time.monotonic() + patience
        while not (answer := ask()):
            if time.monotonic() > deadline:
                missing = f"{self.title}: {what}: not within {patience:g} s"
                raise AssertionError(f"{missing}\n{self.logs()}")
            time.sleep(pause)
        return answer

    def prove(self, sentence: str, holds: object = True) -> None:
        """Say what has been shown; raises when it does not hold."""
        if not holds:
            raise AssertionError(f"{self.title}: not so: {sentence}")
        self.proved.append(sentence)
        print(f"  ✓ {sentence}", flush=True)

    def logs(self) -> str:
        files = sorted(self.folder.glob("process-*.log"))
        return "\n".join(f"--- {file.name}\n{file.read_text()[-4000:]}" for file in files)


@contextmanager
def on_stage(title: str) -> Iterator[Stage]:
    """A whole proof: what it is, what it proved, and how long that took."""
    began = time.monotonic()
    print(title, flush=True)
    with Stage(title) as stage:
        yield stage
    print(f"{title}: {len(stage.proved)} things proved in {time.monotonic() - began:.1f} s")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
