"""`tx=`: a job in the caller's transaction exists if and only if that transaction commits.

Proved with real connections of every accepted kind, on both engines (`tests/support/callers.py`).
"""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    ExitStack,
    asynccontextmanager,
    closing,
    contextmanager,
)
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy.orm
from psycopg import rows

from holdfast import (
    DatabaseBusy,
    DatabaseError,
    DatabaseUnavailable,
    Holdfast,
    Job,
    KeyConflict,
    SchemaError,
    Status,
    Task,
    TransactionError,
)
from holdfast.jobs.job import UNFINISHED
from tests.conftest import Database
from tests.support.callers import ASYNC_KINDS, KINDS, Kind, find
from tests.support.jobs import execute
from tests.support.server import PostgresServer
from tests.support.threads import in_threads

MOVIE = ("movie", 7)
PRODUCERS = 64
ROUNDS = 5


@dataclass(frozen=True)
class AppWithTable:
    """An application's database: its jobs, and one table of its own."""

    database: Database
    app: Holdfast
    send: Task[[int], None]
    own: str

    def jobs(self) -> list[int]:
        """The numbers of all jobs, as others see them."""
        return sorted(self.app.jobs.get(job.id).payload["n"] for job in self.app.jobs.search())

    def rows(self) -> list[str]:
        return sorted(row[0] for row in execute(self.app.engine, f"SELECT name FROM {self.own}"))

    def row(self, name: str) -> str:
        return f"INSERT INTO {self.own} VALUES ('{name}')"


def make_setup(database: Database, app: Holdfast) -> AppWithTable:
    @app.task
    def send(n: int) -> None: ...

    app.migrate()
    own = "own" if database.kind == "sqlite" else f"{database.schema}.own"
    execute(app.engine, f"CREATE TABLE {own} (name text)")
    return AppWithTable(database, app, send, own)


@pytest.fixture
def setup(database: Database) -> AppWithTable:
    return make_setup(database, database.app())


def over(kinds: list[Kind]) -> Callable[[Any], Any]:
    """Parametrise over kinds of connections, each with an empty database of its engine."""
    return pytest.mark.parametrize(
        ("database", "kind"),
        [pytest.param(kind.engine, kind, id=str(kind)) for kind in kinds],
        indirect=["database"],
    )


on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
on_postgres = pytest.mark.parametrize("database", ["postgres"], indirect=True)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds


# every kind of connection


@over(KINDS)
def test_a_rollback_leaves_nothing_of_the_job(setup: AppWithTable, kind: Kind) -> None:
    async def body() -> None:
        async with kind.opened(setup.database) as caller:
            await caller.begin()
            await caller.execute(setup.row("mine"))
            job = await kind.call(setup.send.using(tx=caller.tx), "enqueue", 1)
            assert job.created
            await caller.rollback()

            await caller.begin()  # and the connection serves the next transaction
            await kind.call(setup.send.using(tx=caller.tx), "enqueue", 2)
            await caller.commit()

    kind.drive(body())
    assert setup.rows() == []
    assert setup.jobs() == [2]


@over(KINDS)
def test_a_commit_makes_job_and_row_visible_together(setup: AppWithTable, kind: Kind) -> None:
    async def body() -> Job:
        async with kind.opened(setup.database) as caller:
            await caller.begin()
            job: Job = await kind.call(setup.send.using(tx=caller.tx), "enqueue", 1)
            await caller.execute(setup.row("mine"))
            assert list(setup.app.jobs.search()) == []
            assert setup.rows() == []
            await caller.commit()
            assert [found.id for found in setup.app.jobs.search()] == [job.id]
            assert setup.rows() == ["mine"]
            return job

    job = kind.drive(body())
    assert job.created
    assert setup.app.jobs.get(job.id) == replace(job, created=False)


@over(KINDS)
def test_a_conflict_leaves_the_transaction_usable(setup: AppWithTable, kind: Kind) -> None:
    setup.send.using(key="k").enqueue(1)

    async def body() -> None:
        async with kind.opened(setup.database) as caller:
            await caller.begin()
            await caller.execute(setup.row("before"))
            with pytest.raises(KeyConflict, match="holds the key 'k'"):
                await kind.call(
                    setup.send.using(tx=caller.tx, key="k", on_conflict="raise"), "enqueue", 2
                )
            await caller.execute(setup.row("after"))
            await caller.commit()

    kind.drive(body())
    assert setup.rows() == ["after", "before"]
    assert setup.jobs() == [1]


@over(KINDS)
def test_a_refusal_by_the_database_leaves_the_transaction_usable(
    setup: AppWithTable, kind: Kind
) -> None:
    """The statement itself fails: half of a job, or a transaction that PostgreSQL calls failed, is
    what would be left without a savepoint."""
    refuse(setup)

    async def body() -> None:
        async with kind.opened(setup.database) as caller:
            await caller.begin()
            await caller.execute(setup.row("before"))
            with pytest.raises(DatabaseError, match="refused"):
                await kind.call(setup.send.using(tx=caller.tx, key="k"), "enqueue", 13)
            await caller.execute(setup.row("after"))
            job = await kind.call(setup.send.using(tx=caller.tx, key="k"), "enqueue", 2)
            assert job.created
            await caller.commit()

    kind.drive(body())
    assert setup.rows() == ["after", "before"]
    assert setup.jobs() == [2]


def refuse(setup: AppWithTable) -> None:
    """Make the database refuse the payload {"n":13}. On SQLite its job's row is written by then."""
    if setup.database.kind == "sqlite":
        refusal = (
            "CREATE TRIGGER refusal BEFORE INSERT ON holdfast_payloads WHEN NEW.payload LIKE '%13%'"
            " BEGIN SELECT RAISE(ABORT, 'refused'); END"
        )
    else:
        refusal = (
            "ALTER TABLE {jobs} ADD CONSTRAINT refused CHECK (position('13' IN payload::text) = 0)"
        )
    execute(setup.app.engine, refusal)


@over(KINDS)
@pytest.mark.parametrize("verb", ["delete", "cancel"])
def test_deleting_jobs_of_an_entity_is_part_of_the_transaction(
    setup: AppWithTable, kind: Kind, verb: str
) -> None:
    for number in range(3):
        setup.send.using(entity=MOVIE).enqueue(number)
    setup.send.using(entity=("movie", 8)).enqueue(8)
    setup.send.using(entity=("movie", "7")).enqueue(9)
    left = {"delete": [8, 9], "cancel": [0, 1, 2, 8, 9]}[verb]

    def waiting() -> int:
        return setup.app.jobs.count(status="pending")

    async def body() -> None:
        async with kind.opened(setup.database) as caller:
            for end in (caller.rollback, caller.commit):
                await caller.begin()
                await caller.execute(setup.row(end.__name__))
                tx = caller.tx
                done = await kind.call(setup.app.jobs, f"{verb}_all", entity=MOVIE, tx=tx)
                assert done.changed == 3
                assert waiting() == 5
                await end()
                assert waiting() == {"rollback": 5, "commit": 2}[end.__name__]

    kind.drive(body())
    assert setup.rows() == ["commit"]
    assert setup.jobs() == left
    if verb == "cancel":
        assert setup.app.jobs.count(status="cancelled", entity=MOVIE) == 3


@over(KINDS)
def test_every_command_runs_in_the_transaction(setup: AppWithTable, kind: Kind) -> None:
    """And says the same of a job as the world outside will, whatever the driver makes of columns."""
    app = setup.app

    async def body() -> tuple[list[Job], Job]:
        async with kind.opened(setup.database) as caller:
            tx = caller.tx
            await caller.begin()
            keyed = setup.send.using(tx=tx, key="k", entity=MOVIE, delay=60, timeout=1.5)
            job: Job = await kind.call(keyed.using(queue="media", priority=-5), "enqueue", 1)
            assert (job.created, job.status, job.entity) == (True, Status.SCHEDULED, MOVIE)
            assert await kind.call(app.jobs, "get", job.id, tx=tx) == replace(job, created=False)

            found = await kind.call(keyed, "enqueue", 2)
            assert (found.id, found.created, found.payload) == (job.id, False, {"n": 1})
            taken = await kind.call(keyed.using(on_conflict="debounce", delay=0), "enqueue", 3)
            assert (taken.id, taken.payload, taken.status) == (job.id, {"n": 3}, Status.PENDING)

            cancelled = await kind.call(app.jobs, "cancel", job.id, tx=tx)
            assert (cancelled.status, cancelled.timeout) == (Status.CANCELLED, 1.5)
            assert cancelled.completed_at is not None
            assert (await kind.call(app.jobs, "retry", job.id, tx=tx)).status is Status.PENDING
            assert (await kind.call(app.jobs, "retry_all", tx=tx, key="k")).changed == 1
            assert (await kind.call(app.jobs, "edit", job.id, tx=tx, priority=3)).priority == 3
            assert (await kind.call(app.jobs, "latest", tx=tx, key="k")).id == job.id
            deleted = await kind.call(app.jobs, "delete", job.id, tx=tx)

            calls = [{"n": number} for number in range(10, 70)]
            made = await kind.call(setup.send.using(tx=tx), "enqueue_many", calls)
            await caller.commit()
            return made, deleted

    made, deleted = kind.drive(body())
    assert deleted.id not in {job.id for job in app.jobs.search()}
    assert [job.payload["n"] for job in made] == list(range(10, 70))
    assert [app.jobs.get(job.id) for job in made] == [replace(job, created=False) for job in made]


# what cannot carry a job

Opener = Callable[[Kind, AppWithTable], AsyncIterator[Any]]
REFUSED: list[Any] = []
EXPLICIT = [find("sqlite-sqlite3-explicit"), find("sqlite-aiosqlite-explicit-awaited")]
IMPLICIT = [find("sqlite-sqlite3"), find("sqlite-aiosqlite-awaited")]
BASIC = [kind for kind in KINDS if kind.name in ("sqlite3", "aiosqlite", "psycopg", "asyncpg")]


def refused(match: str, applies: Callable[[Kind], bool]) -> Callable[[Opener], None]:
    """Register a `tx=` that must be refused with this message, for the kinds it applies to."""

    def register(case: Opener) -> None:
        for kind in filter(applies, KINDS):
            name = f"{case.__name__}-{kind}"
            made = asynccontextmanager(case)
            REFUSED.append(pytest.param(kind.engine, kind, made, match, id=name))

    return register


@refused("opened on that database", lambda kind: kind.engine == "sqlite")
async def another_file(kind: Kind, setup: AppWithTable) -> AsyncIterator[Any]:
    """With the same tables in it, so that a job could go there unseen."""
    url = f"sqlite:///{setup.database.path.with_name('other.db')}"
    with Holdfast(url) as app:
        other = make_setup(replace(setup.database, url=url), app)
        async with kind.opened(other.database) as caller:
            await caller.begin()
            await caller.execute(other.row("mine"))
            yield caller.tx
            await caller.commit()
        assert other.rows() == ["mine"]
        assert other.jobs() == []


# Sessions and Django's connection are left out: a closed one connects again.
@refused(
    "closed|no active connection|released back",
    lambda kind: not kind.name.endswith(("session", "scoped")) and "django" not in kind.name,
)
async def closed(kind: Kind, setup: AppWithTable) -> AsyncIterator[Any]:
    async with kind.opened(setup.database) as caller:
        pass
    yield caller.tx


@refused("failed already|current transaction is aborted", lambda kind: kind.engine == "postgres")
async def failed(kind: Kind, setup: AppWithTable) -> AsyncIterator[Any]:
    async with kind.opened(setup.database) as caller:
        await caller.begin()
        with pytest.raises(Exception, match="nonsense"):
            await caller.execute("SELECT nonsense")
        yield caller.tx
        await caller.rollback()


@refused(
    "outside any transaction|autocommit mode",
    lambda kind: kind.name.startswith(("asyncpg", "django")) or "explicit" in kind.name,
)
async def not_begun(kind: Kind, setup: AppWithTable) -> AsyncIterator[Any]:
    async with kind.opened(setup.database) as caller:
        yield caller.tx


@refused("outside any transaction", lambda kind: kind.name.startswith("psycopg"))
async def autocommit(kind: Kind, setup: AppWithTable) -> AsyncIterator[Any]:
    async with kind.opened(setup.database) as caller:
        switched = caller.tx.set_autocommit(True)
        if kind.make.is_async:
            await switched
        yield caller.tx


@refused(
    "outside any transaction",
    lambda kind: (
        kind.name.startswith("sqlalchemy") and not kind.name.endswith(("session", "scoped"))
    ),
)
async def autocommit_of_sqlalchemy(kind: Kind, setup: AppWithTable) -> AsyncIterator[Any]:
    async with kind.opened(setup.database) as caller:
        switched = caller.tx.execution_options(isolation_level="AUTOCOMMIT")
        if kind.make.is_async:
            await switched
        yield caller.tx


@refused("cannot be used", lambda kind: "django" in kind.name)
async def marked_for_rollback(kind: Kind, setup: AppWithTable) -> AsyncIterator[Any]:
    """As an inner atomic block leaves it when the outer one swallows its error."""
    async with kind.opened(setup.database) as caller:
        await caller.begin()
        caller.tx.set_rollback(True)
        yield caller.tx
        await caller.rollback()


@refused("cannot be used", lambda kind: kind in BASIC)
async def unbound_session(kind: Kind, setup: AppWithTable) -> AsyncIterator[Any]:
    with sqlalchemy.orm.Session() as session:
        yield session


@refused(r"tx= was given a builtins\.object", lambda kind: kind in BASIC)
async def an_object(kind: Kind, setup: AppWithTable) -> AsyncIterator[Any]:
    yield object()


@refused(r"tx= was given a builtins\.str", lambda kind: kind in BASIC)
async def a_text(kind: Kind, setup: AppWithTable) -> AsyncIterator[Any]:
    yield "x"


@refused(r"tx= was given a builtins\.bool", lambda kind: kind in BASIC)
async def a_false(kind: Kind, setup: AppWithTable) -> AsyncIterator[Any]:
    yield False


@pytest.mark.parametrize(("database", "kind", "case", "match"), REFUSED, indirect=["database"])
def test_an_unusable_tx_is_refused_immediately_and_nothing_is_written(
    setup: AppWithTable,
    kind: Kind,
    case: Callable[[Kind, AppWithTable], AbstractAsyncContextManager[Any]],
    match: str,
) -> None:
    setup.send.using(entity=MOVIE).enqueue(1)

    async def body() -> None:
        async with case(kind, setup) as tx:
            with pytest.raises(TransactionError, match=match), within(5):
                await kind.call(setup.send.using(tx=tx), "enqueue", 2)
            with pytest.raises(TransactionError, match=match), within(5):
                await kind.call(setup.app.jobs, "delete_all", entity=MOVIE, tx=tx)

    kind.drive(body())
    assert setup.jobs() == [1]


@over(ASYNC_KINDS)
def test_an_async_connection_in_a_sync_method_is_refused(setup: AppWithTable, kind: Kind) -> None:
    async def body() -> None:
        async with kind.opened(setup.database) as caller:
            await caller.begin()
            await caller.execute(setup.row("mine"))
            with pytest.raises(TransactionError, match="async twin"), within(5):
                setup.send.using(tx=caller.tx).enqueue(1)
            await caller.commit()

    kind.drive(body())
    assert setup.jobs() == []
    assert setup.rows() == ["mine"]


@over([kind for kind in KINDS if "django" in kind.name])
def test_a_django_connection_in_an_async_method_is_refused(setup: AppWithTable, kind: Kind) -> None:
    """Django itself forbids its connections where an event loop runs."""

    async def body() -> None:
        async with kind.opened(setup.database) as caller:
            await caller.begin()
            with pytest.raises(TransactionError, match="cannot be used"), within(5):
                asyncio.run(setup.send.using(tx=caller.tx).aenqueue(1))
            await caller.execute(setup.row("mine"))
            await caller.commit()

    kind.drive(body())
    assert setup.jobs() == []
    assert setup.rows() == ["mine"]


@over(BASIC)
def test_a_connection_of_the_other_engine_is_refused(
    setup: AppWithTable, kind: Kind, postgres_url: str, tmp_path: Path
) -> None:
    engine, url = "sqlite", f"sqlite:///{tmp_path}/else.db"
    if kind.engine == "sqlite":
        engine, url = "postgres", postgres_url

    async def body(other: Kind) -> None:
        async with other.opened(Database(engine, url, "", [])) as caller:
            await caller.begin()
            with pytest.raises(TransactionError, match="opened on that database"), within(5):
                await kind.call(setup.send.using(tx=caller.tx), "enqueue", 1)

    for other in BASIC:
        if other.engine == engine and other.make.is_async == kind.make.is_async:
            kind.drive(body(other))
    assert setup.jobs() == []


@on_postgres
def test_a_connection_to_another_database_is_refused(
    setup: AppWithTable, server: PostgresServer
) -> None:
    url = server.create_database()
    try:
        with psycopg.connect(url) as connection:
            with pytest.raises(SchemaError, match="holdfast migrate"), within(5):
                setup.send.using(tx=connection).enqueue(1)
            connection.execute("SELECT 1")
    finally:
        server.drop_database(url.rpartition("/")[2])
    assert setup.jobs() == []


@on_sqlite
def test_a_connection_of_another_thread_is_refused(setup: AppWithTable) -> None:
    with closing(sqlite3.connect(setup.database.path)) as connection:
        with pytest.raises(TransactionError, match="thread"), within(5):
            in_threads(1, lambda _: setup.send.using(tx=connection).enqueue(1))
        assert not connection.in_transaction
    assert setup.jobs() == []


@on_postgres
def test_a_connection_ended_by_the_server_is_an_error(setup: AppWithTable) -> None:
    with closing(psycopg.connect(setup.database.url)) as connection:
        connection.execute(setup.row("mine"))
        pid = connection.info.backend_pid
        execute(setup.app.engine, f"SELECT pg_terminate_backend({pid}, 5000)")
        with pytest.raises(DatabaseUnavailable, match="terminat"), within(5):
            setup.send.using(tx=connection).enqueue(1)
    assert setup.jobs() == []
    assert setup.rows() == []


@on_sqlite
@pytest.mark.parametrize("kind", EXPLICIT, ids=str)
def test_a_deferred_transaction_with_an_outdated_read_is_an_error(
    setup: AppWithTable, kind: Kind
) -> None:
    async def body() -> None:
        async with kind.opened(setup.database) as caller:
            await caller.execute("BEGIN DEFERRED")
            await caller.execute("SELECT * FROM own")
            setup.send.enqueue(1)
            with pytest.raises(DatabaseBusy, match="BEGIN IMMEDIATE"), within(5):
                await kind.call(setup.send.using(tx=caller.tx), "enqueue", 2)
            await caller.rollback()

            await caller.execute("BEGIN IMMEDIATE")
            await caller.execute("SELECT * FROM own")
            await kind.call(setup.send.using(tx=caller.tx), "enqueue", 3)
            await caller.commit()

    kind.drive(body())
    assert setup.jobs() == [1, 3]


@on_sqlite
@pytest.mark.parametrize("kind", IMPLICIT, ids=str)
def test_reads_of_holdfast_never_outdate_a_deferred_transaction(
    setup: AppWithTable, kind: Kind
) -> None:
    """The transaction that we begin for the caller has the write lock from the start."""
    job = setup.send.enqueue(1)

    async def body() -> None:
        async with kind.opened(setup.database) as caller:
            await kind.call(setup.app.jobs, "get", job.id, tx=caller.tx)
            with (
                closing(sqlite3.connect(setup.database.path, timeout=0)) as other,
                pytest.raises(sqlite3.OperationalError, match="locked"),
            ):
                other.execute(setup.row("theirs"))
            await kind.call(setup.send.using(tx=caller.tx), "enqueue", 2)
            await caller.commit()

    kind.drive(body())
    assert setup.jobs() == [1, 2]


@on_sqlite
def test_an_enqueue_without_tx_from_the_thread_with_the_write_lock_is_an_error(
    database: Database,
) -> None:
    short = replace(database, url=f"{database.url}?busy_timeout=0.3")
    setup = make_setup(short, short.app())
    with closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(setup.row("mine"))
        with pytest.raises(DatabaseBusy, match=r"using\(tx="), within(5):
            setup.send.enqueue(1)
        with pytest.raises(DatabaseBusy, match=r"using\(tx="), within(5):
            asyncio.run(setup.send.aenqueue(1))
        setup.send.using(tx=connection).enqueue(2)
        connection.execute("COMMIT")
    setup.send.enqueue(3)
    assert setup.jobs() == [2, 3]
    assert setup.rows() == ["mine"]


# keys


def test_concurrent_producers_of_which_half_roll_back(setup: AppWithTable) -> None:
    """Whoever commits finds one live job of the key, and it is the same one for all."""
    with ExitStack() as stack:
        connections = [
            stack.enter_context(closing(racer(setup.database))) for _ in range(PRODUCERS)
        ]

        def produce(number: int) -> Job:
            connection = connections[number]
            if setup.database.kind == "sqlite":
                connection.execute("BEGIN IMMEDIATE")
            job = setup.send.using(tx=connection, key=key).enqueue(number)
            connection.execute(setup.row(f"{key}-{number}"))
            connection.rollback() if number % 2 else connection.commit()
            return job

        for turn in range(ROUNDS):
            key = f"round {turn}"
            jobs = in_threads(PRODUCERS, produce)
            live = list(setup.app.jobs.search(key=key, status=UNFINISHED))
            assert len(live) == 1
            kept, undone = jobs[::2], jobs[1::2]
            assert {job.id for job in kept} == {live[0].id}
            assert [job.created for job in kept].count(True) == 1
            # Undone: it made a job that is gone, or it had found the one that stayed.
            assert all(job.created == (job.id != live[0].id) for job in undone)
            assert setup.app.jobs.count(key=key) == 1
    wrote = {
        f"round {turn}-{number}" for turn in range(ROUNDS) for number in range(0, PRODUCERS, 2)
    }
    assert set(setup.rows()) == wrote


def racer(database: Database) -> Any:
    if database.kind == "postgres":
        return psycopg.connect(database.url)
    return sqlite3.connect(database.path, timeout=30, isolation_level=None, check_same_thread=False)


POSTGRES_DRIVERS = [kind for kind in BASIC if kind.engine == "postgres"] + [
    find("postgres-psycopg-async-awaited"),
    find("postgres-django"),
]


@contextmanager
def key_held(setup: AppWithTable) -> Iterator[None]:
    """Somebody else has enqueued the key 'k' and not committed yet."""
    with psycopg.connect(setup.database.url) as other:
        setup.send.using(tx=other, key="k").enqueue(1)
        yield
        other.rollback()


@over(POSTGRES_DRIVERS)
def test_the_wait_for_an_uncommitted_key_is_bounded(setup: AppWithTable, kind: Kind) -> None:
    expect_setting = f"INSERT INTO {setup.own} SELECT current_setting('lock_timeout')"

    async def body() -> None:
        async with kind.opened(setup.database) as caller:
            await caller.begin()
            await caller.execute("SET LOCAL lock_timeout = '77s'")
            await caller.execute(setup.row("before"))
            start = time.monotonic()
            with pytest.raises(DatabaseBusy, match="try again"):
                await kind.call(setup.send.using(tx=caller.tx, key="k"), "enqueue", 2)
            assert 1 < time.monotonic() - start < 10
            await caller.execute(expect_setting)
            await kind.call(setup.send.using(tx=caller.tx, key="free"), "enqueue", 3)
            await caller.execute(expect_setting)
            await caller.commit()

    with key_held(setup):
        kind.drive(body())
    assert setup.rows() == ["77s", "77s", "before"]
    assert setup.jobs() == [3]


@over([kind for kind in POSTGRES_DRIVERS if kind.make.is_async])
def test_a_cancelled_enqueue_leaves_the_transaction_usable(setup: AppWithTable, kind: Kind) -> None:
    async def body() -> None:
        async with kind.opened(setup.database) as caller:
            await caller.begin()
            await caller.execute(setup.row("before"))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await setup.send.using(tx=caller.tx, key="k").aenqueue(2)
            await caller.execute(setup.row("after"))
            await caller.commit()

    with key_held(setup):
        kind.drive(body())
    assert setup.rows() == ["after", "before"]
    assert setup.jobs() == []


@on_postgres
def test_a_key_invisible_to_an_old_snapshot_is_an_error(setup: AppWithTable) -> None:
    with psycopg.connect(setup.database.url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute(f"SELECT * FROM {setup.own}")
        setup.send.using(key="k").enqueue(1)
        with pytest.raises(DatabaseError), within(5):
            setup.send.using(tx=connection, key="k").enqueue(2)
        connection.execute(setup.row("mine"))
        connection.commit()
    assert setup.jobs() == [1]
    assert setup.rows() == ["mine"]


@on_sqlite
@pytest.mark.parametrize("kind", IMPLICIT, ids=str)
def test_the_callers_busy_timeout_applies_to_the_write_lock(
    setup: AppWithTable, kind: Kind
) -> None:
    async def body() -> None:
        async with kind.opened(setup.database) as caller:
            await caller.execute("PRAGMA busy_timeout = 200")
            with closing(sqlite3.connect(setup.database.path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                with pytest.raises(DatabaseBusy, match="write lock"), within(5):
                    await kind.call(setup.send.using(tx=caller.tx), "enqueue", 1)
            await kind.call(setup.send.using(tx=caller.tx), "enqueue", 2)
            await caller.commit()

    kind.drive(body())
    assert setup.jobs() == [2]


# row factories


def as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


def only_first(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> Any:
    return row[0]


class AnyColumns:
    def __init__(self, **columns: Any) -> None:
        self.columns = columns


FACTORIES: dict[str, list[Any]] = {
    "sqlite3": [sqlite3.Row, as_dict, only_first],
    "aiosqlite": [sqlite3.Row, as_dict, only_first],
    "psycopg": [rows.dict_row, rows.namedtuple_row, rows.scalar_row, rows.class_row(AnyColumns)],
    "psycopg-async": [rows.dict_row, rows.namedtuple_row, rows.scalar_row],
}


@pytest.mark.parametrize(
    ("database", "kind", "factory"),
    [
        pytest.param(kind.engine, kind, factory, id=f"{kind}-{factory.__name__}")
        for kind in KINDS
        for factory in FACTORIES.get(kind.name, ())
    ],
    indirect=["database"],
)
def test_the_callers_row_factory_does_not_matter(
    setup: AppWithTable, kind: Kind, factory: Any
) -> None:
    async def body() -> None:
        async with kind.opened(setup.database) as caller:
            caller.tx.row_factory = factory
            using = setup.send.using(tx=caller.tx, key="k", entity=MOVIE)
            job = await kind.call(using, "enqueue", 1)
            assert await kind.call(using, "enqueue", 2) == replace(job, created=False)
            done = await kind.call(setup.app.jobs, "cancel_all", entity=MOVIE, tx=caller.tx)
            assert done.changed == 1
            assert caller.tx.row_factory is factory
            await caller.commit()

    kind.drive(body())
    assert [job.status for job in setup.app.jobs.search()] == [Status.CANCELLED]


@on_postgres
def test_the_callers_cursor_factory_does_not_matter(setup: AppWithTable) -> None:
    """A raw cursor wants $1 where others want %s."""
    with psycopg.connect(setup.database.url, cursor_factory=psycopg.RawCursor) as connection:
        setup.send.using(tx=connection).enqueue(1)
    assert setup.jobs() == [1]


# telling the workers


@over(BASIC)
def test_only_a_commit_wakes_waiting_workers(setup: AppWithTable, kind: Kind) -> None:
    with closing(setup.database.engine().wakeups()) as wakeups:

        async def body() -> None:
            async with kind.opened(setup.database) as caller:
                await caller.begin()
                await kind.call(setup.send.using(tx=caller.tx, queue="media"), "enqueue", 1)
                assert wakeups.wait(0.2) == frozenset()
                await caller.rollback()
                assert wakeups.wait(0.2) == frozenset()

                await caller.begin()
                await kind.call(setup.send.using(tx=caller.tx, queue="media"), "enqueue", 2)
                await caller.commit()
                with within(2):
                    assert wakeups.wait(5) <= {"media", "*"} != frozenset()

        kind.drive(body())


@over([kind for kind in BASIC if kind.engine == "postgres"])
def test_without_notify_no_hint_is_sent(setup: AppWithTable, kind: Kind) -> None:
    with closing(setup.database.engine().wakeups()) as wakeups:

        async def body() -> None:
            async with kind.opened(setup.database) as caller:
                for notify, heard in ((False, frozenset[str]()), (True, frozenset({"default"}))):
                    await caller.begin()
                    await kind.call(setup.send.using(tx=caller.tx, notify=notify), "enqueue", 1)
                    await caller.commit()
                    assert wakeups.wait(2 if notify else 0.3) == heard

        kind.drive(body())


# the first use


def test_the_first_call_of_an_application_may_be_in_a_transaction(database: Database) -> None:
    app = database.app()
    connection: Any
    with closing(
        psycopg.connect(database.url)
        if database.kind == "postgres"
        else sqlite3.connect(database.path)
    ) as connection:
        connection.execute("SELECT 1")
        app.enqueue("send", {"n": 1}, tx=connection)
        connection.commit()
    assert app.jobs.count() == 1


@pytest.mark.parametrize("bare_database", ["sqlite"], indirect=True)
def test_the_first_call_is_refused_in_a_transaction_that_blocks_the_migration(
    bare_database: Database,
) -> None:
    app = replace(bare_database, url=f"{bare_database.url}?busy_timeout=0.3").app()
    with closing(sqlite3.connect(bare_database.path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseBusy), within(5):
            app.enqueue("send", {"n": 1}, tx=connection)
        connection.execute("ROLLBACK")
        app.migrate()
        connection.execute("BEGIN IMMEDIATE")
        app.enqueue("send", {"n": 2}, tx=connection)
        connection.execute("COMMIT")
    assert [app.jobs.get(job.id).payload for job in app.jobs.search()] == [{"n": 2}]
