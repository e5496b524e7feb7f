"""Which process opened an engine's connections, and by which call.

Connections must not cross a fork: both sides would write on one socket, or believe to hold one lock. An
engine that has opened nothing may be forked, and each child opens its own.
"""

import os
import sys
import threading

from holdfast.errors import UsedAfterFork


class ForkGuard:
    """`with owner: ...` around the opening; if that fails, nothing is owned."""

    def __init__(self) -> None:
        self._pid: int | None = None
        self._call = ""
        self._is_new = False

    @property
    def is_elsewhere(self) -> bool:
        """Another process opened it."""
        return self._pid is not None and self._pid != os.getpid()

    def check(self) -> None:
        if self.is_elsewhere:
            raise UsedAfterFork(
                f"this Holdfast was opened before a fork, by process {self._pid} ({self._call}), and "
                f"is used by its child {os.getpid()}: connections cannot be shared. Remove that call "
                "from what runs before the fork, or make a new Holdfast in each child"
            )

    def __enter__(self) -> None:
        # Set before anything is opened: a child that is forked meanwhile must not wait for a lock that
        # no thread of it will ever release.
        self._is_new = self._pid is None
        if self._is_new:
            self._call, self._pid = _call(), os.getpid()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._is_new:
            self._pid = None


def _call() -> str:
    """Which function of ours was called, and the line that called it."""
    frame, name = sys._getframe(), ""
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        name = frame.f_code.co_name
        frame = frame.f_back
    if frame.f_globals.get("__name__", "").startswith(("threading", "concurrent.")):
        return f"{name}() in thread {threading.current_thread().name!r}"
    return f"{name}() at {frame.f_code.co_filename}:{frame.f_lineno}"


def _is_ours(module: str) -> bool:
    return module == "holdfast" or module.startswith("holdfast.")
