"""Health includes a committed write: a database that can only be read is not healthy."""

import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from uuid import uuid4

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.monitoring.health import Health
from tests.cli.command import HOLDFAST, Command, environment
from tests.cli.test_health import live, problem
from tests.conftest import Database
from tests.support.jobs import execute
from tests.support.web import Site

FULL = """
CREATE FUNCTION {schema}.full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100';
END $$;
CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON {schema}.{table}
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.full_disk();
"""
# In a process of its own: the limit is of a process. SQLite cannot make its log longer, as on a disk
# that is full.
LIMITED = """
import resource, sqlite3, sys, time
from holdfast import Holdfast

app = Holdfast(sys.argv[1])
first = app.health()
with sqlite3.connect(sys.argv[2]) as other:
    other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
time.sleep(float(sys.argv[3]))
resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
full = app.health()
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
deadline = time.monotonic() + 30
while not app.health().ok and time.monotonic() < deadline:
    time.sleep(0.1)
print(first.ok, full.ok, app.health().ok)
print(*full.problems)
print(*(check.name for check in full.checks if not check.ok))
app.close()
"""


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[Database]:
    """A schema that a test may spoil."""
    database = Database("postgres", postgres_url, f"test_{uuid4().hex[:12]}", [])
    try:
        yield database
    finally:
        for opened in database.opened:
            opened.close()
        with psycopg.connect(postgres_url, autocommit=True) as admin:
            admin.execute(f"DROP SCHEMA IF EXISTS {database.schema} CASCADE".encode())


@contextmanager
def full_disk(database: Database, table: str = "probes") -> Iterator[None]:
    with psycopg.connect(database.url, autocommit=True) as admin:
        admin.execute(FULL.format(schema=database.schema, table=table).encode())
        yield
        admin.execute(f"DROP FUNCTION {database.schema}.full_disk() CASCADE".encode())


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def failed(health: Health) -> list[str]:
    return [check.name for check in health.checks if not check.ok]


def test_the_check_of_a_sound_database(database: Database):
    health = database.app().health()
    [check] = [check for check in health.checks if check.name == "writes"]
    assert (check.ok, check.detail) == (True, "the database commits writes")


def test_a_full_disk_under_sqlite(local: Command):
    database = local.database
    database.engine().open()
    kept = 11.0  # longer than an answer is kept
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, database.url, str(database.path), str(kept)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    oks, problems, checks = done.stdout.splitlines()
    assert oks == "True False True"
    assert problems.startswith("the database can be read, and does not commit a write")
    assert checks == "writes"


def test_the_command_on_a_full_disk_under_sqlite(local: Command):
    database = local.database
    database.engine().counts()  # its files are there, and its log is empty

    def limit() -> None:
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))

    words = [*HOLDFAST, "health", "--url", database.url]
    full = subprocess.run(
        words, env=environment(), capture_output=True, text=True, timeout=60, preexec_fn=limit
    )
    assert (full.returncode, "does not commit a write" in full.stdout) == (1, True), full
    assert subprocess.run(words, env=environment(), timeout=60).returncode == 0


def test_a_full_disk_under_postgres(postgres: Database):
    database = postgres
    app = database.app()
    assert app.health().ok
    with full_disk(database):
        assert app.health().ok  # the answer is kept for ten seconds
        late = database.app()
        told = problem(late.health())
        assert "does not commit a write" in told
        assert "No space left on device" in told
        assert failed(late.health()) == ["writes"]
        with closing(Site(late)) as site:
            caller = site.caller()
            assert caller.get("//health").status_code == 503
            assert caller.get("//ready").status_code == 200  # it is asked for a read only
        until(lambda: not app.health().ok, "it is noticed")
    until(lambda: app.health().ok and late.health().ok, "it is healthy again")


def test_a_user_who_may_only_read(postgres: Database):
    database, role = postgres, f"reader_{uuid4().hex[:8]}"
    database.engine().open()
    with psycopg.connect(database.url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN".encode())
        admin.execute(f"GRANT USAGE ON SCHEMA {database.schema} TO {role}".encode())
        tables = f"ALL TABLES IN SCHEMA {database.schema}"
        admin.execute(f"GRANT SELECT ON {tables} TO {role}".encode())
        try:
            url = database.url.replace("postgres@", f"{role}@")
            with Holdfast(url, schema=database.schema) as app:
                told = app.health()
                assert "permission denied for table probes" in problem(told)
                assert failed(told) == ["writes"]
                admin.execute(f"GRANT INSERT, UPDATE ON {tables} TO {role}".encode())
                until(lambda: app.health().ok, "it may write")
        finally:
            admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


def test_one_write_in_ten_seconds_for_all_who_ask(database: Database):
    app = database.app()
    probes = "holdfast_probes" if database.kind == "sqlite" else f"{database.schema}.probes"
    assert app.health().ok
    [(first,)] = execute(app.engine, f"SELECT at FROM {probes}")
    asking = [threading.Thread(target=app.health) for _ in range(8)]
    for one in asking:
        one.start()
    for one in asking:
        one.join()
    assert execute(app.engine, f"SELECT at FROM {probes}") == [(first,)]
    assert database.app().health().ok  # another application of this process asks for itself
    [(second,)] = execute(app.engine, f"SELECT at FROM {probes}")
    assert second > first


def test_a_worker_that_cannot_write(database: Database):
    app = database.app()
    live(app.engine, cannot_write_for=75.2)
    told = app.health()
    assert "could not write to the database for 75 s" in problem(told)
    assert failed(told) == ["writes"]
    live(app.engine, cannot_write_for=None)
    assert app.health().ok
