"""Keeps what handlers write with `ctx.log`: gathered from all runs, and written once a second.

Lines are apart from any finish. A process that dies takes its last second of lines with it; a database
that is away for long takes some more. Runs never wait for it, and never fail by it. Its thread exists
from the first line on: a worker whose handlers log nothing pays nothing.
"""

import logging
import threading
from collections import deque
from datetime import UTC, datetime

from holdfast.engine.engine import Engine
from holdfast.jobs.job import LogLine
from holdfast.worker.running.execution import Execution

logger = logging.getLogger("holdfast.worker")

EVERY = 1.0  # seconds between two writes
BATCH = 1000  # lines of one write
LINES = 10_000  # that wait to be written, of all runs
RUN_LINES = 500  # of one run
RUN_BYTES = 64 * 1024
TRIES = 30  # of one batch, until it is given up


class Notes:
    """What one run has written so far: how much, not what."""

    __slots__ = ("bytes", "closed", "left_out", "lines")

    def __init__(self) -> None:
        self.lines = self.bytes = self.left_out = 0
        self.closed = False

    def has_room(self, size: int) -> bool:
        """What comes after the first line that had none is left out too: a log has no holes."""
        fits = self.lines < RUN_LINES and self.bytes + size <= RUN_BYTES
        return fits and not self.left_out


class LogWriter:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._lines: deque[LogLine] = deque()
        self._thread: threading.Thread | None = None
        self._some = threading.Event()
        self._closing = threading.Event()
        self._failures = 0

    def add(self, run: Execution, level: str, text: str) -> None:
        """A line of a run, from any thread."""
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
        """It is over: what was left out is told, in a last line."""
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
        if self._thread is None and not self._closing.is_set():
            self._thread = threading.Thread(target=self._run, name="holdfast-logs", daemon=True)
            self._thread.start()
        self._some.set()

    def close(self, timeout: float) -> None:
        """Write what is left, once more."""
        self._closing.set()
        self._some.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def _run(self) -> None:
        while not self._closing.is_set():
            self._some.wait()
            self._closing.wait(EVERY)
            self._some.clear()
            while self._write() and len(self._lines) >= BATCH:
                pass
            if self._lines:
                self._some.set()
        while self._write() and self._lines:
            pass

    def _write(self) -> bool:
        """The oldest lines; False: they could not be written, and are tried again or given up."""
        with self._lock:
            batch = [self._lines[place] for place in range(min(BATCH, len(self._lines)))]
        try:
            self._engine.log(batch)
        except Exception as problem:
            self._failures += 1
            logger.debug("%d lines of logs could not be written: %s", len(batch), problem)
            if self._failures < TRIES:
                return False
            logger.warning("%d lines of logs are lost: %s", len(batch), problem)
        self._failures = 0
        with self._lock:
            for _ in batch:
                self._lines.popleft()
        return True
