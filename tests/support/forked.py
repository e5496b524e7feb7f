"""Processes of the command, forked from one that has imported Holdfast. What such a process does, how
it ends and what it writes is as if it had been started; but it does not import everything anew, which
takes ten times the processor time of a short command.

Not for what depends on the start itself: a terminal, a variable that a module reads as it is imported.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import IO, NoReturn

ROOT = Path(__file__).resolve().parents[2]
IMPORTED = ("holdfast.cli.root", "holdfast.web", "psycopg", "uvicorn")
MOST = 100_000  # bytes of a request


class Forked:
    """A process that runs `python -m holdfast`; its parent reports its end."""

    stdout: IO[str] | None = None
    stderr: IO[str] | None = None

    def __init__(self, report: int) -> None:
        self._report = os.fdopen(report)
        self.pid = int(self._report.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("holdfast", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._report], [], [], timeout)[0]:
            with self._report:
                self.returncode = int(self._report.readline())
        return self.returncode


class Forker:
    """Starts processes by forking one, which ends with this object, or with us."""

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forked", str(theirs.fileno())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def start(
        self, arguments: Sequence[str], cwd: Path, env: Mapping[str, str], files: Sequence[int]
    ) -> Forked:
        """`files`: its standard input, output and error output."""
        report, reports = os.pipe()
        request = json.dumps([list(arguments), str(cwd), dict(env)]).encode()
        try:
            socket.send_fds(self._requests, [request], [*files, reports])
        finally:
            os.close(reports)
        return Forked(report)

    def close(self) -> None:
        self._requests.close()
        self._process.kill()
        self._process.wait()


@cache
def forker() -> Forker:
    """The one of this process."""
    made = Forker()
    atexit.register(made.close)
    return made


def serve(requests: socket.socket) -> None:
    """In the process that is forked."""
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # or each process would copy what it looks through
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that report
    while True:
        request, files, _, _ = socket.recv_fds(requests, MOST, 4)
        if not request:
            return
        if os.fork() == 0:
            requests.close()
            arguments, cwd, env = json.loads(request)
            _report(arguments, cwd, env, files)
        for file in files:
            os.close(file)


def _report(arguments: list[str], cwd: str, env: dict[str, str], files: list[int]) -> None:
    """Fork the process; tell its pid, then its exit code. Returns in the process only, never here."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    *standard, reports = files
    if pid == 0:
        os.close(reports)
        _run(arguments, cwd, env, standard)
    for file in standard:
        os.close(file)
    os.write(reports, b"%d\n" % pid)
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):  # nobody wants to know any more
        os.write(reports, b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _run(arguments: list[str], cwd: str, env: dict[str, str], standard: list[int]) -> NoReturn:
    for number, file in enumerate(standard):
        os.dup2(file, number)
        os.close(file)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through="PYTHONUNBUFFERED" in env)  # type: ignore[union-attr]
    sys.path[0] = cwd
    sys.argv[1:] = arguments
    runpy.run_module("holdfast", run_name="__main__", alter_sys=True)
    sys.exit()


if __name__ == "__main__":
    with closing(socket.socket(fileno=int(sys.argv[1]))) as requests:
        serve(requests)
