"""Fixtures: a real PostgreSQL for the session, a fresh database for each test, and a check that
nothing is left behind. `database` is parametrised: a test that takes it runs on both engines."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.core.clock import Clock, FakeClock
from holdfast.engine.engine import Engine
from holdfast.engine.open import open_engine
from tests.support import audit
from tests.support.databases import Schemas, Template
from tests.support.server import PostgresServer
from tests.support.xdist_scheduler import FileGroupScheduling

audit.install()
# A shell that starts this process in the background lets it and its children ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True)
class Database:
    """An empty database of one of the engines."""

    kind: str  #: "sqlite" or "postgres"
    url: str
    schema: str
    opened: list[Any]

    @property
    def path(self) -> Path:
        return Path(self.url.removeprefix("sqlite:///"))

    def engine(self, clock: Clock | None = None, **options: Any) -> Engine:
        options = {"auto_migrate": True, "schema": self.schema, **options}
        engine = open_engine(self.url, clock=clock, **options)
        self.opened.append(engine)
        return engine

    def app(self, **options: Any) -> Holdfast:
        app = Holdfast(self.url, **{"auto_migrate": True, "schema": self.schema, **options})
        self.opened.append(app)
        return app


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_url(server: PostgresServer) -> str:
    return server.url()


@pytest.fixture(scope="session")
def schemas(postgres_url: str) -> Iterator[Schemas]:
    with contextlib.closing(Schemas(postgres_url)) as schemas:
        yield schemas


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    return Template(tmp_path_factory.mktemp("template"))


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty database with tables."""
    if request.param == "sqlite":
        request.getfixturevalue("template").copy(tmp_path / "jobs.db")
        yield from _closing(Database("sqlite", f"sqlite:///{tmp_path}/jobs.db", "holdfast", []))
        return
    schemas: Schemas = request.getfixturevalue("schemas")
    schema = schemas.take()
    try:
        yield from _closing(Database("postgres", schemas.url, schema, []))
    finally:
        schemas.put_back(schema)


@pytest.fixture(params=["sqlite", "postgres"])
def bare_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty database without tables."""
    if request.param == "sqlite":
        yield from _closing(Database("sqlite", f"sqlite:///{tmp_path}/jobs.db", "holdfast", []))
        return
    schema = f"test_{uuid4().hex[:12]}"
    url = request.getfixturevalue("postgres_url")
    try:
        yield from _closing(Database("postgres", url, schema, []))
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


def _closing(database: Database) -> Iterator[Database]:
    try:
        yield database
    finally:
        for opened in database.opened:
            opened.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def engine(database: Database, clock: FakeClock) -> Engine:
    """An engine whose time moves only by `clock.advance`."""
    return database.engine(clock)


@pytest.fixture
def app(database: Database) -> Holdfast:
    return database.app()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """No thread of ours outlives its test, and no code opened a SQLite file outside SQLite."""
    yield
    opened, audit.opened[:] = list(audit.opened), []
    assert opened == [], f"SQLite files were opened outside SQLite: {opened[:3]}"
    names = (thread.name for thread in threading.enumerate())
    # An open engine has a thread for deadlines, and some modules share an engine between their tests.
    left = [name for name in names if name.startswith("holdfast") and name != "holdfast-deadlines"]
    assert left == [], f"threads left running: {left}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileGroupScheduling | None:
    """For `--dist loadgroup`."""
    return FileGroupScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The audit over the whole suite: no code opened a SQLite file outside SQLite."""
    if audit.opened:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        with contextlib.suppress(Exception):
            reporter.write_sep("=", "SQLite files were opened outside SQLite", red=True)
            for place in audit.opened[:5]:
                reporter.write_line(place)
