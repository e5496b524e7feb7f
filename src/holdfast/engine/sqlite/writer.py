"""The writer of a SQLite file: one connection of this process, the transactions of groups on it, and
the turns that processes take to write."""

import fcntl
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.engine.dialect import Dialect
from holdfast.engine.group_commit import Request
from holdfast.engine.script import Reply, Run, Script, Statements, drive
from holdfast.engine.sqlite.connection import perform, translate, was_undone
from holdfast.engine.sqlite.file_identity import Identity
from holdfast.engine.sqlite.lock_holders import describe, turn_holders
from holdfast.errors import DatabaseBusy, DatabaseUnavailable, HoldfastError, OutcomeUnknown
from holdfast.jobs import commands
from holdfast.jobs.job import NewJob

# The write lock first, before anything is read: a transaction that reads and then writes cannot
# be upgraded once another connection has written in between.
BEGIN = "BEGIN IMMEDIATE"
LOG_PAGES = 2000  # about 8 MB
_SHORTEST, _LONGEST = 0.00005, 0.002  # seconds between two looks
_LOOK = 0.001  # seconds between two looks whether another process waits
_ASIDE = 0.0005  # longer than a look of a process that waits, shorter than a commit
_PAGES_PER_COMMIT = 4.0  # a first guess; every checkpoint corrects it


class Work(NamedTuple):
    """One caller's write. Inserts of jobs without keys can be made together with those of others."""

    script: Callable[[], Script[Any]]
    jobs: Sequence[NewJob] = ()


Group = Sequence[Request[Work, Any]]
Answer = tuple[Request[Work, Any], Any]  #: a caller, and what it gets: a result or an exception


class Checkpoints:
    """Moves the log into the database, when enough was written to it.

    SQLite up to 3.51.2 can corrupt a database when a commit restarts the log during a second
    checkpoint. So automatic checkpoints are off on every connection of ours, and ours run while the
    writer holds the write lock, under which no other checkpoint of ours and no commit can happen.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._written = 0.0  # in commits, larger ones counted by their rows and bytes
        self._pages = _PAGES_PER_COMMIT

    def count(self, *, rows: int = 0, size: int = 0) -> None:
        self._written += 1 + rows / 10 + size / 16384

    @property
    def due(self) -> bool:
        return self._written * self._pages >= LOG_PAGES

    def run(self, cursor: sqlite3.Cursor) -> None:
        """`cursor` is the writer's, between two transactions."""
        written, self._written = self._written, 0.0
        cursor.execute("BEGIN IMMEDIATE")
        try:
            _, log, _ = self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        finally:
            cursor.execute("ROLLBACK")
        # The log also holds what other processes wrote: then they take their turns sooner, too.
        self._pages = min(max((self._pages + log / max(written, 1.0)) / 2, 0.5), 50.0)


class Turns:
    """The turns of this process to write, which processes take one after the other: a lock on a file
    beside the database. Used by one thread at a time (the group's leader), as `with turns: ...`.

    SQLite's own busy handler sleeps and tries again, ever longer, so a process that writes all the time
    starves one that writes now and then (a heartbeat waited 8 s behind four writers). Our processes
    first take a turn. A process that finds the turn taken shows that it waits by a second lock, and a
    process that gives the turn back while another one waits pauses before it takes the next
    (docs/decisions/0004).
    """

    def __init__(self, database: Path, *, timeout: float) -> None:
        self._path = database
        self._timeout = timeout
        self._turn = _open(database.with_name(database.name + "-turn"))
        self._line = _open(database.with_name(database.name + "-line"))
        self._others_wait = False
        self._looked_at = 0.0

    def __enter__(self) -> None:
        if self._others_wait:
            time.sleep(_ASIDE)
        if not _try_lock(self._turn, fcntl.LOCK_EX):
            self._wait()

    def __exit__(self, *_: object) -> None:
        try:
            now = time.monotonic()
            if self._others_wait or now - self._looked_at > _LOOK:
                self._looked_at = now
                self._others_wait = not _try_lock(self._line, fcntl.LOCK_EX)
                if not self._others_wait:
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
    """Close the lock files in a forked child: else the child would keep a lock of its parent for as
    long as the child lives, even if the parent is killed."""
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


class RolledBack(Exception):
    """The transaction of a whole group was rolled back because of one of its members."""


class Writer:
    def __init__(
        self,
        path: Path,
        identity: Identity,
        connection: sqlite3.Connection,
        turns: Turns,
        checkpoints: Checkpoints,
        statements: Statements,
        dialect: Dialect,
    ) -> None:
        self.connection = connection
        self.identity = identity
        self.turns = turns
        self.checkpoints = checkpoints
        # What the last transactions must announce to this process: new work, new events.
        self.hinted = self.has_events = False
        self._path = path
        self._cursor = connection.cursor()
        self._statements = statements
        self._dialect = dialect
        self._looking = threading.Lock()

    def version(self) -> int:
        """Return a number that changes when another connection commits, and not when this one does."""
        with self._looking:
            [(number,)] = self.connection.execute("PRAGMA data_version").fetchall()
        return int(number)

    def close(self) -> None:
        self.checkpoints.connection.close()
        self.connection.close()
        self.turns.close()

    def write(self, group: Group) -> None:
        """Write a group in one transaction, with a savepoint for each member: a member that fails harms
        no other; only a failed COMMIT fails all. If the whole transaction is rolled back because of one
        member, by SQLite when the disk is full or by a trigger, each member is written again, alone."""
        with self.turns:
            before = self.connection.total_changes
            try:
                answers = self._transact(group)
            except RolledBack:
                answers = [one for request in group for one in self._alone(request)]
            self.checkpoints.count(rows=self.connection.total_changes - before)
        self.identity.check()  # before any caller learns that it was committed
        for request, answer in answers:
            if isinstance(answer, Exception):
                request.fail(answer)
            else:
                request.resolve(answer)

    def checkpoint(self) -> None:
        """Move the log into the database, if that is due."""
        if self.checkpoints.due:
            with suppress(sqlite3.Error), self.turns:  # the next commit tries again
                self.checkpoints.run(self._cursor)

    def _alone(self, request: Request[Work, Any]) -> list[Answer]:
        try:
            return self._transact([request])
        except HoldfastError as problem:
            return [(request, problem)]

    def _transact(self, group: Group) -> list[Answer]:
        """Answer a group in one transaction."""
        cursor, begun = self._cursor, False
        try:
            with self._looking:  # a look in progress is a read that cannot become a write
                cursor.execute(BEGIN)
            begun = True
            answers = self._answers(group)
            done = any(not isinstance(answer, Exception) for _, answer in answers)
            self._end("COMMIT" if done else "ROLLBACK")
        except BaseException as problem:
            # By SQLite itself, or by a trigger's RAISE(ROLLBACK).
            undone = begun and not self.connection.in_transaction
            with suppress(sqlite3.Error):
                cursor.execute("ROLLBACK")
            if not isinstance(problem, sqlite3.Error):
                raise
            if len(group) > 1 and (undone or was_undone(problem)):
                raise RolledBack from problem
            raise translate(problem, self._path) from problem
        return answers

    def _end(self, command: str) -> None:
        """Run COMMIT or ROLLBACK. A commit that could not be synced may or may not be found in the log
        after a crash: its outcome is unknown."""
        try:
            self._cursor.execute(command)
        except sqlite3.Error as problem:
            if getattr(problem, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_IOERR:
                raise
            raise OutcomeUnknown(
                f"SQLite could not commit to {os.fspath(self._path)!r} ({problem}): look at its disk"
            ) from problem

    def _answers(self, group: Group) -> list[Answer]:
        answers: list[Answer] = []
        rest = group
        if len(group) > 1:
            plain = [request for request in group if request.work.jobs]
            rest = [request for request in group if not request.work.jobs]
            try:
                answers = self._together(plain) if len(plain) > 1 else []
                rest = rest if len(plain) > 1 else group
            except (sqlite3.Error, HoldfastError) as problem:
                self._check_transaction(problem)
                rest = group  # one of them is bad: each alone, to find out which
        for request in rest:
            try:
                answers.append((request, self._member(request.work.script, alone=len(group) == 1)))
            except sqlite3.Error as problem:
                self._check_transaction(problem)
                answers.append((request, translate(problem, self._path)))
            except Exception as problem:
                answers.append((request, problem))
        return answers

    def _check_transaction(self, problem: Exception) -> None:
        """Raise `problem` if it ended the transaction: the next statement would run outside of any."""
        if not self.connection.in_transaction:
            raise problem

    def _together(self, group: Group) -> list[Answer]:
        """Insert the jobs of many callers together: a savepoint and two statements for all of them."""
        jobs = [job for request in group for job in request.work.jobs]
        script = partial(commands.insert, self._dialect, jobs, hint=["*"])
        inserted = iter(self._member(script, alone=False))
        return [(request, [next(inserted) for _ in request.work.jobs]) for request in group]

    def _member(self, work: Callable[[], Script[Any]], *, alone: bool) -> Any:
        def perform_run(run: Run) -> Reply:
            if run.name == "wake":
                self.hinted = True
                return Reply([], 0)
            if run.name == "ring":
                self.has_events = True
                return Reply([], 0)
            return perform(self._cursor, self._statements, run)

        if alone:
            return drive(work(), perform_run)
        self._cursor.execute("SAVEPOINT member")
        try:
            answer = drive(work(), perform_run)
        except BaseException:
            if self.connection.in_transaction:
                self._cursor.execute("ROLLBACK TO member")
                self._cursor.execute("RELEASE member")
            raise
        self._cursor.execute("RELEASE member")
        return answer
