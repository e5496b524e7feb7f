"""A worker process, as its supervisor knows it: started by exec, heard through a socket, and observed
through a page of shared memory, which also shows the runs of a process that is frozen or dead.
"""

import json
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from holdfast.worker.liveness.dead_workers import Death
from holdfast.worker.processes.exit_cause import Blame
from holdfast.worker.processes.ipc import start_process
from holdfast.worker.processes.run_table import Begun, RunTable

LATE = 3.0  # seconds past its deadline, after which health names a run that goes on
SILENT = 5.0  # seconds without a message, after which health names a process


class WorkerProcess:
    def __init__(self, config: Mapping[str, Any], *, level: int) -> None:
        page = RunTable.create()
        try:
            self._runs = RunTable(page)
            # In a group of its own: a Ctrl-C at the terminal is for the supervisor alone.
            self.process, self.channel = start_process(
                "holdfast.worker.processes.child", page, process_group=0
            )
        finally:
            os.close(page)
        self.pid = self.process.pid
        self.level = level  #: of the jobs with deaths on record that it runs; 0: ordinary jobs
        self.started = self.heard_at = time.monotonic()
        self.id: str | None = None
        self.info = "{}"
        self.stopped = False  #: by SIGSTOP
        self.draining = False
        self.replaced = False
        self.killed = False
        self.leaving = False  #: it has announced that it exits normally
        self.condemned: list[Begun] = []  #: runs whose timeout is recorded after its death
        self.locked_since: float | None = None  #: when it was first seen silent and holding a lock
        self._blame: Blame | None = None  #: if we killed it: whether its runs caused that
        self._handlers: list[int] = []
        self.channel.send_now({**config, "level": level})

    def receive(self, *, wait: bool = True) -> list[dict[str, Any]] | None:
        """Return the messages that the process sent; None if it closed its end of the connection, or
        has sent nothing and `wait` is False."""
        if (lines := self.channel.receive(wait=wait)) is None:
            return None
        self.heard_at = time.monotonic()
        return [json.loads(line) for line in lines]

    def confirm(self, moment: float) -> None:
        self.channel.send_now({"beat": moment})

    def update(self, status: Mapping[str, Any]) -> None:
        self.info = status["info"]
        self.draining = status["draining"]
        self._handlers = status["handlers"]

    def begun(self) -> list[Begun]:
        """Return the runs whose handlers have begun and not ended, also of a frozen or dead process."""
        return self._runs.runs()

    def overdue(self, now: float, by: float) -> list[Begun]:
        """Return the runs that are past their deadline by more than `by` seconds."""
        return [run for run in self.begun() if run.deadline is not None and now > run.deadline + by]

    def silent_for(self, now: float) -> float:
        """Return the seconds since the last message; a live process sends one twice a second."""
        return now - self.heard_at

    def is_silent(self, now: float) -> bool:
        return self.silent_for(now) >= SILENT

    def published_info(self) -> str:
        """Return what the process last reported about itself, and what only the supervisor sees: that
        it is silent, or that a run is past its deadline."""
        now = time.monotonic()
        silent, late = self.is_silent(now), self.overdue(now, LATE)
        if not silent and not late:
            return self.info
        info = json.loads(self.info) | {"overdue": [run.claim.id for run in late]}
        return json.dumps(info | ({"silent_for": self.silent_for(now)} if silent else {}))

    def blame_for(self, code: int | None) -> Blame | None:
        """Return whether the runs that had begun caused the death; None: its exit code `code` tells. A
        process that announced its exit to us, and exited, may not have been able to deregister in the
        database: its runs did not cause it."""
        if code != 0 or not self.leaving:
            return self._blame
        if self.draining:
            self.condemned = self.overdue(time.monotonic(), LATE)
        return Blame.GIVEN_BACK

    def death(self, code: int | None) -> Death:
        """Return the record of the death, with the timeouts of the condemned runs."""
        blame = self.blame_for(code)
        verdicts = [(run.claim, run.timeout_error()) for run in self.condemned]
        recorded = {claim for claim, _ in verdicts}
        begun = [run.claim for run in self.begun() if run.claim not in recorded]
        return Death(begun, verdicts, blame, code)

    def kill(self, blame: Blame | None = None) -> None:
        """Kill the process and all that it started. The supervisor replaces it without waiting for its
        end, which may take long."""
        self.killed = self.replaced = True
        self._blame = self._blame or blame
        for group in [self.pid, *self._handlers]:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signal.SIGKILL)
