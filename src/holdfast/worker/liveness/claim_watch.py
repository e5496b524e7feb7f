"""Watches this worker's claims: reads from the database which runs were asked to stop or have lost
their claim, and writes the progress of runs."""

import logging
import time
from collections.abc import Callable, Sequence

from holdfast.engine.engine import Engine
from holdfast.engine.records import Held, Report
from holdfast.jobs.job import Claim
from holdfast.worker.running.execution import REPORTING, Execution, Stop
from holdfast.worker.running.executions import Executions
from holdfast.worker.ticker import Ticker

logger = logging.getLogger("holdfast.worker")

LOOK = 0.5  # seconds between two looks: after so long a running job sees that it was cancelled
_IDLE_LOOK = 5.0
_ORPHAN = 5.0  # seconds between the two looks that find a claim without a run


class ClaimWatch(Ticker):
    def __init__(
        self,
        engine: Engine,
        executions: Executions,
        *,
        worker: Callable[[], str | None],
        release: Callable[[Held], None],
        progressed: Callable[[Execution, Report], None],
    ) -> None:
        super().__init__("watch", {"the look at claims": self.tick}, retry=LOOK)
        self._engine = engine
        self._executions = executions
        self._worker = worker
        self._release = release
        self._progressed = progressed
        self._orphans: dict[Claim, float] = {}
        self._looked_at = 0.0

    def tick(self) -> float:
        running = [execution for execution in self._executions() if not execution.ended]
        worker = self._worker()
        now = time.monotonic()
        if worker is None or (not running and now - self._looked_at < _IDLE_LOOK):
            return LOOK
        self._looked_at = now
        held = {Claim(row.id, row.claim_no): row for row in self._engine.held(worker)}
        for execution in running:
            self._stop_if_asked(execution, held.get(execution.claim))
        self._give_back_orphans(held, now)
        self._report(running)
        return LOOK

    def _stop_if_asked(self, execution: Execution, held: Held | None) -> None:
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

    def _give_back_orphans(self, held: dict[Claim, Held], now: float) -> None:
        """Give back claims of this worker that have no run here: the reply to the claim was lost."""
        orphans = held.keys() - {execution.claim for execution in self._executions()}
        self._orphans = {claim: self._orphans.get(claim, now) for claim in orphans}
        for claim, since in list(self._orphans.items()):
            if now - since >= _ORPHAN:
                logger.warning("job %s was claimed, but never reached us: given back", claim.id)
                self._release(held[claim])
                del self._orphans[claim]

    def _report(self, running: Sequence[Execution]) -> None:
        reports = []
        with REPORTING:
            for execution in running:
                news = execution.news
                if news is not None and news is not execution.reported and not execution.ended:
                    reports.append((execution, news, Report(*execution.claim, *news)))
            self._engine.report([report for _, _, report in reports])
            for execution, news, _ in reports:
                execution.reported = news
        for execution, _, report in reports:
            self._progressed(execution, report)
