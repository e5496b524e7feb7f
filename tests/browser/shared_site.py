"""One site for each engine, with a worker, shared by the tests of a module: sites start slowly, and
these tests look at their own jobs only. A module imports these fixtures to override those of
conftest.py."""

import threading
from collections.abc import Iterator

import psycopg
import pytest

from tests.browser.application import GATES
from tests.browser.site import Site, make_site, new
from tests.conftest import Database
from tests.support import audit


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    if request.param == "sqlite":
        yield from _closing(_embedded(tmp_path_factory))
        return
    made = Database("postgres", request.getfixturevalue("postgres_url"), f"test_{new()}", [])
    yield from _closing(made)
    with psycopg.connect(made.url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {made.schema} CASCADE")


@pytest.fixture(scope="module", params=["sqlite"])
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """For tests that depend on the browser and not on the engine."""
    yield from _closing(_embedded(tmp_path_factory))


def _embedded(folders: pytest.TempPathFactory) -> Database:
    return Database("sqlite", f"sqlite:///{folders.mktemp('site')}/jobs.db", "holdfast", [])


def _closing(database: Database) -> Iterator[Database]:
    yield database
    for opened in database.opened:
        opened.close()


@pytest.fixture(scope="module")
def site(database: Database) -> Iterator[Site]:
    with make_site(database) as site:
        yield site


@pytest.fixture(scope="module")
def live(site: Site) -> Iterator[Site]:
    """A site with a worker."""
    with site.app.worker(queues="default=8,media=8", grace=5):
        yield site
        GATES.open_all()


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """As in the other tests, but once for a module: its site and its worker serve all of its tests."""
    yield
    opened, audit.opened[:] = list(audit.opened), []
    assert opened == [], f"SQLite files were opened outside SQLite: {opened[:3]}"
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("holdfast")]
    assert left == [], f"threads left running: {left}"
