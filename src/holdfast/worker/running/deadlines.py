"""Deadlines: stops runs that are past their timeout, and all runs when this worker has been silent for
too long. Never touches the database, which could delay it."""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from holdfast.worker.liveness.self_fencing import SelfFencing
from holdfast.worker.running.execution import Execution, Stop

logger = logging.getLogger("holdfast.worker")

_TICK = 0.25
_PATIENCE = 8.0  # seconds past its deadline, after which a thread counts as stuck for good
_AGAIN = 1.0  # seconds until a run that goes on after it was stopped is stopped again

Running = Callable[[], Sequence[Execution]]


class DeadlineEnforcer:
    """Stops runs that are past their deadline, and all runs when we were silent for too long."""

    def __init__(
        self,
        running: Running,
        fencing: SelfFencing,
        *,
        limit: float,
        stuck: Callable[[Execution], None],
    ) -> None:
        self._running = running
        self._fencing = fencing
        self._limit = limit
        self._stuck = stuck
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="holdfast-timer", daemon=True)

    def start(self) -> None:
        self._fencing.start()
        self._thread.start()

    def close(self, timeout: float) -> None:
        self._fencing.close(timeout)
        self._closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def wake(self) -> None:
        """Look again: a run with a short deadline has begun."""
        self._wake.set()

    def _run(self) -> None:
        while not self._closing:
            wait = _TICK
            try:
                wait = self.tick(time.monotonic())
            except Exception:
                logger.exception("a look at the deadlines failed; the next one follows")
            self._wake.wait(wait)
            self._wake.clear()

    def tick(self, now: float) -> float:
        """Look at all runs once; return the seconds until the next look."""
        running = self._running()
        silent = self._fencing.silence() > self._limit
        nearest = now + (_TICK if running else 1.0)
        for execution in running:
            if execution.ended:
                continue
            if silent and execution.task.conduct.strict and execution.why is None:
                logger.warning(
                    "job %s is stopped: the database could not be reached for so long that others "
                    "may take it",
                    execution.job.id,
                )
                execution.stop(Stop.SILENT)
            elif execution.deadline is not None and now >= execution.deadline:
                self._expire(execution, now)
            elif execution.deadline is not None:
                nearest = min(nearest, execution.deadline)
            if execution.why is not None and now - execution.halted_at >= _AGAIN:
                execution.halted_at = now
                execution.stop(execution.why)
        return max(0.005, nearest - now)

    def _expire(self, execution: Execution, now: float) -> None:
        """Stop a run at its deadline. One that goes on is stuck: a thread at the next look, a coroutine
        after `_PATIENCE` (it suppressed its cancellation, or blocks its loop). A process is killed."""
        late = now - (execution.deadline or now)
        kind = execution.kind
        if execution.why is None:
            execution.stop(Stop.TIMEOUT)
        elif not execution.stuck and kind != "process" and (kind == "thread" or late > _PATIENCE):
            execution.stuck = True
            what = "thread" if kind == "thread" else "coroutine"
            text = f"stuck: past its timeout, and its {what} has not returned"
            execution.news = (execution.job.progress, text)
            logger.error("job %s (%s) is %s", execution.job.id, execution.job.type, text)
        if execution.stuck and late > _PATIENCE:
            self._stuck(execution)
