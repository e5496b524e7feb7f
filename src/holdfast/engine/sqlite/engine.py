"""The SQLite engine: one writer connection per process with group commit, readers apart."""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.core.clock import Clock
from holdfast.engine.claimer import Claimer
from holdfast.engine.dialect import SqliteDialect
from holdfast.engine.engine import TIMEOUT, Engine
from holdfast.engine.group_commit import GroupCommit
from holdfast.engine.script import Script, Statements, T, drive, qualified
from holdfast.engine.sqlite import transaction
from holdfast.engine.sqlite.connection import connect, in_wal_mode, perform, translate
from holdfast.engine.sqlite.doctor import SqliteDoctor
from holdfast.engine.sqlite.file_identity import Identity
from holdfast.engine.sqlite.filesystem import make_private, refuse_network
from holdfast.engine.sqlite.lock_holders import lock_holders
from holdfast.engine.sqlite.migrator import Migrations
from holdfast.engine.sqlite.url import BUSY_TIMEOUT, parse_url
from holdfast.engine.sqlite.wakeups import SqliteWakeups
from holdfast.engine.sqlite.writer import Checkpoints, Group, Turns, Work, Writer
from holdfast.engine.transaction import Transaction, aunwrap, kind_of, needs_await, unwrap
from holdfast.errors import DatabaseBusy
from holdfast.jobs import commands
from holdfast.jobs.job import Job, NewJob
from holdfast.jobs.rows import CLAIMED, COLUMNS

WORDS: Mapping[str, str] = {
    "now": ":now",
    "columns": COLUMNS,
    "claimed": qualified(CLAIMED),
    "schema": "",
    "may_claim": "EXISTS (SELECT 1 FROM holdfast_workers WHERE id = :worker AND died_at IS NULL) "
    "AND NOT EXISTS (SELECT 1 FROM holdfast_queues WHERE name = :queue AND paused_at IS NOT NULL "
    "AND (resume_at IS NULL OR resume_at > :now))",
}
GROUP = 256  # requests that share a commit, at most


class SqliteEngine(Engine):
    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        auto_migrate: bool = True,
        synchronous: str = "FULL",
        busy_timeout: float = BUSY_TIMEOUT,
        allow_network: bool = False,
        timeout: float = TIMEOUT,
    ) -> None:
        super().__init__(clock, timeout)
        self.dialect = SqliteDialect(clock)
        self.path = path
        self._auto_migrate = auto_migrate
        self._synchronous = synchronous
        self._busy_timeout = busy_timeout
        self._allow_network = allow_network
        self._statements = Statements("sqlite", WORDS)
        self._group: GroupCommit[Work, Any] = GroupCommit(self._write, largest=GROUP)
        self._opening = threading.Lock()
        self._writer: Writer | None = None
        self._readers: list[sqlite3.Connection] = []
        self._subscribers: list[SqliteWakeups] = []
        self._followers: list[SqliteWakeups] = []
        self._migrations = Migrations(path, WORDS, self.dialect.now)
        self.claimer = Claimer(self)
        self.doctor = SqliteDoctor(
            *(path, self._migrations, self._open_and_connect),
            synchronous=synchronous,
            allow_network=allow_network,
        )
        self._migrated: list[str] = []

    @classmethod
    def from_url(
        cls, url: str, *, clock: Clock, auto_migrate: bool, timeout: float = TIMEOUT
    ) -> "SqliteEngine":
        path, settings = parse_url(url)
        return cls(path, clock=clock, auto_migrate=auto_migrate, timeout=timeout, **settings)

    # opening and closing

    def _open(self) -> Writer:
        self.check_usable()
        writer = self._writer  # read once: close() may be called meanwhile
        if writer is not None:
            writer.identity.look()
            return writer
        with self._opening, self._opened_here():
            writer = self._writer
            if writer is None:
                if not self._allow_network:
                    refuse_network(self.path)
                turns = Turns(self.path, timeout=self._busy_timeout)
                identity = Identity(self.path)
                try:
                    connection = identity.settle(lambda: self._as_it_is() or self._prepared(turns))
                    checkpoints = Checkpoints(identity.guard(self._connect))
                except BaseException:
                    turns.close()
                    raise
                parts = (connection, turns, checkpoints, self._statements, self.dialect)
                writer = self._writer = Writer(self.path, identity, *parts)
        return writer

    def _as_it_is(self) -> sqlite3.Connection | None:
        """A connection to a file that is ready, which takes no turn: the caller's transaction may hold
        the write lock, and the process with the turn may wait for that."""
        with ExitStack() as stack:
            if self.path.exists():
                stack.callback((writer := self._connect(convert=False)).close)
                if in_wal_mode(writer) and not self._migrations.missing(writer):
                    stack.pop_all()
                    return writer
        return None

    def _prepared(self, turns: Turns) -> sqlite3.Connection:
        """A connection to tables that fit this release."""
        with turns:
            new = not self.path.exists()
            writer = self._connect()
            if new:
                make_private(self.path)
        try:
            if self._auto_migrate:
                self._migrated = self._migrations.apply(writer, turns)
            else:
                self._migrations.require(writer)
        except BaseException:
            writer.close()
            raise
        return writer

    def _connect(self, *, convert: bool = True) -> sqlite3.Connection:
        timeout, mode = self._busy_timeout, self._synchronous
        return connect(self.path, busy_timeout=timeout, synchronous=mode, convert=convert)

    def _open_and_connect(self) -> sqlite3.Connection:
        self.open()
        return self._connect()

    def close(self) -> None:
        self._closed = True
        if self._is_opened_elsewhere:
            return  # its connections are those of the process that opened them
        with self._opening:
            if self._writer is None:
                return
            for subscriber in [*self._subscribers, *self._followers]:
                subscriber.close()
            for connection in self._readers:
                connection.close()
            self._readers.clear()
            self._writer.close()
            self._writer = None

    def open(self) -> None:
        """Open while the caller may hold the write lock; only making the tables would need it."""
        try:
            self._open()
        except DatabaseBusy as problem:
            raise DatabaseBusy(
                f"the tables of Holdfast are not in {os.fspath(self.path)!r} yet, and cannot be made "
                "while your transaction holds its write lock: call app.migrate() when your program "
                "starts, or run 'holdfast migrate'"
            ) from problem

    # migrations

    def migrate(self) -> list[str]:
        self._auto_migrate = True
        self._open()
        done, self._migrated = self._migrated, []
        return done

    def migrations_sql(self) -> str:
        return self._migrations.as_sql()

    # running scripts

    def run(
        self, script: Callable[[], Script[T]], *, write: bool, deadline: float | None = None
    ) -> T:
        self._open()
        if write:
            timeout = self._timeout if deadline is None else _left(deadline)
            result: T = self._group.submit(Work(script), timeout)
            return result
        return self._read(script)

    def _read(self, script: Callable[[], Script[T]]) -> T:
        try:
            connection = self._readers.pop()
        except IndexError:
            connection = self._open().identity.guard(self._connect)
        try:
            cursor = connection.cursor()
            return drive(script(), lambda run: perform(cursor, self._statements, run))
        except sqlite3.Error as problem:
            raise translate(problem, self.path) from problem
        finally:
            self._readers.append(connection)

    def _write(self, group: Group) -> None:
        writer = self._writer or self._open()
        writer.write(group)
        self._wake_subscribers(writer)
        writer.checkpoint()

    def _wake_subscribers(self, writer: Writer) -> None:
        """Our own commits do not show in our own `data_version`: wake our own subscribers."""
        if writer.hinted:
            writer.hinted = False
            for subscriber in list(self._subscribers):
                subscriber.wake()
        if writer.has_events:
            writer.has_events = False
            for follower in list(self._followers):
                follower.wake()

    # the verbs that are not only a script

    def insert(self, jobs: Sequence[NewJob], *, notify: bool = True) -> list[Job]:
        self._open().checkpoints.count(size=sum(len(job.payload) for job in jobs))
        hint = ["*"] if notify else []
        plain = notify and not any(job.unique for job in jobs)
        work = Work(partial(commands.insert, self.dialect, jobs, hint=hint), jobs if plain else ())
        return self._insert_until_known(
            jobs, lambda deadline: self._group.submit(work, _left(deadline))
        )

    def adopt(self, tx: Any) -> Transaction:
        self.open()
        raw = unwrap(tx)
        if kind_of(raw) == "aiosqlite.Connection":
            raise needs_await(tx)
        return transaction.adopt(raw, self._statements, self.path)

    async def aadopt(self, tx: Any) -> Transaction:
        self.open()
        return await transaction.aadopt(await aunwrap(tx), self._statements, self.path)

    def lock_holders(self) -> set[int]:
        return lock_holders(self.path)

    def wakeups(self, *, events: bool = False) -> SqliteWakeups:
        version = self._open().version
        those = self._followers if events else self._subscribers
        subscriber = SqliteWakeups(self.path, version, those.remove)
        those.append(subscriber)
        return subscriber


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())
