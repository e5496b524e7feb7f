"""The checks of `holdfast doctor` on SQLite: the version, the file, and where the file lies.

The database is opened by `sqlite3` alone and never created; of its files only the metadata are read.
"""

import os
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from holdfast.core.clock import from_microseconds
from holdfast.engine.records import Finding, Measures, Sizes
from holdfast.engine.sqlite.connection import JOURNAL_LIMIT, LOWEST_VERSION, translate
from holdfast.engine.sqlite.filesystem import filesystem_of, refuse_network
from holdfast.engine.sqlite.migrator import Migrations
from holdfast.errors import HoldfastError, UnsafeFilesystem

Number = tuple[int, ...]

MIB = 1024 * 1024
LITTLE_SPACE, NO_SPACE = 1024 * MIB, 64 * MIB
_MOUNTS = Path("/proc/self/mountinfo")
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
# A commit that restarts the log during a second checkpoint can corrupt the database.
_RESET_FIXED_IN = (3, 51, 3)
_RESET_BACKPORTS = (((3, 44, 6), (3, 45, 0)), ((3, 50, 7), (3, 51, 0)))


class SqliteDoctor:
    def __init__(
        self,
        path: Path,
        known: Migrations,
        connect: Callable[[], sqlite3.Connection],
        *,
        synchronous: str,
        allow_network: bool,
    ) -> None:
        """`connect`: a connection of the engine, which it opens for that."""
        self._path = path
        self._migrations = known
        self._connect = connect
        self._synchronous = synchronous
        self._allow_network = allow_network

    def diagnose(self) -> list[Finding]:
        found = [
            _version(sqlite3.sqlite_version_info),
            _synchronous(self._synchronous),
            _filesystem(self._path, self._allow_network),
            *_folder(self._path),
        ]
        if self._path.exists():
            return [*found, *_file(self._path), *self._inside()]
        where = os.fspath(self._path)
        remedy = "check the URL, or run 'holdfast migrate'"
        return [*found, Finding("fail", "file", f"there is no {where!r}: {remedy}")]

    def _inside(self) -> Iterator[Finding]:
        try:
            # mode=rw: read and write the file, but never create it.
            uri = f"{self._path.as_uri()}?mode=rw"
            with closing(sqlite3.connect(uri, uri=True, timeout=5.0)) as opened:
                journal = opened.execute("PRAGMA journal_mode").fetchone()[0]
                missing = self._migrations.missing(opened)
        except sqlite3.Error as error:
            yield Finding("fail", "database", f"SQLite cannot use it: {error}")
            return
        except HoldfastError as error:
            yield Finding("fail", "schema", str(error))
            return
        problem = f"{journal}: Holdfast switches it to wal at its first use"
        yield Finding.judge(journal == "wal", "journal", "wal", problem)
        names = ", ".join(migration.name for migration in missing)
        problem = f"missing: {names}; run 'holdfast migrate'"
        well = "the tables are those of this release"
        yield Finding.judge(not missing, "schema", well, problem, "fail")

    def measure(self) -> Measures:
        try:
            with closing(self._connect()) as opened:
                pages, free, size = (
                    opened.execute(f"PRAGMA {name}").fetchone()[0]
                    for name in ("page_count", "freelist_count", "page_size")
                )
                rows = opened.execute(
                    "SELECT number, title, applied_at FROM holdfast_migrations ORDER BY number"
                ).fetchall()
        except sqlite3.Error as problem:
            raise translate(problem, self._path) from problem
        # The sizes of tables are told by a walk through every page only: not for a page that refreshes.
        sizes = Sizes(pages * size, _log_size(self._path), free * size, {})
        names = [(f"{row[0]:04d}_{row[1]}", from_microseconds(row[2])) for row in rows]
        return Measures(f"SQLite {sqlite3.sqlite_version}", sizes, names)


def _version(version: Number) -> Finding:
    text = ".".join(map(str, version))
    if version < LOWEST_VERSION:
        problem = f"{text} is too old: use a Python with SQLite 3.35 or newer"
        return Finding("fail", "SQLite", problem)
    problem = (
        f"{text} has the WAL-reset bug (fixed in 3.51.3, 3.50.7 and 3.44.6). Holdfast's own "
        "connections avoid it; the application's connections to the same file should set "
        "'PRAGMA wal_autocheckpoint = 0', or use another file"
    )
    return Finding.judge(not has_reset_bug(version), "SQLite", text, problem)


def has_reset_bug(version: Number) -> bool:
    backported = any(first <= version < end for first, end in _RESET_BACKPORTS)
    return version < _RESET_FIXED_IN and not backported


def _synchronous(setting: str) -> Finding:
    well = "FULL: an acknowledged job survives a power cut"
    problem = (
        f"{setting}: a power cut may take the last acknowledged jobs; leave 'synchronous' out of the "
        "URL for FULL"
    )
    return Finding.judge(setting == "FULL", "synchronous", well, problem)


def _filesystem(path: Path, allow_network: bool) -> Finding:
    mounts = _MOUNTS.read_text() if _MOUNTS.exists() else ""
    try:
        refuse_network(path, mounts)
    except UnsafeFilesystem as error:
        return Finding("warn" if allow_network else "fail", "filesystem", str(error))
    kind = filesystem_of(path, mounts)
    well, problem = (
        kind or "this system does not tell",
        f"{kind}: in memory, and gone after a restart",
    )
    return Finding.judge(kind not in _IN_MEMORY, "filesystem", well, f"{problem}; use a disk")


def _folder(path: Path) -> Iterator[Finding]:
    folder = path.parent
    if not folder.is_dir():
        problem = "does not exist: make it, or check the URL"
        yield Finding("fail", "folder", f"{os.fspath(folder)!r} {problem}")
        return
    if not os.access(folder, os.W_OK | os.X_OK):
        problem = "cannot be written to by this user; SQLite keeps its log there"
        yield Finding("fail", "folder", f"{os.fspath(folder)!r} {problem}")
    free = shutil.disk_usage(folder).free
    level = "fail" if free < NO_SPACE else "warn" if free < LITTLE_SPACE else "ok"
    remedy = "" if level == "ok" else ": make room, a full disk stops every write"
    yield Finding(level, "disk", f"{free / MIB:,.0f} MiB free{remedy}")


def _file(path: Path) -> Iterator[Finding]:
    status = path.stat()
    mode = stat.S_IMODE(status.st_mode)
    text = f"{mode:04o}, {status.st_size / MIB:,.1f} MiB"
    if not os.access(path, os.R_OK | os.W_OK):
        yield Finding("fail", "file", f"{text}: this user may not read and write it")
    else:
        what = "read arguments and results; 'chmod o-r'"
        if mode & stat.S_IWOTH:
            what = "write to it; 'chmod o-w'"
        problem = f"everybody on this machine may {what} it, its -wal, -shm, -turn and -line"
        private = not mode & (stat.S_IWOTH | stat.S_IROTH)
        yield Finding.judge(private, "file", text, f"{text}: {problem}")
    if (size := _log_size(path)) > 4 * JOURNAL_LIMIT:
        problem = (
            "some connection keeps a read transaction open, so that it cannot be emptied; end it"
        )
        yield Finding("warn", "log", f"the -wal file has {size / MIB:,.0f} MiB: {problem}")


def _log_size(path: Path) -> int:
    log = path.with_name(path.name + "-wal")
    return log.stat().st_size if log.exists() else 0
