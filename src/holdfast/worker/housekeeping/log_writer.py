"""Writes the lines that handlers log with `ctx.log`: gathered from all runs, once a second.

Lines are written apart from any finish. The last second of lines is lost if the process dies, and more
if the database is unavailable for long. Runs never wait for it, and never fail by it. Its thread starts
with the first line: a worker whose handlers log nothing pays nothing.
"""

import logging
import threading
from collections import deque
from datetime import UTC, datetime
from itertools import islice

from holdfast.engine.engine import Engine
from holdfast.jobs.job import LogLine
from holdfast.worker.running.execution import Execution
from holdfast.worker.ticker import Ticker

logger = logging.getLogger("holdfast.worker")

EVERY = 1.0  # seconds between two writes
BATCH = 1000  # lines of one write
LINES = 10_000  # most lines that wait to be written, of all runs
RUN_LINES = 500  # most lines of one run
RUN_BYTES = 64 * 1024
TRIES = 30  # attempts to write a batch, until it is given up


class Notes:
    """Counts what one run has logged so far."""

    __slots__ = ("bytes", "closed", "left_out", "lines")

    def __init__(self) -> None:
        self.lines = self.bytes = self.left_out = 0
        self.closed = False

    def has_room(self, size: int) -> bool:
        """Return whether a line is kept. After the first line that is left out, all are: a log has no
        gaps."""
        fits = self.lines < RUN_LINES and self.bytes + size <= RUN_BYTES
        return fits and not self.left_out


class LogWriter(Ticker):
    def __init__(self, engine: Engine) -> None:
        super().__init__("logs", {"lines of logs": self._write_full_batches}, last=self._write_all)
        self._engine = engine
        self._lock = threading.Lock()
        self._lines: deque[LogLine] = deque()
        self._failures = 0

    def add(self, run: Execution, level: str, text: str) -> None:
        """Add a line of a run, from any thread."""
        size = len(text.encode())
        with self._lock:
            notes = run.notes = run.notes or Notes()
            if notes.closed:
                return
            if len(self._lines) >= LINES or not notes.has_room(size):
                notes.left_out += 1
                return
            notes.bytes += size
            self._append(run, notes, level, text)

    def end(self, run: Execution) -> None:
        """End the log of a run: a last line says how many lines were left out."""
        if run.notes is None:
            return
        with self._lock:
            notes = run.notes
            if notes.left_out and not notes.closed:
                words = "more line is" if notes.left_out == 1 else "more lines are"
                self._append(run, notes, "warning", f"{notes.left_out} {words} left out")
            notes.closed = True

    def _append(self, run: Execution, notes: Notes, level: str, text: str) -> None:
        notes.lines += 1
        line = LogLine(
            job_id=run.job.id,
            claim_no=run.job.claim_no,
            attempt=run.job.attempts,
            line_no=notes.lines,
            at=run.now() or datetime.now(UTC),
            level=level,
            text=text,
        )
        self._lines.append(line)
        if self._thread.ident is None and not self._closing.is_set():
            self.start()

    def _write_full_batches(self) -> float:
        while self._write() and len(self._lines) >= BATCH:
            pass
        return EVERY

    def _write_all(self) -> None:
        """Write all lines when the worker stops; failed writes are not repeated."""
        while self._write() and self._lines:
            pass

    def _write(self) -> bool:
        """Write the oldest lines. Returns False if they could not be written, and are kept."""
        with self._lock:
            batch = list(islice(self._lines, BATCH))
        try:
            self._engine.log(batch)
        except Exception as problem:
            self._failures += 1
            logger.debug("%d lines of logs cannot be written: %s", len(batch), problem)
            if self._failures < TRIES:
                return False
            logger.warning("%d lines of logs are lost: %s", len(batch), problem)
        self._failures = 0
        with self._lock:
            for _ in batch:
                self._lines.popleft()
        return True
