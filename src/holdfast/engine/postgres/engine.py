"""The PostgreSQL engine: a pool of psycopg connections, group commit of enqueues, COPY for many."""

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from datetime import datetime
from functools import partial
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from holdfast.core.clock import Clock
from holdfast.engine.dialect import PostgresDialect, wake
from holdfast.engine.engine import TIMEOUT, Engine
from holdfast.engine.group_commit import GroupCommit, Request
from holdfast.engine.postgres import transaction
from holdfast.engine.postgres.call_deadlines import CallDeadlines
from holdfast.engine.postgres.claimer import PostgresClaimer
from holdfast.engine.postgres.connection import Connection, perform, translate
from holdfast.engine.postgres.connections import Connections
from holdfast.engine.postgres.connector import Connector
from holdfast.engine.postgres.copying import COPY, COPY_FROM, copy_row, is_plain
from holdfast.engine.postgres.doctor import PostgresDoctor
from holdfast.engine.postgres.migrator import Migrations
from holdfast.engine.postgres.url import check_url, describe
from holdfast.engine.postgres.wakeups import Notifier, PostgresWakeups, channel
from holdfast.engine.script import Reply, Run, Script, Statements, T, drive, qualified
from holdfast.engine.transaction import Transaction, aunwrap, unwrap
from holdfast.engine.unknown_outcome import may_double
from holdfast.errors import (
    DatabaseBusy,
    DatabaseUnavailable,
    HoldfastError,
    InvalidInput,
    KeyConflict,
    OutcomeUnknown,
)
from holdfast.jobs import commands, rows
from holdfast.jobs.finish import finish as finish_jobs
from holdfast.jobs.finish import freed
from holdfast.jobs.job import Claim, EventKind, Job, NewJob
from holdfast.jobs.outcome import Applied, Finish, kind_of
from holdfast.jobs.rows import CLAIMED, COLUMNS

VITAL = 5.0  # seconds for a heartbeat: others take a worker for dead after three that are late
GROUP = 200  # enqueues that share a commit, at most
_REQUEUES = frozenset({"promote", "rescue", "retry", "replace", "unpark", "move_schedule"})
_EVENTS = frozenset({"events"})
# Times are read as text: a caller's connection may have its own idea of what a time is.
_TIMES = re.compile(r"\b(\w+_at|keep_until|unreadable_since)\b")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,50}")


class PostgresEngine(Engine):
    def __init__(
        self,
        url: str,
        *,
        schema: str,
        pooler: bool | None,
        clock: Clock,
        auto_migrate: bool,
        timeout: float = TIMEOUT,
    ) -> None:
        super().__init__(clock, timeout)
        if not _SCHEMA.fullmatch(schema):
            raise InvalidInput(
                f"schema={schema!r}: use lower-case letters, digits and '_', at most 51, not "
                "beginning with a digit"
            )
        check_url(url)
        self.dialect = PostgresDialect(clock)
        self.schema = schema
        self.where = describe(url)
        self._url = url
        self._deadlines = CallDeadlines()
        self._connector = Connector(url, self._deadlines, pooler=pooler, timeout=timeout)
        self._auto_migrate = auto_migrate
        self._words: Mapping[str, str] = {
            "schema": schema,
            "now": "COALESCE(:now::text::timestamptz, statement_timestamp())",
            "columns": _TIMES.sub(r"\1::text", _as_text(COLUMNS)),
            "claimed": _as_text(qualified(CLAIMED)),
        }
        self._statements = Statements("postgres", self._words)
        self._group: GroupCommit[Sequence[NewJob], list[Job]] = GroupCommit(
            self._insert_group, largest=GROUP
        )
        self._migrations = Migrations(
            *(self._connect, schema, self.where, self._words),
            lambda one: self._deadlines.bounded(one, timeout),
        )
        self._opening = threading.Lock()
        self._connections: Connections | None = None
        self._vital: Connections
        self._notifier = Notifier(self._hint_now)
        self._event_notifier = Notifier(self._hint_at_events)
        self._subscribers: list[PostgresWakeups] = []
        self.claimer = self._claimer = PostgresClaimer(self)
        self.doctor = PostgresDoctor(
            schema, self._migrations, self._connection_for_doctor, self._on_connection
        )

    # opening and closing

    def _open(self) -> Connections:
        self.check_usable()
        if self._connections is not None:
            return self._connections
        with self._alone(), self._opened_here():
            if self._connections is None:
                with self._first_connection() as connection:
                    if self._auto_migrate:
                        self._migrations.apply(connection, at_open=True)
                    else:
                        self._migrations.require(connection)
                using, timeout = (self._connect, self._deadlines), self._timeout
                self._vital = Connections(*using, timeout=min(timeout, VITAL))
                connections = Connections(*using, timeout=timeout)
                self._deadlines.start(self._vital.tidy, connections.tidy)
                self._connections = connections
        return self._connections

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let one thread open the engine; the others wait for it, but not longer than for a call."""
        if not self._opening.acquire(timeout=self._timeout):
            raise DatabaseBusy(
                f"{self.where}: another thread of this process was still connecting, or migrating the "
                f"tables, after {self._timeout:g} s: try again"
            )
        try:
            yield
        finally:
            self._opening.release()

    @contextmanager
    def _first_connection(self) -> Iterator[Connection]:
        """A connection of its own, to an engine that may not be open. What is asked of it has to be
        bounded by the deadlines, which run meanwhile."""
        try:
            with self._deadlines.running(), closing(self._connect()) as connection:
                yield connection
        except (psycopg.Error, OSError) as problem:
            raise translate(problem, self.where) from problem

    @contextmanager
    def _connection_for_doctor(self) -> Iterator[Connection]:
        """A connection of its own; what is asked of it ends within the time of a call."""
        self.check_usable()
        with (
            self._first_connection() as connection,
            self._deadlines.bounded(connection, self._timeout),
        ):
            yield connection

    def _connect(self) -> Connection:
        return self._connector.connect()

    def close(self) -> None:
        self._closed = True
        if self._is_opened_elsewhere:
            return  # closing them would end the sessions of the process that opened them
        with self._opening:
            connections, self._connections = self._connections, None
        if connections is None:
            return
        self._notifier.close()
        self._event_notifier.close()
        for subscriber in list(self._subscribers):
            subscriber.close()
        connections.close()
        self._vital.close()
        self._deadlines.close()

    # migrations

    def migrate(self) -> list[str]:
        self.check_usable()
        with self._first_connection() as connection:
            return self._migrations.apply(connection)

    def migrations_sql(self) -> str:
        return self._migrations.as_sql()

    # running scripts

    def run(
        self, script: Callable[[], Script[T]], *, write: bool, deadline: float | None = None
    ) -> T:
        return self._on_connection(self._work(script, write), deadline)

    def _work(self, script: Callable[[], Script[T]], write: bool) -> Callable[[Connection], T]:
        def work(connection: Connection) -> T:
            with connection.transaction() if write else nullcontext():
                return self._drive(connection, script)

        return work

    def run_vital(self, script: Callable[[], Script[T]]) -> T:
        """On a connection of its own: the others may all be taken."""
        self._open()
        try:
            return self._vital.use(self._work(script, True))
        except (psycopg.Error, OSError) as problem:
            raise translate(problem, self.where) from problem

    def _drive(self, connection: Connection, script: Callable[[], Script[T]]) -> T:
        return drive(script(), lambda run: self._perform(connection, run))

    def _perform(self, connection: Connection, run: Run) -> Reply:
        if run.name == "emit" and connection.info.transaction_status == TransactionStatus.IDLE:
            return Reply([], 0)  # no follower when this began: it has no transaction around it
        if run.name == "ring" and not self._event_notifier.due(_EVENTS):
            self._event_notifier.later(_EVENTS)
            return Reply([], 0)
        reply = perform(connection, self._statements, run)
        # What goes back in line may belong in front of what was claimed.
        requeued = run.name in _REQUEUES and reply.rows
        if requeued or (run.name == "finish" and any(row[1] == "pending" for row in reply.rows)):
            self._claimer.cursor.forget()
        return reply

    def _on_connection(
        self,
        work: Callable[[Connection], T],
        deadline: float | None = None,
        *,
        repeatable: bool = True,
    ) -> T:
        try:
            return self._open().use(work, deadline, repeatable=repeatable)
        except (psycopg.Error, OSError) as problem:
            raise translate(problem, self.where) from problem

    # inserting

    def insert(self, jobs: Sequence[NewJob], *, notify: bool = True) -> list[Job]:
        if not jobs:
            return []
        self._claimer.cursor.inserted(jobs)
        inserted = self._insert_until_known(jobs, partial(self._insert_quickest, jobs, notify))
        for subscriber in list(self._subscribers):
            subscriber.wake()
        return inserted

    def _insert_quickest(self, jobs: Sequence[NewJob], notify: bool, deadline: float) -> list[Job]:
        if len(jobs) >= COPY_FROM and all(is_plain(job) for job in jobs):
            return self._copy(jobs, notify, deadline)
        if notify and not any(job.unique for job in jobs):
            return self._group.submit(jobs, max(0.0, deadline - time.monotonic()))
        # Its key may have to wait for another transaction; enqueues of other threads must not.
        return self._insert_now(jobs, deadline, notify)

    def _insert_group(self, group: Sequence[Request[Sequence[NewJob], list[Job]]]) -> None:
        """One statement for all; if it fails, each request alone, so that one harms no other."""
        jobs = [job for request in group for job in request.work]
        try:
            inserted = iter(self._insert_now(jobs, group[0].deadline))
        except (DatabaseBusy, DatabaseUnavailable):
            raise  # it would be the same for each of them
        except HoldfastError:
            if len(group) == 1:
                raise
            self._insert_each(group)
            return
        for request in group:
            request.resolve([next(inserted) for _ in request.work])

    def _insert_each(self, group: Sequence[Request[Sequence[NewJob], list[Job]]]) -> None:
        """Each request alone. If the database is away, the leader does not find that out for each."""
        away: HoldfastError | None = None
        for request in group:
            if away is not None:
                request.fail(away)
                continue
            try:
                request.resolve(self._insert_now(request.work, request.deadline))
            except HoldfastError as problem:
                request.fail(problem)
                if isinstance(problem, DatabaseBusy | DatabaseUnavailable):
                    away = problem

    def _insert_now(
        self, jobs: Sequence[NewJob], deadline: float, notify: bool = True
    ) -> list[Job]:
        queues = frozenset(job.queue for job in jobs) if notify else frozenset()
        at_once = self._notifier.due(queues)
        plain = len(at_once) <= 1 and not any(job.unique for job in jobs)

        def script() -> Script[list[Job]]:
            return commands.insert(self.dialect, jobs, hint=at_once)

        # One statement commits itself, without a transaction around it.
        ids, kinds = [job.id for job in jobs], [EventKind.ENQUEUED]
        told = not plain or self.is_followed(ids, kinds, deadline)
        work, repeatable = self._work(script, told), not may_double(jobs)
        inserted = self._on_connection(work, deadline, repeatable=repeatable)
        self._notifier.later(queues - at_once)
        return inserted

    def _copy(self, jobs: Sequence[NewJob], notify: bool, deadline: float) -> list[Job]:
        queues = frozenset(job.queue for job in jobs) if notify else frozenset()
        at_once = self._notifier.due(queues)

        def work(connection: Connection) -> list[Job]:
            with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
                cursor.execute("SELECT COALESCE(%s::timestamptz, now())", [self.dialect.now()])
                now = cursor.fetchall()[0][0]
                with cursor.copy(COPY.format(schema=self.schema)) as copy:
                    for job in jobs:
                        copy.write_row(copy_row(job, now))
                self._drive(connection, lambda: wake(at_once))
                self._drive(connection, lambda: commands.emit_enqueued(self.dialect, jobs))
            return [rows.new_to_job(self.dialect, job, "pending", now, now) for job in jobs]

        try:
            inserted = self._on_connection(work, deadline)
        except KeyConflict as problem:
            # An id that is there already: sent before, and the reply was lost. A repeat tells.
            raise OutcomeUnknown(str(problem)) from problem
        self._notifier.later(queues - at_once)
        return inserted

    # finishing and claiming

    def _finish(self, finishes: Sequence[Finish]) -> dict[Claim, Applied]:
        # Nothing to keep, to enqueue or to let go on: statements that may commit by themselves.
        plain = all(one.error is None and not one.enqueue and one.recur is None for one in finishes)
        kinds = {kind_of(finish) for finish in finishes}
        write = not plain or self.is_followed([finish.id for finish in finishes], kinds)
        results = self.run(lambda: finish_jobs(self.dialect, finishes), write=write)
        self._claimer.release(freed(finishes, results))
        return results

    def hint(self, queues: frozenset[str]) -> None:
        self._notifier.later(queues)

    def now(self) -> datetime:
        if self.clock.rules_the_database:
            return self.clock.now()

        def read(connection: Connection) -> datetime:
            [(now,)] = connection.execute("SELECT clock_timestamp()").fetchall()
            return self.dialect.moment(now)

        return self._on_connection(read)

    # the caller's transaction, and hints

    def open(self) -> None:
        self._open()

    def adopt(self, tx: Any) -> Transaction:
        self._open()
        return transaction.adopt(unwrap(tx), self._statements, self.where)

    async def aadopt(self, tx: Any) -> Transaction:
        self._open()
        raw = await aunwrap(tx)
        return await transaction.aadopt(raw, self._statements, self.where)

    def _hint_now(self, queues: Iterable[str]) -> None:
        self.run(lambda: wake(queues), write=False)

    def _hint_at_events(self, _: Iterable[str]) -> None:
        self._on_connection(lambda own: perform(own, self._statements, Run("ring", {})))

    def wakeups(self, *, events: bool = False) -> PostgresWakeups:
        self._open()
        connect = None if self._connector.pooled else self._connect
        name = channel(self.schema, events)
        subscriber = PostgresWakeups(connect, self._deadlines, name, self._subscribers.remove)
        self._subscribers.append(subscriber)
        return subscriber


def _as_text(columns: str) -> str:
    """Ids are text outside of the database."""
    return re.sub(r"(^|\b)((jobs\.)?(workflow_)?id)\b", r"\2::text", columns)
