"""Reads what the database says of this worker's jobs (cancel requests, lost claims), and writes the
progress of its runs."""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from holdfast.engine.engine import Engine
from holdfast.engine.records import Held, Report
from holdfast.errors import HoldfastError
from holdfast.jobs.job import Claim
from holdfast.worker.running.execution import REPORTING, Execution, Stop

logger = logging.getLogger("holdfast.worker")

LOOK = 0.5  # seconds: as soon a running job hears that it was cancelled
_IDLE_LOOK = 5.0
_ORPHAN = 5.0  # seconds between the two looks that find a claim without a run

Running = Callable[[], Sequence[Execution]]


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
        self._give_back_orphans(held, now)
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

    def _give_back_orphans(self, held: Sequence[Held], now: float) -> None:
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
