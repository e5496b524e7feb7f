"""Writes finishes: all that have gathered, in one batch; each is fenced by its claim.

What the database cannot take now is kept and sent again, together with what has gathered meanwhile: a
finish is never dropped, except when its claim is lost. A slot is free when its finish is committed.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast.engine.engine import Engine
from holdfast.engine.records import Report
from holdfast.errors import HoldfastError
from holdfast.jobs.outcome import Applied, Finish
from holdfast.worker.running.execution import REPORTING, Execution

logger = logging.getLogger("holdfast.worker")

LARGEST = 1000
_LATER = 0.1  # seconds until a row that another transaction has locked is tried again
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
STALLED = 60.0  # seconds without a written finish, after which a worker takes no more jobs
_AGAIN = frozenset({Applied.BUSY, Applied.UNWRITTEN})


class Item(NamedTuple):
    execution: Execution | None  #: None: a claim in the database of which this worker has no run
    finish: Finish


class Finisher:
    def __init__(
        self, engine: Engine, written: Callable[[Sequence[tuple[Item, Applied]]], None]
    ) -> None:
        self._engine = engine
        self._written = written
        self._items: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._kept: list[Item] = []  # what the database could not take yet
        self._failing_since: float | None = None
        self._told_stalled = False
        self._pause = _SHORTEST_PAUSE
        self._thread = threading.Thread(target=self._run, name="holdfast-finisher", daemon=True)
        self._abandoned = False

    def start(self) -> None:
        self._thread.start()

    def put(self, execution: Execution | None, finish: Finish) -> None:
        self._items.put(Item(execution, finish))

    @property
    def failing_for(self) -> float:
        """Seconds since which some finish could not be written; 0.0: everything was."""
        since = self._failing_since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def is_stalled(self) -> bool:
        """Whether finishes have waited for so long that claiming more jobs would only add to them."""
        return self.failing_for > STALLED

    def close(self, timeout: float) -> bool:
        """Write what is left, within the time; True when everything was."""
        if not self._thread.is_alive():
            return True
        self._items.put(None)
        self._thread.join(timeout)
        self._abandoned = True
        return not self._thread.is_alive()

    def _run(self) -> None:
        closing = False
        while not (closing and not self._kept) and not self._abandoned:
            batch, closes = self._gather()
            closing = closing or closes
            if batch := self._kept + batch:
                self._kept = self._write(batch)
            if self._kept:
                time.sleep(self._pause)
                self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _gather(self) -> tuple[list[Item], bool]:
        """Return what has gathered, and whether the finisher closes; wait for it if nothing is kept."""
        batch: list[Item] = []
        while len(batch) < LARGEST:
            try:
                item = self._items.get(block=not batch and not self._kept)
            except queue.Empty:
                break
            if item is None:
                return batch, True
            batch.append(item)
        return batch, False

    def _write(self, batch: list[Item]) -> list[Item]:
        """Write a batch; return the members to send again."""
        try:
            self._report(batch)
            applied = self._engine.finish([item.finish for item in batch])
        except HoldfastError as problem:
            self._failed(batch, problem)
            return batch
        except Exception as problem:  # a bug of ours: no finish is dropped for it, and none waits
            if len(batch) > 1:
                return [left for item in batch for left in self._write([item])]
            logger.exception("the end of job %s could not be written", batch[0].finish.id)
            self._failed(batch, problem)
            return batch
        results = [(item, applied[item.finish.id, item.finish.claim_no]) for item in batch]  # type: ignore[index]
        self._written([pair for pair in results if pair[1] not in _AGAIN])
        if busy := [item for item, result in results if result is Applied.BUSY]:
            self._later(busy)
        unwritten = [item for item, result in results if result is Applied.UNWRITTEN]
        if unwritten:
            self._failed(unwritten, "it has no room for them")
        else:
            self._recovered()
        return unwritten

    def _failed(self, batch: Sequence[Item], problem: object) -> None:
        if self._failing_since is None:
            self._failing_since = time.monotonic()
        if self.is_stalled and not self._told_stalled:
            self._told_stalled = True
            logger.error(
                "no end could be written for %.0f s (%s): this worker takes no more jobs until the "
                "database takes writes again",
                *(self.failing_for, problem),
            )
        logger.warning(
            "the ends of %d jobs wait for the database (%s); sending them again in %.2g s",
            *(len(batch), problem, self._pause),
        )

    def _recovered(self) -> None:
        if self._failing_since is not None:
            logger.info("the ends of all jobs are written again")
            self._failing_since = None
            self._told_stalled = False
            self._pause = _SHORTEST_PAUSE

    def _report(self, batch: Sequence[Item]) -> None:
        """The last progress of each run is always written."""
        news = [
            (item.execution, item.execution.news)
            for item in batch
            if item.execution is not None and item.execution.news is not item.execution.reported
        ]
        if not news:
            return
        with REPORTING:
            self._engine.report([Report(*run.claim, *last) for run, last in news if last])
            for run, last in news:
                run.reported = last

    def _later(self, batch: Sequence[Item]) -> None:
        """Send again later what another transaction has locked: the other finishes need not wait."""

        def again() -> None:
            for item in batch:
                self._items.put(item)

        timer = threading.Timer(_LATER, again)
        timer.daemon = True
        timer.start()
