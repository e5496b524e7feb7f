"""Checks that the file at the path is still the file that this process has open.

A database that was deleted, moved or replaced goes on working for processes that have it open: SQLite
writes to a file that has no name any more, and commits. So the path is checked after each commit,
before any caller learns that it succeeded, and from time to time by threads that only read. A change is
final: jobs of two files must not be mixed, and only a person knows which file is the right one.
"""

import ctypes
import errno
import logging
import os
import sqlite3
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from holdfast.errors import DatabaseReplaced

logger = logging.getLogger("holdfast.engine")

_LOOK = 1.0  # seconds between two looks of threads that do not write
_TRIES = 5

Inode = tuple[int, int]
_UNKNOWN = (-1, -1)
_AT_FDCWD = -100


class Identity:
    """The database and its log, by device and inode. (SQLite resets the log in place, and deletes it
    only when the last connection closes: it stays the same file for as long as we have it open.)"""

    def __init__(self, path: Path) -> None:
        self._files = [os.fsencode(path), os.fsencode(path) + b"-wal"]
        self._known: list[tuple[bytes, Inode]] = []
        self._problem: str | None = None
        self._look_at = 0.0
        self._lock = threading.Lock()

    def settle(self, connect: Callable[[], sqlite3.Connection]) -> sqlite3.Connection:
        """Open the first connection, and remember what it opened: the file that was at the path before
        and after. (One that is made by this is opened once more.)"""
        for _ in range(_TRIES):
            before = _inode(self._files[0])
            connection = connect()
            found = [(file, inode) for file in self._files if (inode := _inode(file))]
            if before is not None and (self._files[0], before) in found:
                self._known = found
                return connection
            connection.close()
        raise DatabaseReplaced(
            f"{os.fsdecode(self._files[0])!r} changes while it is opened: something deletes or "
            "replaces it again and again"
        )

    def guard(self, connect: Callable[[], sqlite3.Connection]) -> sqlite3.Connection:
        """Open another connection, to the same file."""
        connection = connect()
        try:
            self.check()
        except BaseException:
            connection.close()
            raise
        return connection

    def check(self) -> None:
        """Raise DatabaseReplaced if the path does not lead to the file that is open."""
        if self._problem is None:
            for file, known in self._known:
                if (found := _inode(file)) != known and found is not _UNKNOWN:
                    self._replaced(file, found)
        if self._problem is not None:
            raise DatabaseReplaced(self._problem)

    def look(self) -> None:
        """Do the same for threads that do not write, at most once a second."""
        if self._problem is not None or time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _LOOK
            self.check()

    def _replaced(self, file: bytes, found: Inode | None) -> None:
        with self._lock:
            if self._problem is not None:
                return  # another thread has seen it, and written the line
            what = "deleted or moved" if found is None else "replaced by another file"
            self._problem = (
                f"{os.fsdecode(file)!r} was {what} while process {os.getpid()} had it open: what that "
                "process writes would be lost, so it writes and reads no more; put the right file in "
                "place, then restart the process"
            )
        logger.critical("%s", self._problem)


class _Statx:
    """`os.stat` without letting go of Python's interpreter lock: other threads would run after each
    commit before its callers are told. (Linux; a local file is looked up in a microsecond.)"""

    _MASK = 0x104  # STATX_NLINK | STATX_INO
    _FIELDS = struct.Struct("=16xI12xQ96xII")  # links, inode, device (major, minor)

    def __init__(self) -> None:
        self._call = ctypes.PyDLL(None).statx  # AttributeError where there is none
        self._call.argtypes = [ctypes.c_int, ctypes.c_char_p, *[ctypes.c_int] * 2, ctypes.c_char_p]
        self._results = threading.local()  # a buffer for each thread

    def __call__(self, file: bytes) -> Inode | None:
        """Device and number; None: anything else than a file that has a name."""
        try:
            result = self._results.buffer
        except AttributeError:
            result = self._results.buffer = ctypes.create_string_buffer(256)
        if self._call(_AT_FDCWD, file, 0, self._MASK, result):
            return None
        links, number, major, minor = self._FIELDS.unpack_from(result)
        return (os.makedev(major, minor), number) if links else None


_statx: _Statx | None = None
with suppress(AttributeError, OSError):  # Linux has it
    _statx = _Statx()


def _inode(file: bytes) -> Inode | None:
    """Device and number; None: no file has this name, or (a bind mount) the file has lost its name."""
    if _statx is not None and (known := _statx(file)) is not None:
        return known
    try:
        found = os.stat(file)
    except OSError as problem:
        # A path that cannot be looked at now says nothing about the file that is open.
        return None if problem.errno in (errno.ENOENT, errno.ENOTDIR) else _UNKNOWN
    return (found.st_dev, found.st_ino) if found.st_nlink else None
