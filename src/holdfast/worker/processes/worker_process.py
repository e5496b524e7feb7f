"""A worker process, as its supervisor knows it: started by exec, heard through a socket, and seen
through a page of shared memory, which also tells of one that is frozen or dead.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import Any

from holdfast.worker.processes.exit_cause import Judgement
from holdfast.worker.processes.run_table import Begun, RunTable
from holdfast.worker.processes.watchdog import LATE, SILENT
from holdfast.worker.processes.wire import Wire


class WorkerProcess:
    """A worker process, as its supervisor knows it."""

    def __init__(self, config: Mapping[str, Any], *, level: int) -> None:
        with ExitStack() as stack:
            ours, theirs = socket.socketpair()
            stack.callback(ours.close)
            page = RunTable.create()
            stack.callback(os.close, page)
            self._runs = RunTable(page)
            files = [theirs.fileno(), page]
            with theirs:
                self.process = subprocess.Popen(  # noqa: S603
                    [sys.executable, "-m", "holdfast.worker.processes.child", *map(str, files)],
                    pass_fds=files,
                    stdin=subprocess.DEVNULL,
                    process_group=0,  # a Ctrl-C at the terminal is for us alone
                )
            stack.pop_all()
        os.close(page)
        self.socket = ours
        self.wire = Wire(ours)
        self.pid = self.process.pid
        self.level = level  #: of the jobs with deaths on record that it is for; 0: ordinary ones
        self.started = time.monotonic()
        self.id: str | None = None
        self.info = "{}"
        self.stopped = False  #: by SIGSTOP
        self.draining = False
        self.replaced = False
        self.killed = False
        self.leaving = False  #: it has said that it ends in good order
        self._judgement: Judgement | None = (
            None  #: what its death says of its runs, if we killed it
        )
        self.condemned: list[Begun] = []  #: runs whose timeout is recorded when it is gone
        self.locked_since: float | None = None  #: when it was first seen to hold a lock, silently
        self.heard_at = self.started
        self.handlers: list[int] = []
        self.buffer = b""
        self.wire.send_now({**config, "level": level})

    def receive(self) -> list[dict[str, Any]] | None:
        """What it said; None: it closed its end."""
        try:
            data = self.socket.recv(65536)
        except OSError:
            return None
        if not data:
            return None
        self.heard_at = time.monotonic()
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def last_words(self) -> Iterator[dict[str, Any]]:
        """What it said before it died. (Without waiting: what it started may hold its end open.)"""
        self.socket.setblocking(False)
        while (messages := self.receive()) is not None:
            yield from messages

    def confirm(self, moment: float) -> None:
        self.wire.send_now({"beat": moment})

    def tell_dead(self) -> None:
        self.wire.send_now({"dead": True})

    def ask_stacks(self) -> None:
        self.wire.send_now({"stacks": True})

    def update(self, status: Mapping[str, Any]) -> None:
        self.info = status["info"]
        self.draining = status["draining"]
        self.handlers = status["handlers"]

    def begun(self) -> list[Begun]:
        """The runs whose handlers have begun and not ended, also when it is frozen or dead."""
        return self._runs.runs()

    def overdue(self, now: float, by: float) -> list[Begun]:
        """The runs that are past their deadline by more than so many seconds."""
        return [run for run in self.begun() if run.deadline is not None and now > run.deadline + by]

    def silent_for(self, now: float) -> float:
        """Seconds since it last said anything; it does so twice a second."""
        return now - self.heard_at

    def is_silent(self, now: float) -> bool:
        return self.silent_for(now) >= SILENT

    def told(self) -> str:
        """What it last said of itself, and what only we can see: it is silent, or a run is late."""
        now = time.monotonic()
        silent, late = self.is_silent(now), self.overdue(now, LATE)
        if not silent and not late:
            return self.info
        told = json.loads(self.info) | {"overdue": [run.claim.id for run in late]}
        return json.dumps(told | ({"silent_for": self.silent_for(now)} if silent else {}))

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def judge(self, code: int | None) -> Judgement | None:
        """What its death says of the runs that had begun in it; None: its exit code says it. One that
        said that it ends, and did, may not have been able to say so in the database."""
        if code != 0 or not self.leaving:
            return self._judgement
        if self.draining:
            self.condemned = self.overdue(time.monotonic(), LATE)
        return Judgement.GIVEN_BACK

    def kill(self, judgement: Judgement | None = None) -> None:
        """With all that it started. It is replaced at once: it may take its time to die."""
        self.killed = self.replaced = True
        self._judgement = self._judgement or judgement
        for group in [self.pid, *self.handlers]:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
