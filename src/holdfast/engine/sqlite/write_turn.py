"""Turns between processes that write: a lock on a file beside the database.

SQLite's own busy handler sleeps and tries again, ever longer, so a process that writes all the time
starves one that writes now and then (a heartbeat waited 8 s behind four writers). Our processes first
take a turn. A process that finds it taken says so with a second lock, and a process that gives a turn
back while another one waits pauses before it takes the next (decision 0004).
"""

import fcntl
import os
import random
import time
from contextlib import suppress
from pathlib import Path

from holdfast.engine.sqlite.lock_holders import describe, turn_holders
from holdfast.errors import DatabaseBusy, DatabaseUnavailable

_SHORTEST, _LONGEST = 0.00005, 0.002  # seconds between two looks
_LOOK = 0.001  # seconds between two looks whether somebody waits
_ASIDE = 0.0005  # longer than a look of those who wait, shorter than a commit


class Turns:
    """One process's place in the line. Used by one thread at a time (the group's leader)."""

    def __init__(self, database: Path, *, timeout: float) -> None:
        self._path = database
        self._timeout = timeout
        self._turn = _open(database.with_name(database.name + "-turn"))
        self._line = _open(database.with_name(database.name + "-line"))
        self._crowded = False
        self._looked_at = 0.0

    def take(self) -> "Turns":
        """`with turns.take(): ...`"""
        return self

    def __enter__(self) -> None:
        if self._crowded:
            time.sleep(_ASIDE)
        if not _try_lock(self._turn, fcntl.LOCK_EX):
            self._wait()

    def __exit__(self, *_: object) -> None:
        try:
            now = time.monotonic()
            if self._crowded or now - self._looked_at > _LOOK:
                self._looked_at = now
                self._crowded = not _try_lock(self._line, fcntl.LOCK_EX)
                if not self._crowded:
                    fcntl.flock(self._line, fcntl.LOCK_UN)
        finally:
            fcntl.flock(self._turn, fcntl.LOCK_UN)

    def _wait(self) -> None:
        deadline = time.monotonic() + self._timeout
        pause = _SHORTEST
        in_line = _try_lock(self._line, fcntl.LOCK_SH)
        try:
            while not _try_lock(self._turn, fcntl.LOCK_EX):
                if time.monotonic() > deadline:
                    holders = describe(turn_holders(self._path)) or ", another process holds it"
                    raise DatabaseBusy(
                        f"no turn to write to {os.fspath(self._path)!r} within {self._timeout:g} s"
                        f"{holders}: look for a process that is stopped, overloaded, or frozen by code "
                        "that holds Python's interpreter lock"
                    )
                time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311
                pause = min(pause * 1.5, _LONGEST)
                in_line = in_line or _try_lock(self._line, fcntl.LOCK_SH)
        finally:
            fcntl.flock(self._line, fcntl.LOCK_UN)

    def close(self) -> None:
        for file in (self._turn, self._line):
            _inherited.discard(file)
            os.close(file)


_inherited: set[int] = set()


def _close_inherited() -> None:
    """In a child that was forked: a lock that its parent holds would stay held by the child, after the
    parent was killed, for as long as the child lives."""
    while _inherited:
        with suppress(OSError):
            os.close(_inherited.pop())


os.register_at_fork(after_in_child=_close_inherited)


def _open(path: Path) -> int:
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        _inherited.add(file)
        return file
    except OSError as problem:
        raise DatabaseUnavailable(
            f"cannot open {os.fspath(path)!r}, the file by which processes take turns "
            f"({problem.strerror}): whoever uses the database must be able to write to all of its "
            "files, and to their folder"
        ) from problem


def _try_lock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
