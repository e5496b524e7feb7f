"""The runs of a worker, from the claim to the written finish."""

import threading
import time
from collections.abc import Iterable

from holdfast.jobs.job import Claim
from holdfast.worker.running.execution import Execution


class Executions:
    """Shared by the threads of a worker."""

    def __init__(self) -> None:
        self._held: dict[Claim, Execution] = {}
        self._idle = threading.Condition()
        self.begun = 0  #: how many there were so far

    def __bool__(self) -> bool:
        return bool(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __call__(self) -> list[Execution]:
        return list(self._held.values())

    def add(self, execution: Execution) -> None:
        self._held[execution.claim] = execution
        self.begun += 1

    def remove(self, executions: Iterable[Execution]) -> None:
        for execution in executions:
            self._held.pop(execution.claim, None)
        if not self._held:
            with self._idle:
                self._idle.notify_all()

    def wait_for_none(self, deadline: float) -> None:
        """Wait until no run is left, or the deadline."""
        with self._idle:
            while self._held and (left := deadline - time.monotonic()) > 0:
                self._idle.wait(min(left, 0.1))
