"""Two watches over what runs. `Timer` keeps deadlines and never touches the database, so that nothing
can delay it; `Watch` reads what the database says of our jobs, and writes their progress."""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from holdfast.engine.protocol import Engine
from holdfast.engine.records import Held, Report
from holdfast.errors import HoldfastError
from holdfast.jobs.job import Claim
from holdfast.worker.liveness.self_fencing import SelfFencing
from holdfast.worker.running.execution import REPORTING, Execution, Stop

logger = logging.getLogger("holdfast.worker")

LOOK = 0.5  # seconds: as soon a running job hears that it was cancelled
_IDLE_LOOK = 5.0
_ORPHAN = 5.0  # seconds between the two looks that find a claim without a run
_TICK = 0.25
_PATIENCE = 8.0  # seconds past its deadline, after which a thread is taken to be stuck for good
_AGAIN = 1.0  # seconds until a run that was stopped, and goes on, is stopped once more

Running = Callable[[], Sequence[Execution]]


class DeadlineEnforcer:
    """Stops what is past its deadline, and everything when we have been silent for too long."""

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
        """Something with a short deadline has begun."""
        self._wake.set()

    def _run(self) -> None:
        while not self._closing:
            wait = _TICK
            try:
                wait = self.tick(time.monotonic())
            except Exception:
                logger.exception("the timer stumbled")
            self._wake.wait(wait)
            self._wake.clear()

    def tick(self, now: float) -> float:
        """Look at everything once; the seconds until the next look."""
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
        """A thread is stuck as soon as it does not return, a coroutine when its cancellation was of no
        use: it swallowed it, or blocks its loop. (A process is killed.)"""
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


class ClaimWatch:
    def __init__(
        self,
        engine: Engine,
        running: Running,
        *,
        worker: Callable[[], str | None],
        release: Callable[[Held], None],
        told: Callable[[Execution, Report], None],
    ) -> None:
        self._engine = engine
        self._running = running
        self._worker = worker
        self._release = release
        self._told = told
        self._orphans: dict[Claim, float] = {}
        self._looked_at = 0.0
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="holdfast-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout: float) -> None:
        self._closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        while not self._closing:
            try:
                self.tick()
            except HoldfastError as problem:
                logger.debug("the watch waits for the database: %s", problem)
            except Exception:
                logger.exception("the watch stumbled")
            self._wake.wait(LOOK)

    def tick(self) -> None:
        running = [execution for execution in self._running() if not execution.ended]
        worker = self._worker()
        now = time.monotonic()
        if worker is None or (not running and now - self._looked_at < _IDLE_LOOK):
            return
        self._looked_at = now
        held = self._engine.held(worker)
        by_claim = {Claim(one.id, one.claim_no): one for one in held}
        for execution in running:
            self._compare(execution, by_claim.get(execution.claim))
        self._adopt(held, now)
        self._report(running)

    def _compare(self, execution: Execution, held: Held | None) -> None:
        if execution.ended or execution.why is not None or execution.completed:
            return
        if held is None and not self._engine.get([execution.job.id]):
            logger.info("job %s was deleted: its run is stopped", execution.job.id)
            execution.stop(Stop.GONE)
        elif held is None:
            logger.warning("job %s is no longer ours: its run is stopped", execution.job.id)
            execution.stop(Stop.LOST)
        elif held.cancel_requested:
            execution.stop(Stop.CANCELLED)

    def _adopt(self, held: Sequence[Held], now: float) -> None:
        """Claims by the database's word that nobody runs: their reply was lost. Given back."""
        known = {execution.claim for execution in self._running()}
        orphans: dict[Claim, float] = {}
        for one in held:
            claim = Claim(one.id, one.claim_no)
            if claim in known:
                continue
            since = self._orphans.get(claim, now)
            if now - since >= _ORPHAN:
                logger.warning("job %s was claimed, but never reached us: it is given back", one.id)
                self._release(one)
            else:
                orphans[claim] = since
        self._orphans = orphans

    def _report(self, running: Sequence[Execution]) -> None:
        told = []
        with REPORTING:
            for execution in running:
                news = execution.news
                if news is not None and news is not execution.told and not execution.ended:
                    told.append((execution, news, Report(*execution.claim, *news)))
            self._engine.report([report for _, _, report in told])
            for execution, news, _ in told:
                execution.told = news
        for execution, _, report in told:
            self._told(execution, report)
