"""Writes how runs ended: whatever has gathered, in one batch; each is fenced by its claim.

What the database cannot take now is kept and sent again: a finish is never dropped, except when its
claim is lost. A slot is free when its finish is committed.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast.engine import Engine, Report
from holdfast.errors import DatabaseError
from holdfast.outcome import Applied, Finish
from holdfast.worker.execution import REPORTING, Execution

logger = logging.getLogger("holdfast.worker")

LARGEST = 1000
_AGAIN = 0.1  # seconds until a row that somebody's transaction holds is tried again
_LONGEST_PAUSE = 2.0


class Item(NamedTuple):
    execution: Execution | None  #: None: a claim that this worker holds by the database's word only
    finish: Finish


class Finisher:
    def __init__(
        self, engine: Engine, written: Callable[[Sequence[tuple[Item, Applied]]], None]
    ) -> None:
        self._engine = engine
        self._written = written
        self._items: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="holdfast-finisher", daemon=True)
        self._abandoned = False

    def start(self) -> None:
        self._thread.start()

    def put(self, execution: Execution | None, finish: Finish) -> None:
        self._items.put(Item(execution, finish))

    def close(self, timeout: float) -> bool:
        """Write what is left, within the time; True when everything was."""
        if not self._thread.is_alive():
            return True
        self._items.put(None)
        self._thread.join(timeout)
        self._abandoned = True
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            batch, closing = self._gather()
            if batch:
                self._write(batch)
            if closing:
                return

    def _gather(self) -> tuple[list[Item], bool]:
        first = self._items.get()
        if first is None:
            return [], True
        batch = [first]
        while len(batch) < LARGEST:
            try:
                item = self._items.get_nowait()
            except queue.Empty:
                break
            if item is None:
                return batch, True
            batch.append(item)
        return batch, False

    def _write(self, batch: list[Item]) -> None:
        """Until every member is applied or lost."""
        pause = 0.05
        while batch and not self._abandoned:
            try:
                self._report(batch)
                applied = self._engine.finish([item.finish for item in batch])
            except DatabaseError as problem:
                logger.warning("the ends of %d jobs wait for the database: %s", len(batch), problem)
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            results = [(item, applied[item.finish.id, item.finish.claim_no]) for item in batch]  # type: ignore[index]
            self._written([pair for pair in results if pair[1] is not Applied.BUSY])
            batch = [item for item, result in results if result is Applied.BUSY]
            if batch:
                self._later(batch)
                return

    def _report(self, batch: Sequence[Item]) -> None:
        """The last progress of each run is always written."""
        news = [
            (item.execution, item.execution.news)
            for item in batch
            if item.execution is not None and item.execution.news is not item.execution.told
        ]
        if not news:
            return
        with REPORTING:
            self._engine.report([Report(*run.claim, *last) for run, last in news if last])
            for run, last in news:
                run.told = last

    def _later(self, batch: Sequence[Item]) -> None:
        """Somebody's transaction holds these rows; the others need not wait for them."""

        def again() -> None:
            for item in batch:
                self._items.put(item)

        timer = threading.Timer(_AGAIN, again)
        timer.daemon = True
        timer.start()
