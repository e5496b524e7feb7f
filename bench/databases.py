"""The measured databases: files on a real disk, databases of a real server."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

from bench.holdfast_store import HoldfastStore
from bench.job_store import JobStore
from bench.raw_postgres import RawPostgres
from bench.raw_sqlite import RawSqlite
from holdfast import Holdfast
from tests.support.server import PostgresServer


def disk_folder() -> str:
    """Return a folder on a disk for temporary files. On a memory filesystem every sync is free, so the
    usual folder is used only if it is on the filesystem of the current folder."""
    usual = tempfile.gettempdir()
    return usual if os.stat(usual).st_dev == os.stat(".").st_dev else os.getcwd()


class SqliteDatabases:
    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()

    def path(self) -> Path:
        return self._folder / f"{next(self._numbers)}.db"

    def url(self) -> str:
        return f"sqlite:///{self.path()}"

    @contextmanager
    def raw(self) -> Iterator[JobStore]:
        path = self.path()
        _migrate(f"sqlite:///{path}")
        with closing(RawSqlite(path)) as store:
            yield store

    @contextmanager
    def holdfast(self) -> Iterator[JobStore]:
        with closing(HoldfastStore(self.url())) as store:
            yield store


class PostgresDatabases:
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
    def raw(self) -> Iterator[JobStore]:
        with self.url() as url:
            _migrate(url)
            with closing(RawPostgres(url)) as store:
                yield store

    @contextmanager
    def holdfast(self) -> Iterator[JobStore]:
        with self.url() as url, closing(HoldfastStore(url)) as store:
            yield store


@contextmanager
def open_sqlite() -> Iterator[SqliteDatabases]:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=disk_folder()) as folder:
        yield SqliteDatabases(Path(folder))


@contextmanager
def open_postgres() -> Iterator[PostgresDatabases]:
    with PostgresServer() as server:
        yield PostgresDatabases(server)


def _migrate(url: str) -> None:
    with Holdfast(url) as app:
        app.migrate()
