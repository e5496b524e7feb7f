"""Finds the processes that hold the locks which a write to a SQLite database needs. On Linux the kernel
lists them (/proc/locks); elsewhere none is found.

Files are found by their paths only: to open one of the database's files and close it again would drop
the locks that SQLite holds on it (docs/decisions/0003).
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_LOCKS = Path("/proc/locks")
_WRITE_LOCK = 120  # the byte of the -shm file that SQLite locks to write in WAL mode
_LONGEST = 100  # characters of a command line that are shown


class _Lock(NamedTuple):
    kind: str  #: FLOCK or POSIX
    pid: int
    device: tuple[int, int]
    inode: int
    first: int
    last: int  #: -1: to the end of the file

    def covers(self, byte: int) -> bool:
        return self.first <= byte and (self.last < 0 or self.last >= byte)


def lock_holders(database: Path) -> set[int]:
    """Return the processes that hold the turn or the write lock of a database; none if unknown."""
    return turn_holders(database) | write_lock_holders(database)


def turn_holders(database: Path) -> set[int]:
    locks = _exclusive_locks(database.with_name(database.name + "-turn"))
    return {lock.pid for lock in locks if lock.kind == "FLOCK"}


def write_lock_holders(database: Path) -> set[int]:
    locks = _exclusive_locks(database.with_name(database.name + "-shm"))
    return {lock.pid for lock in locks if lock.kind == "POSIX" and lock.covers(_WRITE_LOCK)}


def describe(holders: set[int]) -> str:
    """Return the part of an error message that names the holders: ", held by process 42 (python
    app.py)"; "" if there are none."""
    named = [_describe(pid) for pid in sorted(holders)]
    return f", held by {' and '.join(named)}" if named else ""


def _describe(pid: int) -> str:
    if pid == os.getpid():
        return f"this process ({pid})"
    command, state = "", ""
    with suppress(OSError, IndexError):
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
        command = f" ({''.join(c if c.isprintable() else ' ' for c in words[:_LONGEST]).strip()})"
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    stopped = ", which is stopped" if state in ("t", "T") else ""
    return f"process {pid}{command}{stopped}"


def _exclusive_locks(path: Path) -> list[_Lock]:
    """Return the exclusive locks on one file."""
    try:
        file = path.stat()
    except OSError:
        return []
    device = (os.major(file.st_dev), os.minor(file.st_dev))
    return [
        lock
        for lock in _all_exclusive_locks()
        if lock.inode == file.st_ino and (lock.device == device or _is_open(lock.pid, path))
    ]


def _is_open(pid: int, path: Path) -> bool:
    """Return whether a process has a file open. Needed since some filesystems (btrfs, overlayfs) name
    one device in stat and another in /proc/locks."""
    name = os.path.realpath(path)
    with suppress(OSError):
        for file in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                if os.readlink(file.path) == name:
                    return True
    return False


def _all_exclusive_locks() -> Iterator[_Lock]:
    """Lines such as `1: POSIX  ADVISORY  WRITE 42 08:01:1234 120 120`. Those that only wait for a lock
    have an arrow behind the number."""
    try:
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        words = line.split()
        if len(words) != 8 or words[3] != "WRITE":
            continue
        with suppress(ValueError):
            major, minor, inode = words[5].split(":")
            yield _Lock(
                words[1],
                int(words[4]),
                (int(major, 16), int(minor, 16)),
                int(inode),
                int(words[6]),
                -1 if words[7] == "EOF" else int(words[7]),
            )
