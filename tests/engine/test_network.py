"""What networks do to a connection: replies that are cut, servers that say nothing; and what a pooler
does to sessions."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from holdfast import DatabaseUnavailable, Holdfast, OutcomeUnknown
from holdfast.engine.group_commit import Request
from holdfast.engine.open import open_engine
from holdfast.engine.postgres import connections
from holdfast.engine.postgres.engine import PostgresEngine
from tests.conftest import Database
from tests.support.jobs import new
from tests.support.pgbouncer import Pgbouncer
from tests.support.proxy import Proxy
from tests.support.server import PostgresServer
from tests.support.standby import StandbyServer
from tests.support.threads import in_threads
from tests.support.waiting import finished, until

pytestmark = pytest.mark.parametrize("database", ["postgres"], indirect=True)


@pytest.fixture
def proxy(database: Database) -> Iterator[Proxy]:
    with Proxy.before(database.url) as proxy:
        yield proxy


@pytest.fixture
def app(database: Database, proxy: Proxy) -> Iterator[Holdfast]:
    with Holdfast(
        proxy.url(database.url), schema=database.schema, poll_interval=0.2, database_timeout=6
    ) as app:
        app.engine.open()
        yield app


def inserted(database: Database) -> list[str]:
    with psycopg.connect(database.url) as own:
        rows = own.execute(f"SELECT id::text FROM {database.schema}.jobs".encode()).fetchall()
    return [row[0] for row in rows]


# The server's answer to an INSERT or a COPY that was committed.
COMMITTED: dict[str, Callable[[bytes], bool]] = {
    "insert": lambda reply: b"pending" in reply,
    "commit": lambda reply: b"COMMIT\0" in reply,
}


class TestCutReplies:
    @pytest.mark.parametrize("count", [1, 7, 80])
    def test_the_client_repeats_a_lost_request_by_itself(
        self, app: Holdfast, database: Database, proxy: Proxy, count: int
    ) -> None:
        """One job commits itself, some share a statement, many go by COPY."""
        proxy.cut_reply(COMMITTED["commit" if count == 80 else "insert"])
        jobs = app.engine.insert([new() for _ in range(count)])
        assert all(job.created for job in jobs)
        assert proxy._on_reply is None, "no reply was cut"
        assert sorted(inserted(database)) == sorted(job.id for job in jobs)

    def test_repeats_continue_while_the_server_is_unavailable(
        self, app: Holdfast, database: Database, proxy: Proxy
    ) -> None:
        def committed(reply: bytes) -> bool:
            if COMMITTED["insert"](reply):
                proxy._refuses = True  # no client can connect now
                threading.Timer(1.0, proxy.flow).start()
                return True
            return False

        proxy.cut_reply(committed)
        job = app.enqueue("t")
        assert job.created
        assert inserted(database) == [job.id]

    def test_repeats_get_only_the_remaining_time(
        self, database: Database, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def committed(reply: bytes) -> bool:
            if COMMITTED["insert"](reply):
                proxy._refuses = True
                threading.Timer(4.0, proxy.flow).start()
                return True
            return False

        url = proxy.url(database.url)
        with Holdfast(url, schema=database.schema, database_timeout=12) as app:
            app.engine.open()
            calls = watched_calls(app, monkeypatch)
            proxy.cut_reply(committed)
            assert app.enqueue("t").created
        began = calls[0][0]
        assert max(deadline for _, deadline in calls) <= began + 12

    def test_many_threads_in_one_group(
        self, app: Holdfast, database: Database, proxy: Proxy
    ) -> None:
        proxy.cut_reply(COMMITTED["insert"])
        jobs = in_threads(16, lambda _: app.enqueue("t"))
        assert sorted(inserted(database)) == sorted(job.id for job in jobs)

    def test_an_unknown_outcome_is_an_error_with_the_job_id(
        self, app: Holdfast, database: Database, proxy: Proxy
    ) -> None:
        def committed(reply: bytes) -> bool:
            proxy._refuses = proxy._refuses or COMMITTED["insert"](reply)
            return proxy._refuses

        proxy.cut_reply(committed)
        began = time.monotonic()
        with pytest.raises(OutcomeUnknown) as raised:
            app.enqueue("t")
        assert time.monotonic() - began < 20
        assert inserted(database) == [raised.value.id]
        proxy.flow()


class TestUncertainErrors:
    """An error of a later try says nothing about the first one, whose answer was lost: no error but
    OutcomeUnknown is raised for a job that may be there."""

    def test_no_free_connection_for_the_repeat_is_an_unknown_outcome(
        self, app: Holdfast, database: Database, proxy: Proxy
    ) -> None:
        engine = app.engine
        assert isinstance(engine, PostgresEngine)
        pool = engine._open()

        def committed(reply: bytes) -> bool:
            if not COMMITTED["insert"](reply):
                return False
            pool._full_until, pool._most = math.inf, 0  # as if others held all there may be
            return True

        proxy.cut_reply(committed)
        with pytest.raises(OutcomeUnknown) as raised:
            app.enqueue("t")
        assert inserted(database) == [raised.value.id]

    def test_an_unavailable_server_after_the_repeat_is_an_unknown_outcome(
        self, app: Holdfast, database: Database, proxy: Proxy
    ) -> None:
        """COPY reports that the ids exist, and whose they are cannot be looked up."""
        proxy.cut_reply(COMMITTED["commit"])
        proxy.cut_after(lambda reply: b"C23505\0" in reply)
        with pytest.raises(OutcomeUnknown) as raised:
            app.engine.insert([new() for _ in range(80)])
        assert sorted(inserted(database)) == sorted(raised.value.ids)

    def test_an_app_closed_before_the_repeat_is_an_unknown_outcome(
        self, app: Holdfast, database: Database, proxy: Proxy
    ) -> None:
        def committed(reply: bytes) -> bool:
            if not COMMITTED["insert"](reply):
                return False
            proxy._refuses = True
            app.close()
            return True

        proxy.cut_reply(committed)
        with pytest.raises(OutcomeUnknown, match="closed") as raised:
            app.enqueue("t")
        assert inserted(database) == [raised.value.id]

    def test_a_trigger_that_refuses_the_repeat_is_an_unknown_outcome(
        self, app: Holdfast, database: Database, proxy: Proxy
    ) -> None:
        """Repeats are refused because of the row that the first try has written."""
        with psycopg.connect(database.url, autocommit=True) as own:
            own.execute(TRIGGER.replace("SCHEMA", database.schema).encode())
        try:
            proxy.cut_reply(COMMITTED["insert"])
            with pytest.raises(OutcomeUnknown, match="only one of them") as raised:
                app.enqueue("t")
            assert inserted(database) == [raised.value.id]
        finally:
            with psycopg.connect(database.url, autocommit=True) as own:
                own.execute(f"DROP FUNCTION {database.schema}.only_one() CASCADE".encode())


TRIGGER = """
CREATE FUNCTION SCHEMA.only_one() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM SCHEMA.jobs) THEN RAISE EXCEPTION 'only one of them'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER only_one BEFORE INSERT ON SCHEMA.jobs
FOR EACH ROW EXECUTE FUNCTION SCHEMA.only_one();
"""


class TestKeys:
    """A repeat of what has changed a live job may find that job finished, and would add another one."""

    @pytest.mark.parametrize("policy", ["replace", "debounce"])
    def test_an_insert_that_changes_a_live_job_is_not_repeated(
        self, app: Holdfast, database: Database, proxy: Proxy, policy: Any
    ) -> None:
        task = app.task(name="t")(lambda n: n)
        first = task.using(key="k").enqueue(n=1)
        changed: list[int] = []

        def committed(reply: bytes) -> bool:
            if not COMMITTED["commit"](reply):
                return False
            with psycopg.connect(database.url) as own:  # it finishes, and is pruned
                sql = f"DELETE FROM {database.schema}.jobs WHERE id = %s RETURNING payload"
                changed.extend(row[0]["n"] for row in own.execute(sql.encode(), [first.id]))
            return True

        proxy.cut_reply(committed)
        with pytest.raises(OutcomeUnknown, match="are not sent again") as raised:
            task.using(key="k", on_conflict=policy).enqueue(n=2)
        assert raised.value.id
        assert changed == [2]
        assert inserted(database) == []

    @pytest.mark.parametrize("policy", ["existing", "raise"])
    def test_an_insert_that_changes_no_live_job_is_repeated(
        self, app: Holdfast, database: Database, proxy: Proxy, policy: Any
    ) -> None:
        proxy.cut_reply(COMMITTED["commit"])
        job = app.enqueue("t", key="k", on_conflict=policy)
        assert job.created
        assert inserted(database) == [job.id]


class TestGroups:
    """Requests that are written together, as the leader of a group does it."""

    def test_after_a_refusal_the_leader_waits_for_one_request_alone(
        self, database: Database, proxy: Proxy
    ) -> None:
        """One of them is refused, so that each is written alone. Then the server falls silent."""
        engine = engine_through(proxy, database, timeout=20)
        jobs = [new(payload=f'{{"n":"mark {number}"}}') for number in range(5)]
        jobs.append(new(payload='{"n":"bad"}'))
        with psycopg.connect(database.url, autocommit=True) as own:
            own.execute(
                f"ALTER TABLE {database.schema}.jobs ADD CONSTRAINT no_bad"
                " CHECK (payload::text NOT LIKE '%bad%')".encode()
            )
        sent: list[int] = []

        def is_alone(request: bytes) -> bool:
            marks = [number for number in range(5) if f"mark {number}".encode() in request]
            sent.extend(marks if len(marks) == 1 else [])
            return marks in ([1], [2], [3], [4])

        proxy.stall_at(is_alone)
        group = [Request[Any, Any]([job], time.monotonic() + 3) for job in jobs]
        try:
            engine._insert_group(group)
        finally:
            with psycopg.connect(database.url, autocommit=True) as own:
                own.execute(f"ALTER TABLE {database.schema}.jobs DROP CONSTRAINT no_bad".encode())
        assert set(sent) == {0, 1}
        assert group[0].outcome()[0].created
        for request in group[1:]:
            with pytest.raises(OutcomeUnknown):
                request.outcome()

    def test_the_lookup_of_followers_counts_against_the_deadline(
        self, database: Database, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with closing(engine_through(proxy, database, timeout=30)) as engine:
            engine.open()
            calls = watched_calls(engine, monkeypatch)
            request = Request[Any, Any]([new()], time.monotonic() + 10)
            engine._insert_group([request])
            assert len(calls) == 3, "a new connection, a look, and an insert"
            assert all(deadline <= request.deadline for _, deadline in calls)


def engine_through(proxy: Proxy, database: Database, *, timeout: float) -> PostgresEngine:
    engine = open_engine(proxy.url(database.url), schema=database.schema, timeout=timeout)
    assert isinstance(engine, PostgresEngine)
    database.opened.append(engine)
    return engine


def watched_calls(
    one: Holdfast | PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[float, float]]:
    """When calls begin, and until when each may take."""
    engine = one.engine if isinstance(one, Holdfast) else one
    assert isinstance(engine, PostgresEngine)
    calls: list[tuple[float, float]] = []
    begin = engine._deadlines.begin

    def watch(connection: Any, deadline: float) -> None:
        calls.append((time.monotonic(), deadline))
        begin(connection, deadline)

    monkeypatch.setattr(engine._deadlines, "begin", watch)
    return calls


class TestSilence:
    """The connections stay open, and carry nothing: new ones work."""

    def test_an_enqueue_is_repeated_on_a_new_connection(
        self, database: Database, proxy: Proxy
    ) -> None:
        url = proxy.url(database.url)
        with Holdfast(url, schema=database.schema, database_timeout=15) as app:
            app.enqueue("t")
            proxy.stall()
            began = time.monotonic()
            assert app.enqueue("t").created
            assert time.monotonic() - began < 16
            assert app.enqueue("t").created
        assert len(inserted(database)) == 3

    def test_a_silent_server_is_reported_within_the_timeout(
        self, app: Holdfast, proxy: Proxy
    ) -> None:
        app.enqueue("t")
        proxy.stall(new=True)
        began = time.monotonic()
        with pytest.raises(OutcomeUnknown, match="did not tell within 6 s"):
            app.enqueue("t")
        assert time.monotonic() - began < 30
        proxy.flow()

    def test_a_worker_logs_a_silent_server_reconnects_and_continues(
        self, app: Holdfast, database: Database, proxy: Proxy, caplog: pytest.LogCaptureFixture
    ) -> None:
        @app.task
        def works(number: int) -> int:
            return number

        other = database.app()
        with app.worker():
            assert finished(app, works.enqueue(1)).result == 1
            proxy.stall()
            job = other.enqueue("works", {"number": 2})
            began = time.monotonic()
            assert finished(other, job, patience=40).result == 2
            assert time.monotonic() - began < 35
            until(lambda: "did not answer within" in caplog.text)

    def test_the_wait_in_a_group_counts_against_the_deadline(
        self, app: Holdfast, proxy: Proxy
    ) -> None:
        app.enqueue("t")
        proxy.stall(new=True)
        spent: list[float] = []

        def enqueue(number: int) -> None:
            time.sleep(0.2 * number)
            began = time.monotonic()
            with pytest.raises(Exception, match=r"did not|were in use|took more"):
                app.enqueue("t")
            spent.append(time.monotonic() - began)

        in_threads(6, enqueue)
        assert max(spent) < 30
        proxy.flow()


class TestIdleConnections:
    def test_idle_connections_are_closed(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connections, "UNUSED", 1.0)
        app = database.app(poll_interval=0.2)

        @app.task
        def works() -> None:
            time.sleep(0.01)

        with app.worker():
            in_threads(12, lambda _: [works.enqueue() for _ in range(5)])
            assert app.jobs.count() == 60
            until(lambda: sessions(database) <= 3, "an idle worker holds three at the most")
            assert finished(app, works.enqueue()).status == "completed"

    def test_a_server_at_its_connection_limit_is_shared(self, database: Database) -> None:
        """When the server has none left, those that we have are waited for."""
        role = f"crowded_{database.schema}"
        with psycopg.connect(database.url, autocommit=True) as own:
            own.execute(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 2".encode())
            own.execute(f"GRANT pg_read_all_data, pg_write_all_data TO {role}".encode())
            try:
                with closing(
                    open_engine(
                        database.url.replace("postgres@", f"{role}@"), schema=database.schema
                    )
                ) as engine:
                    assert isinstance(engine, PostgresEngine)

                    def work(_: int) -> int:
                        return engine._on_connection(
                            lambda one: len(one.execute("SELECT pg_sleep(0.2)").fetchall())
                        )

                    assert in_threads(8, work) == [1] * 8
                    assert engine._open()._most <= 2
            finally:
                own.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


def sessions(database: Database) -> int:
    with psycopg.connect(database.url) as own:
        row = own.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holdfast'"
            " AND datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


class TestPooler:
    """A pgbouncer in transaction mode that is not declared in the settings."""

    @pytest.mark.parametrize("more", ["", "ignore_startup_parameters = options,extra_float_digits"])
    def test_a_pooler_is_detected_and_no_job_is_lost(
        self, database: Database, caplog: pytest.LogCaptureFixture, more: str
    ) -> None:
        with (
            Pgbouncer(database.url, more=more) as pooler,
            Holdfast(pooler.url, schema=database.schema, poll_interval=0.1) as app,
        ):

            @app.task
            def works(number: int) -> int:
                return number

            jobs = [job for made in in_threads(8, lambda n: enqueue(works, n)) for job in made]
            with app.worker(concurrency=20), Holdfast(pooler.url, schema=database.schema) as other:
                jobs += [other.enqueue("works", {"number": number}) for number in range(100)]
                for job in jobs:
                    assert finished(app, job, patience=60).attempts == 1
            assert app.jobs.count(status="completed") == len(jobs)
            assert "reached through a connection pooler" in caplog.text

    @pytest.mark.parametrize("back", [True, False])
    def test_a_poolers_connection_broken_during_a_commit_loses_no_job(
        self, database: Database, proxy: Proxy, back: bool
    ) -> None:
        """The pooler tells of it with a SQLSTATE, which is not the server's: the job may be there."""

        def committed(reply: bytes) -> bool:
            if not COMMITTED["insert"](reply):
                return False
            proxy._refuses = True
            if back:
                threading.Timer(1.0, proxy.flow).start()
            return True

        more = "server_login_retry = 0.5\nquery_wait_timeout = 2"
        with (
            Pgbouncer(proxy.url(database.url), more=more) as pooler,
            Holdfast(pooler.url, schema=database.schema, database_timeout=8) as app,
        ):
            app.engine.open()
            proxy.cut_reply(committed)
            if back:
                assert app.enqueue("t").created
            else:
                with pytest.raises(OutcomeUnknown):
                    app.enqueue("t")
        assert len(inserted(database)) == 1

    def test_a_database_with_another_date_style_works_behind_a_pooler(
        self, database: Database, server: PostgresServer
    ) -> None:
        url = server.create_database()
        name = urlsplit(url).path.lstrip("/")
        with psycopg.connect(url, autocommit=True) as own:
            own.execute(f"ALTER DATABASE {name} SET datestyle TO 'SQL, DMY'".encode())
        with Holdfast(url, auto_migrate=True) as direct:
            direct.migrate()
        with Pgbouncer(url) as pooler, Holdfast(pooler.url, poll_interval=0.1) as app:

            @app.task
            def works(number: int) -> int:
                return number

            with app.worker():
                jobs = [works.enqueue(number) for number in range(20)]
                assert [finished(app, job).result for job in jobs] == list(range(20))
        server.drop_database(name)

    def test_a_direct_connection_is_not_taken_for_a_pooler(self, database: Database) -> None:
        engine = database.engine()
        assert isinstance(engine, PostgresEngine)
        engine.open()
        assert not engine._connector.pooled


def enqueue(task: Any, thread: int) -> list[Any]:
    return [task.enqueue(number=100 * thread + number) for number in range(25)]


class TestStandby:
    """The primary is away for a while, and what answers in its place is read-only."""

    def test_a_read_only_server_is_left_as_soon_as_the_primary_is_back(
        self, database: Database, server: PostgresServer, proxy: Proxy, app: Holdfast
    ) -> None:
        @app.task
        def works(number: int) -> int:
            return number

        primary = proxy.target
        with StandbyServer(server) as standby, app.worker():
            assert finished(app, works.enqueue(1)).result == 1
            standby.catch_up()
            parts = urlsplit(standby.url(urlsplit(database.url).path.lstrip("/")))
            proxy.target = (parts.hostname or "", parts.port or 0)
            proxy.cut()  # all clients reconnect, to the standby
            with pytest.raises(DatabaseUnavailable, match="standby"):
                works.enqueue(2)
            proxy.target = primary  # connections to the standby stay as they are
            job = works.enqueue(3)
            assert finished(app, job).result == 3
