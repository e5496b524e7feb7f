"""The PostgreSQL engine: a pool of psycopg connections, group commit of enqueues, COPY for many."""

import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from holdfast.clock import Clock
from holdfast.engine import Fetched, Transaction, claims, finishing, migrate, verbs
from holdfast.engine.claims import CLAIMED
from holdfast.engine.dialect import wake
from holdfast.engine.group import GroupCommit, Request
from holdfast.engine.inspection import COLUMNS
from holdfast.engine.postgres import transaction
from holdfast.engine.postgres.bounds import BEGINNING, Bounds
from holdfast.engine.postgres.connection import (
    Connection,
    connection_settings,
    perform,
    translate,
    where_is,
)
from holdfast.engine.postgres.connections import Connections
from holdfast.engine.postgres.copying import COPY, COPY_FROM, copy_row, is_plain
from holdfast.engine.postgres.dialect import PostgresDialect
from holdfast.engine.postgres.doctor import Examined
from holdfast.engine.postgres.wakeups import Herald, PostgresWakeups, channel
from holdfast.engine.script import Reply, Run, Script, T, drive
from holdfast.engine.statements import Statements, qualified
from holdfast.engine.transaction import aunwrap, unwrap
from holdfast.errors import (
    DatabaseBusy,
    DatabaseUnavailable,
    HoldfastError,
    InvalidInput,
    InvalidURL,
    KeyConflict,
    SchemaError,
)
from holdfast.job import Claim, EventKind, Job, NewJob
from holdfast.outcome import Applied, Finish, kind_of

PACKAGE = "holdfast.engine.postgres"
APPLIED = (
    "number integer PRIMARY KEY, title text NOT NULL, breaking boolean NOT NULL,"
    " applied_at timestamptz NOT NULL DEFAULT now()"
)
GROUP = 200  # enqueues that share a commit at the most
_REQUEUES = frozenset({"promote", "rescue", "retry", "replace", "unpark", "move_schedule"})
_EVENTS = frozenset({"events"})
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,50}")


class PostgresEngine(Examined):
    def __init__(
        self, url: str, *, schema: str, pooler: bool, clock: Clock, auto_migrate: bool
    ) -> None:
        super().__init__(clock)
        if not _SCHEMA.fullmatch(schema):
            raise InvalidInput(
                f"schema={schema!r}: use lower-case letters, digits and '_', at most 51, not "
                "beginning with a digit"
            )
        try:
            psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.Error as problem:
            raise InvalidURL(f"the PostgreSQL URL cannot be understood: {problem}") from None
        self.dialect = PostgresDialect(clock)
        self.schema = schema
        self.where = where_is(url)
        self._url = url
        self._pooler = pooler
        self._auto_migrate = auto_migrate
        words = {
            "schema": schema,
            "now": "COALESCE(:now::text::timestamptz, statement_timestamp())",
            "columns": _as_text(COLUMNS),
            "claimed": _as_text(qualified(CLAIMED)),
        }
        self._words: Mapping[str, str] = words
        self._statements = Statements(PACKAGE, words)
        self._group: GroupCommit[Sequence[NewJob], list[Job]] = GroupCommit(
            self._insert_group, largest=GROUP
        )
        self._opening = threading.Lock()
        self._connections: Connections | None = None
        self._vital: Connections
        self._herald = Herald(self._tell)
        self._bell = Herald(self._ring)
        self._subscribers: list[PostgresWakeups] = []
        self._bounds = Bounds()
        self._beginning = dict(zip(("rank", "run_at", "id"), BEGINNING, strict=True))

    # opening and closing

    def _open(self) -> Connections:
        self.check_usable()
        if self._connections is not None:
            return self._connections
        with self._opening:
            if self._connections is None:
                try:
                    with self._connect() as connection:
                        self._prepare(connection)
                except (psycopg.Error, OSError) as problem:
                    raise translate(problem, self.where) from problem
                self._vital = Connections(self._connect)
                self._connections = Connections(self._connect)
        return self._connections

    def _connect(self) -> Connection:
        return Connection.connect(
            self._url, row_factory=tuple_row, **connection_settings(pooler=self._pooler)
        )

    def close(self) -> None:
        with self._opening:
            self._closed = True
            connections, self._connections = self._connections, None
        if connections is None:
            return
        self._herald.close()
        self._bell.close()
        for subscriber in list(self._subscribers):
            subscriber.close()
        connections.close()
        self._vital.close()

    # migrations

    def _prepare(self, connection: Connection) -> None:
        known = migrate.load(PACKAGE, self._words)
        missing = migrate.missing(known, self._applied(connection))
        if missing and not self._auto_migrate:
            raise SchemaError(
                f"the tables of Holdfast are not in {self.where}, schema {self.schema!r}, or are "
                f"those of an older release (missing: {', '.join(m.name for m in missing)}): run "
                "'holdfast migrate', or pass auto_migrate=True"
            )
        if missing:
            self._apply(connection, known)

    def _applied(self, connection: Connection) -> list[migrate.AppliedMigration]:
        with connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute("SELECT to_regclass(%s)", [f"{self.schema}.migrations"])
            if cursor.fetchall()[0][0] is None:
                return []
            cursor.execute(
                f"SELECT number, title, breaking FROM {self.schema}.migrations"  # noqa: S608
            )
            return [migrate.AppliedMigration(*row) for row in cursor.fetchall()]

    def _apply(self, connection: Connection, known: Sequence[migrate.Migration]) -> list[str]:
        with connection.transaction():
            # Ten processes may start at once: the first migrates, the others find it done.
            connection.execute("SET LOCAL lock_timeout = '60s'")
            connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [self.schema])
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")
            connection.execute(f"CREATE TABLE IF NOT EXISTS {self.schema}.migrations ({APPLIED})")
            missing = migrate.missing(known, self._applied(connection))
            for migration in missing:
                for command in migrate.commands(migration.sql):
                    connection.execute(command)
                connection.execute(
                    f"INSERT INTO {self.schema}.migrations VALUES (%s, %s, %s)",  # noqa: S608
                    [migration.number, migration.title, migration.breaking],
                )
        return [migration.name for migration in missing]

    def migrate(self) -> list[str]:
        self.check_usable()
        try:
            with self._connect() as connection:
                return self._apply(connection, migrate.load(PACKAGE, self._words))
        except (psycopg.Error, OSError) as problem:
            raise translate(problem, self.where) from problem

    def migrations_sql(self) -> str:
        found = migrate.load(PACKAGE, self._words)
        text = migrate.as_text(found, f"{self.schema}.migrations", APPLIED, "now()")
        return f"CREATE SCHEMA IF NOT EXISTS {self.schema};\n{text}"

    # running scripts

    def run(self, script: Callable[[], Script[T]], *, write: bool) -> T:
        def work(connection: Connection) -> T:
            with connection.transaction() if write else nullcontext():
                return self._drive(connection, script)

        return self._on_connection(work)

    def run_vital(self, script: Callable[[], Script[T]]) -> T:
        """On a connection of its own: the others may all be taken."""

        def work(connection: Connection) -> T:
            with connection.transaction():
                return self._drive(connection, script)

        self._open()
        try:
            return self._vital.use(work)
        except (psycopg.Error, OSError) as problem:
            raise translate(problem, self.where) from problem

    def _drive(self, connection: Connection, script: Callable[[], Script[T]]) -> T:
        return drive(script(), lambda run: self._perform(connection, run))

    def _perform(self, connection: Connection, run: Run) -> Reply:
        if run.name == "emit" and connection.info.transaction_status == TransactionStatus.IDLE:
            return Reply([], 0)  # nobody followed when this began: without a transaction around it
        if run.name == "ring" and not self._bell.due(_EVENTS):
            self._bell.later(_EVENTS)
            return Reply([], 0)
        reply = perform(connection, self._statements, run)
        # What goes back in line may belong in front of what was claimed.
        requeued = run.name in _REQUEUES and reply.rows
        if requeued or (run.name == "finish" and any(row[1] == "pending" for row in reply.rows)):
            self._bounds.forget()
        return reply

    def _on_connection(self, work: Callable[[Connection], T]) -> T:
        try:
            return self._open().use(work)
        except (psycopg.Error, OSError) as problem:
            raise translate(problem, self.where) from problem

    # inserting

    def insert(self, jobs: Sequence[NewJob], *, notify: bool = True) -> list[Job]:
        if not jobs:
            return []
        self._bounds.inserted(jobs)
        if len(jobs) >= COPY_FROM and all(is_plain(job) for job in jobs):
            inserted = self._copy(jobs, notify)
        elif notify and all(job.key is None for job in jobs):
            inserted = self._group.submit(jobs)
        else:  # a key may have to wait for another's transaction, and nobody shall wait with it
            inserted = self._insert_now(jobs, notify)
        for subscriber in list(self._subscribers):
            subscriber.wake()
        return inserted

    def _insert_group(self, group: Sequence[Request[Sequence[NewJob], list[Job]]]) -> None:
        """One statement for all; if it fails, each request alone, so that one harms no other."""
        jobs = [job for request in group for job in request.work]
        try:
            inserted = iter(self._insert_now(jobs))
        except (DatabaseBusy, DatabaseUnavailable):
            raise  # it would be the same for each of them
        except HoldfastError:
            if len(group) == 1:
                raise
            for request in group:
                self._insert_alone(request)
            return
        for request in group:
            request.resolve([next(inserted) for _ in request.work])

    def _insert_alone(self, request: Request[Sequence[NewJob], list[Job]]) -> None:
        try:
            request.resolve(self._insert_now(request.work))
        except HoldfastError as problem:
            request.fail(problem)

    def _insert_now(self, jobs: Sequence[NewJob], notify: bool = True) -> list[Job]:
        queues = frozenset(job.queue for job in jobs) if notify else frozenset()
        at_once = self._herald.due(queues)
        plain = len(at_once) <= 1 and all(job.key is None for job in jobs)

        def script() -> Script[list[Job]]:
            return verbs.insert(self.dialect, jobs, hint=at_once)

        # One statement commits itself, without a transaction around it.
        told = not plain or self.is_followed([job.id for job in jobs], [EventKind.ENQUEUED])
        inserted = self.run(script, write=told)
        self._herald.later(queues - at_once)
        return inserted

    def _copy(self, jobs: Sequence[NewJob], notify: bool) -> list[Job]:
        queues = frozenset(job.queue for job in jobs) if notify else frozenset()
        at_once = self._herald.due(queues)

        def work(connection: Connection) -> list[Job]:
            with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
                cursor.execute("SELECT COALESCE(%s::timestamptz, now())", [self.dialect.now()])
                now = cursor.fetchall()[0][0]
                with cursor.copy(COPY.format(schema=self.schema)) as copy:
                    for job in jobs:
                        copy.write_row(copy_row(job, now))
                self._drive(connection, lambda: wake(at_once))
                self._drive(connection, lambda: verbs.tell(self.dialect, jobs))
            return [verbs.new_to_job(self.dialect, job, "pending", now, now) for job in jobs]

        try:
            inserted = self._on_connection(work)
        except KeyConflict:
            # An id that is there already: sent before, and the reply was lost. The slow way tells.
            inserted = self.run(lambda: verbs.insert(self.dialect, jobs), write=True)
        self._herald.later(queues - at_once)
        return inserted

    # finishing and claiming

    def _finish(self, finishes: Sequence[Finish]) -> dict[Claim, Applied]:
        # Nothing to keep, to enqueue or to let go on: statements that may commit by themselves.
        plain = all(
            finish.error is None and not finish.enqueue and finish.recur is None
            for finish in finishes
        )
        kinds = {kind_of(finish) for finish in finishes}
        write = not plain or self.is_followed([finish.id for finish in finishes], kinds)
        results = self.run(lambda: finishing.finish(self.dialect, finishes), write=write)
        self._release(finishing.freed(finishes, results))
        return results

    def hint(self, queues: frozenset[str]) -> None:
        self._herald.later(queues)

    def claim(self, queue: str, limit: int, *, worker: str, types: Sequence[str]) -> list[Job]:
        jobs, more, _ = self._fetch(queue, limit, worker, types)
        if more and len(jobs) < limit:
            jobs += self._fetch(queue, limit - len(jobs), worker, types).jobs
            jobs.sort(key=claims.order_of_running)
        return jobs

    def _fetch(self, queue: str, limit: int, worker: str, types: Sequence[str]) -> Fetched:
        wanted = self._bounds.start(queue, types)
        jobs = self._claim(queue, limit, worker, wanted)
        self._bounds.claimed(queue, jobs)
        if len(jobs) >= limit or self._bounds.looked_at_everything(wanted):
            return Fetched(jobs, more=len(jobs) >= limit)
        if not self._bounds.may_look_again():
            return Fetched(jobs, more=False)
        self._bounds.forget(queue, types)
        if jobs:  # they need not wait for a look at everything
            return Fetched(jobs, more=True)
        return self._fetch(queue, limit, worker, types)

    def _claim(
        self, queue: str, limit: int, worker: str, wanted: Sequence[dict[str, Any]]
    ) -> list[Job]:
        began = time.monotonic()
        # One statement, which commits itself: no transaction around it, unless somebody follows.
        write = self.is_followed(kinds=[EventKind.STARTED])
        jobs = self.run(
            lambda: claims.claim(self.dialect, queue, limit, worker, wanted), write=write
        )
        if self._bounds.looked_at_everything(wanted):
            self._bounds.took(time.monotonic() - began)
        return jobs

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

    def _tell(self, queues: Iterable[str]) -> None:
        self.run(lambda: wake(queues), write=False)

    def _ring(self, _: Iterable[str]) -> None:
        self._on_connection(lambda own: perform(own, self._statements, Run("ring", {})))

    def wakeups(self, *, events: bool = False) -> PostgresWakeups:
        self._open()
        connect = None if self._pooler else self._connect
        subscriber = PostgresWakeups(
            connect, channel(self.schema, events), self._subscribers.remove
        )
        self._subscribers.append(subscriber)
        return subscriber


def _as_text(columns: str) -> str:
    """Ids are text to everybody but the database."""
    return re.sub(r"(^|\b)((jobs\.)?(workflow_)?id)\b", r"\2::text", columns)
