"""Wake-ups on SQLite: the kernel reports writes to the log beside the database.

Linux: inotify on the `-wal` file and on its folder (the log can be made anew). Nothing is opened. An
event says only that a process wrote, maybe this one; `data_version` of our writer, which does not
count its own commits, says whether others did. Elsewhere that number is polled.
"""

import ctypes
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.engine.wakeups import EVERYWHERE, Wakeups

_IN_MODIFY, _IN_CREATE, _IN_MOVED_TO = 0x2, 0x100, 0x80
_POLL = 0.05
_SHORTEST, _LONGEST = 0.0001, 0.5  # seconds between two looks after an event; then none


class SqliteWakeups(Wakeups):
    def __init__(
        self, path: Path, version: Callable[[], int], on_close: Callable[[Any], None]
    ) -> None:
        self._seen = version()
        super().__init__(on_close)
        self._version = version
        self._watch = _Watch(path) if sys.platform == "linux" else None
        self._files = (self._pipe,) if self._watch is None else (self._pipe, self._watch.file)

    def wait(self, timeout: float) -> frozenset[str]:
        deadline = time.monotonic() + timeout
        pause = _LONGEST
        while True:
            version = self._version()
            if version != self._seen:
                self._seen = version
                return EVERYWHERE
            left = deadline - time.monotonic()
            if left <= 0:
                return frozenset()
            written = self._sleep(left if pause >= _LONGEST else min(left, pause))
            if isinstance(written, frozenset):
                return written
            # The log is written first, synced, and only then do others see the commit: an event
            # comes too early, and is followed by looks at growing distances.
            pause = _SHORTEST if written else pause * 1.5

    def _sleep(self, seconds: float) -> bool | frozenset[str]:
        """Wait until the log is written to (True) or the time is up (False); hints: another thread of
        this process ended the wait."""
        if self._watch is None:
            seconds = min(seconds, _POLL)
        ready = self._poll.wait(self._files, seconds)
        written = self._watch is not None and self._watch.file in ready
        if written and self._watch is not None:
            self._watch.drain()
        return self._read_pipe() if self._pipe in ready else written

    def _release(self) -> None:
        if self._watch is not None:
            os.close(self._watch.file)


class _Watch:
    """inotify, through the C library."""

    def __init__(self, path: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._log = path.with_name(path.name + "-wal")
        self.file: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.file < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._add(path.parent, _IN_CREATE | _IN_MOVED_TO)
        self._add(self._log, _IN_MODIFY)

    def _add(self, path: Path, mask: int) -> None:
        # A log that is not there yet is found by its folder's event.
        self._libc.inotify_add_watch(self.file, os.fsencode(path), mask)

    def drain(self) -> None:
        try:
            while len(os.read(self.file, 65536)) >= 65000:
                continue
        except BlockingIOError:
            pass
        self._add(self._log, _IN_MODIFY)
