"""Processes that the bench starts, and their resource usage on Linux."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT = 15.0


@dataclass(frozen=True, slots=True)
class Process:
    """A command under a process guard."""

    pid: int
    guard: subprocess.Popen[str]
    log: Path

    def check(self) -> None:
        """Raise with the end of its log if the process has ended."""
        if self.guard.poll() is not None:
            raise RuntimeError(f"a worker has ended\n{tail(self.log)}")

    def family(self) -> list[int]:
        """Return the ids of the process and of its children."""
        return [self.pid, *children(self.pid)]


@contextmanager
def guarded(command: Sequence[str], env: Mapping[str, str], log: Path) -> Iterator[Process]:
    """Run a command until the end of the `with`."""
    with log.open("ab") as output:
        guard = subprocess.Popen(
            [sys.executable, "-m", "bench.process_guard", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
            cwd=ROOT,
            env=env,
            start_new_session=True,
        )
    assert guard.stdin is not None
    assert guard.stdout is not None
    try:
        yield Process(int(guard.stdout.readline()), guard, log)
    finally:
        guard.stdin.close()
        try:
            guard.wait(TIMEOUT)
        finally:
            guard.kill()
            guard.wait()
            guard.stdout.close()


def tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-30:])


def children(parent: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int(_stat(int(folder.name))[1]) == parent:
                found.append(int(folder.name))
        except OSError:
            continue  # it has just ended
    return sorted(found)


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process so far, in user and system mode."""
    user, system = _stat(pid)[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


class Machine(NamedTuple):
    """Ticks of all processors since the boot, and those stolen: wanted by this virtual machine, but
    given to others by its host."""

    all: int
    stolen: int

    @classmethod
    def now(cls) -> "Machine":
        stat = Path("/proc/stat")
        if not stat.exists():
            return cls(0, 0)
        ticks = [int(text) for text in stat.read_text().split("\n", 1)[0].split()[1:9]]
        return cls(sum(ticks), ticks[7])

    def own_share(self, later: "Machine") -> float:
        """Return the fraction of the time since that was not stolen."""
        ticks = later.all - self.all
        return 1 - (later.stolen - self.stolen) / ticks if ticks else 1.0


def resident(pid: int) -> float:
    """Return the resident memory in megabytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _stat(pid: int) -> list[str]:
    """Return the fields after the name, which may contain anything: state, parent, ..."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
