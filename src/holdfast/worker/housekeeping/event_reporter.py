"""Reports what happened to jobs: to the log, to the figures, and to the listeners of this process."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.engine.engine import Engine
from holdfast.engine.records import Report, Swept
from holdfast.errors import HoldfastError
from holdfast.events.event import Event, Listeners
from holdfast.jobs.backoff import FAILS_AT
from holdfast.jobs.job import EventKind, Job
from holdfast.jobs.outcome import Finish, Outcome, kind_of
from holdfast.worker.housekeeping.pruning import Work
from holdfast.worker.housekeeping.rollup_writer import RollupWriter
from holdfast.worker.running.execution import Execution
from holdfast.worker.running.unreadable_payloads import UnreadablePayloads

logger = logging.getLogger("holdfast.worker")


class EventReporter:
    def __init__(
        self,
        listeners: Listeners,
        counts: Counter[str],
        rollups: RollupWriter,
        unreadable: UnreadablePayloads,
    ) -> None:
        self._listeners = listeners
        self._counts = counts
        self._rollups = rollups
        self._unreadable = unreadable

    def _send(self, kind: EventKind, jobs: Iterable[Job], **fields: Any) -> None:
        if self._listeners.wants(kind):
            for job in jobs:
                self._listeners.tell(Event(kind=kind, job=job, **fields))

    def started(self, jobs: Sequence[Job]) -> None:
        self._send(EventKind.STARTED, jobs)

    def finished(self, execution: Execution, finish: Finish) -> None:
        """Report a finish that was applied."""
        job = execution.job
        self._rollups.count(job, finish, execution.now())
        if finish.outcome is Outcome.UNREADABLE:
            self._unreadable.add(job.type, (finish.error or "").partition(FAILS_AT)[0])
        elif finish.error is not None:
            level = logging.ERROR if finish.outcome is Outcome.FAILED else logging.WARNING
            logger.log(level, "job %s (%s) %s: %s", job.id, job.type, finish.outcome, finish.error)
        kind = kind_of(finish)
        retry_in = finish.delay if kind is EventKind.RETRYING else None
        self._send(kind, [job], error=finish.error, result=finish.result, retry_in=retry_in)

    def lost(self, engine: Engine, id: str) -> None:
        """Report a finish that changed nothing: another worker has its job, or it was deleted."""
        try:
            level = logging.WARNING if engine.get([id]) else logging.INFO
        except HoldfastError:
            level = logging.WARNING
        logger.log(level, "job %s was lost or deleted: its finish changed nothing", id)

    def pruned(self, work: Work) -> None:
        self._counts["pruned"] += work.gone
        self._counts["prune_failures"] += work.failed

    def progressed(self, execution: Execution, report: Report) -> None:
        progress, message = report.progress, report.message
        self._send(EventKind.PROGRESS, [execution.job], progress=progress, message=message)

    def swept(self, swept: Swept) -> None:
        self._counts["recovered"] += len(swept.rescued)
        self._send(EventKind.RESCUED, swept.rescued)
