"""Where the measured databases live: files on a real disk, databases of a real server."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

from bench.ours import Ours
from bench.raw_postgres import RawPostgres
from bench.raw_sqlite import RawSqlite
from bench.store import Store
from holdfast import Holdfast
from tests.support.server import PostgresServer


def real_folder() -> str:
    """Where temporary files go: memory that looks like a disk would make every sync free, so the
    usual folder only counts if it is on the filesystem that we stand on."""
    usual = tempfile.gettempdir()
    return usual if os.stat(usual).st_dev == os.stat(".").st_dev else os.getcwd()


class SqlitePlace:
    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()

    def path(self) -> Path:
        return self._folder / f"{next(self._numbers)}.db"

    def url(self) -> str:
        return f"sqlite:///{self.path()}"

    @contextmanager
    def raw(self) -> Iterator[Store]:
        path = self.path()
        _migrate(f"sqlite:///{path}")
        with closing(RawSqlite(path)) as store:
            yield store

    @contextmanager
    def ours(self) -> Iterator[Store]:
        with closing(Ours(self.url())) as store:
            yield store


class PostgresPlace:
    name = "postgres"

    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    @contextmanager
    def url(self) -> Iterator[str]:
        url = self._server.create_database()
        try:
            yield url
        finally:
            self._server.drop_database(url.rpartition("/")[2])

    @contextmanager
    def raw(self) -> Iterator[Store]:
        with self.url() as url:
            _migrate(url)
            with closing(RawPostgres(url)) as store:
                yield store

    @contextmanager
    def ours(self) -> Iterator[Store]:
        with self.url() as url, closing(Ours(url)) as store:
            yield store


@contextmanager
def open_sqlite() -> Iterator[SqlitePlace]:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=real_folder()) as folder:
        yield SqlitePlace(Path(folder))


@contextmanager
def open_postgres() -> Iterator[PostgresPlace]:
    with PostgresServer() as server:
        yield PostgresPlace(server)


def _migrate(url: str) -> None:
    with Holdfast(url) as app:
        app.migrate()
