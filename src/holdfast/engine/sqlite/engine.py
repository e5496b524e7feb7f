"""The SQLite engine: one writer connection per process with group commit, readers apart."""

import os
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.clock import Clock
from holdfast.engine import Transaction, migrate, verbs
from holdfast.engine.claims import CLAIMED
from holdfast.engine.group import GroupCommit, Request
from holdfast.engine.inspection import COLUMNS
from holdfast.engine.script import Reply, Run, Script, T, drive
from holdfast.engine.sqlite import transaction
from holdfast.engine.sqlite.checkpoint import Checkpoints
from holdfast.engine.sqlite.connection import connect, in_wal_mode, perform, translate
from holdfast.engine.sqlite.dialect import SqliteDialect
from holdfast.engine.sqlite.doctor import Examined
from holdfast.engine.sqlite.filesystem import make_private, refuse_network
from holdfast.engine.sqlite.turn import Turns
from holdfast.engine.sqlite.wakeups import SqliteWakeups
from holdfast.engine.statements import Statements, qualified
from holdfast.engine.transaction import aunwrap, is_async, kind_of, unwrap
from holdfast.errors import DatabaseBusy, HoldfastError, InvalidURL, SchemaError
from holdfast.job import Job, NewJob

PACKAGE = "holdfast.engine.sqlite"
WORDS: Mapping[str, str] = {
    "now": ":now",
    "columns": COLUMNS,
    "claimed": qualified(CLAIMED),
    "schema": "",
    "may_claim": "EXISTS (SELECT 1 FROM holdfast_workers WHERE id = :worker AND died_at IS NULL) "
    "AND NOT EXISTS (SELECT 1 FROM holdfast_queues WHERE name = :queue AND paused_at IS NOT NULL "
    "AND (resume_at IS NULL OR resume_at > :now))",
}
APPLIED = (
    "number INTEGER PRIMARY KEY, title TEXT NOT NULL, breaking INTEGER NOT NULL,"
    " applied_at INTEGER NOT NULL"
)
BUSY_TIMEOUT = 5.0
GROUP = 256  # requests that share a commit at the most
# The write lock first, before anything is read: a transaction that reads and then writes cannot
# be upgraded once somebody else has written in between.
BEGIN = "BEGIN IMMEDIATE"


class Work(NamedTuple):
    """One caller's write. Jobs without keys can be inserted together with those of others."""

    script: Callable[[], Script[Any]]
    jobs: Sequence[NewJob] = ()


class SqliteEngine(Examined):
    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        auto_migrate: bool = True,
        synchronous: str = "FULL",
        busy_timeout: float = BUSY_TIMEOUT,
        allow_network: bool = False,
    ) -> None:
        super().__init__(clock)
        self.dialect = SqliteDialect(clock)
        self.path = path
        self._auto_migrate = auto_migrate
        self._synchronous = synchronous
        self._busy_timeout = busy_timeout
        self._allow_network = allow_network
        self._statements = Statements(PACKAGE, WORDS)
        self._group: GroupCommit[Work, Any] = GroupCommit(self._write, largest=GROUP)
        self._opening = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._checkpoints: Checkpoints
        self._cursor: sqlite3.Cursor
        self._turns: Turns
        self._readers: list[sqlite3.Connection] = []
        self._subscribers: list[SqliteWakeups] = []
        self._followers: list[SqliteWakeups] = []
        self._hinted = self._rung = False
        self._looking = threading.Lock()
        self._migrated: list[str] = []

    @classmethod
    def from_url(cls, url: str, *, clock: Clock, auto_migrate: bool) -> "SqliteEngine":
        parts = urlsplit(url)
        path = unquote(parts.path[1:])
        if parts.netloc or not path or path.endswith("/") or path == ":memory:":
            raise InvalidURL(
                f"{url!r} names no file: write 'sqlite:///jobs.db' for a file in this folder, "
                "'sqlite:////var/lib/jobs.db' for an absolute path; a queue cannot live in memory, "
                "since its worker is another process"
            )
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        try:
            settings: dict[str, Any] = {
                "synchronous": {"full": "FULL", "normal": "NORMAL"}[
                    options.pop("synchronous", "full")
                ],
                "busy_timeout": float(options.pop("busy_timeout", BUSY_TIMEOUT)),
                "allow_network": {"allow": True, "refuse": False}[options.pop("network", "refuse")],
            }
        except (KeyError, ValueError):
            options["?"] = ""
        if options:
            raise InvalidURL(
                f"{url!r}: the options are synchronous=full|normal, busy_timeout=SECONDS and "
                "network=refuse|allow"
            )
        return cls(Path(path).absolute(), clock=clock, auto_migrate=auto_migrate, **settings)

    # opening and closing

    def _open(self) -> sqlite3.Connection:
        self.check_usable()
        if self._writer is not None:
            return self._writer
        with self._opening:
            if self._writer is None:
                if not self._allow_network:
                    refuse_network(self.path)
                self._turns = Turns(self.path, timeout=self._busy_timeout)
                try:
                    if (writer := self._as_it_is()) is None:
                        with self._turns.take():
                            new = not self.path.exists()
                            writer = self._prepared()
                            if new:
                                make_private(self.path)
                except BaseException:
                    self._turns.close()
                    raise
                self._checkpoints = Checkpoints(self._connect())
                self._cursor = writer.cursor()
                self._writer = writer
        return self._writer

    def _as_it_is(self) -> sqlite3.Connection | None:
        """A connection to a file that is ready, which takes no turn: the caller's transaction may hold
        the write lock, and whoever has the turn wait for that."""
        with ExitStack() as stack:
            if self.path.exists():
                stack.callback((writer := self._connect(convert=False)).close)
                if in_wal_mode(writer) and not self._missing(writer):
                    stack.pop_all()
                    return writer
        return None

    def _prepared(self) -> sqlite3.Connection:
        """A connection to tables that fit this release."""
        writer = self._connect()
        try:
            self._prepare(writer)
        except BaseException:
            writer.close()
            raise
        return writer

    def _connect(self, *, convert: bool = True) -> sqlite3.Connection:
        timeout, mode = self._busy_timeout, self._synchronous
        return connect(self.path, busy_timeout=timeout, synchronous=mode, convert=convert)

    def close(self) -> None:
        with self._opening:
            self._closed = True
            if self._writer is None or os.getpid() != self._pid:
                return
            for subscriber in [*self._subscribers, *self._followers]:
                subscriber.close()
            for connection in [*self._readers, self._checkpoints.connection, self._writer]:
                connection.close()
            self._readers.clear()
            self._writer = None
            self._turns.close()

    def _open_beside(self) -> None:
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

    def _prepare(self, writer: sqlite3.Connection) -> None:
        missing = self._missing(writer)
        if missing and not self._auto_migrate:
            raise SchemaError(
                f"the tables in {os.fspath(self.path)!r} are not those of this release (missing: "
                f"{', '.join(m.name for m in missing)}): run 'holdfast migrate'"
            )
        if missing:
            self._migrated = self._apply(writer, migrate.load(PACKAGE, WORDS))

    def _missing(self, writer: sqlite3.Connection) -> list[migrate.Migration]:
        return migrate.missing(migrate.load(PACKAGE, WORDS), self._applied(writer))

    def _applied(self, writer: sqlite3.Connection) -> list[migrate.AppliedMigration]:
        try:
            rows = writer.execute(
                "SELECT number, title, breaking FROM holdfast_migrations ORDER BY number"
            ).fetchall()
        except sqlite3.OperationalError as problem:
            if "no such table" in str(problem):
                return []
            raise translate(problem, self.path) from problem
        return [migrate.AppliedMigration(row[0], row[1], bool(row[2])) for row in rows]

    def _apply(self, writer: sqlite3.Connection, known: Sequence[migrate.Migration]) -> list[str]:
        try:
            writer.execute("BEGIN IMMEDIATE")
            try:
                writer.execute(f"CREATE TABLE IF NOT EXISTS holdfast_migrations ({APPLIED})")
                missing = migrate.missing(known, self._applied(writer))
                for migration in missing:
                    for command in migrate.commands(migration.sql):
                        writer.execute(command)
                    writer.execute(
                        "INSERT INTO holdfast_migrations VALUES (?, ?, ?, ?)",
                        (migration.number, migration.title, migration.breaking, self.dialect.now()),
                    )
                writer.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    writer.execute("ROLLBACK")
                raise
        except sqlite3.Error as problem:
            raise translate(problem, self.path) from problem
        return [migration.name for migration in missing]

    def migrate(self) -> list[str]:
        self._auto_migrate = True
        self._open()
        done, self._migrated = self._migrated, []
        return done

    def migrations_sql(self) -> str:
        now = "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"
        return migrate.as_text(migrate.load(PACKAGE, WORDS), "holdfast_migrations", APPLIED, now)

    # running scripts

    def run(self, script: Callable[[], Script[T]], *, write: bool) -> T:
        self._open()
        if write:
            result: T = self._group.submit(Work(script))
            return result
        return self._read(script)

    def _read(self, script: Callable[[], Script[T]]) -> T:
        try:
            connection = self._readers.pop()
        except IndexError:
            connection = self._connect()
        try:
            cursor = connection.cursor()
            return drive(script(), lambda run: perform(cursor, self._statements, run))
        except sqlite3.Error as problem:
            raise translate(problem, self.path) from problem
        finally:
            self._readers.append(connection)

    def _write(self, group: Sequence[Request[Work, Any]]) -> None:
        """One transaction for the group, a savepoint for each member: one that fails harms no other,
        only a failed COMMIT fails all."""
        cursor = self._cursor
        writer = cursor.connection
        with self._turns.take():
            before = writer.total_changes
            try:
                with self._looking:  # a look in progress is a read that cannot become a write
                    cursor.execute(BEGIN)
                answers = self._answers(group)
                cursor.execute("COMMIT" if answers else "ROLLBACK")
            except BaseException as problem:
                with suppress(sqlite3.Error):
                    cursor.execute("ROLLBACK")
                if isinstance(problem, sqlite3.Error):
                    raise translate(problem, self.path) from problem
                raise
            self._checkpoints.count(rows=writer.total_changes - before)
        for request, answer in answers:
            request.resolve(answer)
        self._ring()
        if self._checkpoints.due:
            with suppress(sqlite3.Error), self._turns.take():  # the next commit tries again
                self._checkpoints.run(cursor)

    def _answers(self, group: Sequence[Request[Work, Any]]) -> list[tuple[Request[Work, Any], Any]]:
        answers: list[tuple[Request[Work, Any], Any]] = []
        rest = group
        if len(group) > 1:
            plain = [request for request in group if request.work.jobs]
            rest = [request for request in group if not request.work.jobs]
            try:
                answers = self._together(plain) if len(plain) > 1 else []
                rest = rest if len(plain) > 1 else group
            except (sqlite3.Error, HoldfastError):
                rest = group  # one of them is bad: each alone, to tell which
        for request in rest:
            try:
                answers.append((request, self._member(request.work.script, alone=len(group) == 1)))
            except sqlite3.Error as problem:
                request.fail(translate(problem, self.path))
            except Exception as problem:
                request.fail(problem)
        return answers

    def _together(
        self, group: Sequence[Request[Work, Any]]
    ) -> list[tuple[Request[Work, Any], Any]]:
        """One insert for many callers: a savepoint and two statements for all of them."""
        jobs = [job for request in group for job in request.work.jobs]
        script = partial(verbs.insert, self.dialect, jobs, hint=["*"])
        inserted = iter(self._member(script, alone=False))
        return [(request, [next(inserted) for _ in request.work.jobs]) for request in group]

    def _ring(self) -> None:
        """Our own commits do not show in our own `data_version`: tell those who wait here."""
        if self._hinted:
            self._hinted = False
            for subscriber in list(self._subscribers):
                subscriber.wake()
        if self._rung:
            self._rung = False
            for follower in list(self._followers):
                follower.wake()

    def _member(self, work: Callable[[], Script[Any]], *, alone: bool) -> Any:
        def perform_run(run: Run) -> Reply:
            if run.name == "wake":
                self._hinted = True
                return Reply([], 0)
            if run.name == "ring":
                self._rung = True
                return Reply([], 0)
            return perform(self._cursor, self._statements, run)

        if alone:
            return drive(work(), perform_run)
        self._cursor.execute("SAVEPOINT member")
        try:
            answer = drive(work(), perform_run)
        except BaseException:
            if self._cursor.connection.in_transaction:
                self._cursor.execute("ROLLBACK TO member")
                self._cursor.execute("RELEASE member")
            raise
        self._cursor.execute("RELEASE member")
        return answer

    # the verbs that are not only a script

    def insert(self, jobs: Sequence[NewJob], *, notify: bool = True) -> list[Job]:
        self._open()
        self._checkpoints.count(size=sum(len(job.payload) for job in jobs))
        hint = ["*"] if notify else []
        plain = notify and all(job.key is None for job in jobs)
        work = Work(partial(verbs.insert, self.dialect, jobs, hint=hint), jobs if plain else ())
        inserted: list[Job] = self._group.submit(work)
        return inserted

    def open(self) -> None:
        self._open_beside()

    def adopt(self, tx: Any) -> Transaction:
        self._open_beside()
        raw = unwrap(tx)
        if kind_of(raw) == "aiosqlite.Connection":
            raise is_async(tx)
        return transaction.adopt(raw, self._statements, self.path)

    async def aadopt(self, tx: Any) -> Transaction:
        self._open_beside()
        return await transaction.aadopt(await aunwrap(tx), self._statements, self.path)

    def wakeups(self, *, events: bool = False) -> SqliteWakeups:
        writer = self._open()

        def version() -> int:
            with self._looking:
                [(number,)] = writer.execute("PRAGMA data_version").fetchall()
            return int(number)

        those = self._followers if events else self._subscribers
        subscriber = SqliteWakeups(self.path, version, those.remove)
        those.append(subscriber)
        return subscriber
