"""The filled tables, made once for the session: a large dataset, and a small one to compare with."""

import contextlib
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.engine.open import open_engine
from tests.plans import access_cases, event_cases, log_cases, workflow_cases  # noqa: F401
from tests.plans.cases import CASES, Case
from tests.plans.dataset import Dataset, fill_postgres, fill_sqlite
from tests.plans.explained import Explained
from tests.plans.postgres_probe import Explain, Kept, Params, PostgresProbe, ProbeConnection
from tests.support.server import PostgresServer

VACUUMED = ("jobs", "attempts", "logs", "workers", "edges", "workflows", "events", "audit")
LARGE, SMALL, TINY = 500_000, 50_000, 10


@dataclass(frozen=True)
class SqliteDataset:
    path: Path
    dataset: Dataset
    statistics: list[tuple[str, str, str]]  #: what ANALYZE found; deleted from the database


class SqliteDatasets(dict[int, SqliteDataset]):
    """Datasets by size, made on first use."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        super().__init__()
        self._folders = folders

    def __missing__(self, size: int) -> SqliteDataset:
        dataset, path = Dataset(size), self._folders.mktemp("plans") / "jobs.db"
        fill_sqlite(path, dataset)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("ANALYZE")
            found = connection.execute("SELECT tbl, idx, stat FROM sqlite_stat1").fetchall()
            connection.execute("DELETE FROM sqlite_stat1")
        made = self[size] = SqliteDataset(path, dataset, found)
        return made


@pytest.fixture(scope="session")
def sqlite_datasets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteDatasets]:
    datasets = SqliteDatasets(tmp_path_factory)
    yield datasets
    for filled in datasets.values():
        for file in filled.path.parent.iterdir():
            file.unlink()  # half a gigabyte, which pytest would keep for three runs


@dataclass(frozen=True)
class PostgresDatasets:
    url: str
    large: Dataset
    small: Dataset


@pytest.fixture(scope="session")
def postgres_datasets(server: PostgresServer) -> Iterator[PostgresDatasets]:
    """Schemas `large` and `small`, with the statistics that autovacuum would have gathered."""
    url = server.create_database()
    datasets = PostgresDatasets(url, Dataset(LARGE), Dataset(SMALL))
    for schema, dataset in (("large", datasets.large), ("small", datasets.small)):
        make_tables(url, schema)
        with psycopg.connect(url, autocommit=True) as connection:
            fill_postgres(connection, schema, dataset)
            for table in VACUUMED:
                connection.execute(f"VACUUM (ANALYZE) {schema}.{table}")
    yield datasets
    server.drop_database(url.rpartition("/")[2])


def make_tables(url: str, schema: str) -> None:
    """Run the library's migrations, and disable autovacuum, which would run at random times."""
    with contextlib.closing(open_engine(url, schema=schema, auto_migrate=True)) as engine:
        engine.migrate()
    with psycopg.connect(url, autocommit=True) as connection:
        for table in (
            "jobs",
            "attempts",
            "logs",
            "workers",
            "queues",
            "keys",
            "limits",
            "rollups",
            "edges",
            "workflows",
            "events",
            "audit",
            "tokens",
        ):
            connection.execute(f"ALTER TABLE {schema}.{table} SET (autovacuum_enabled = false)")


class FilledAfterPrepare:
    """Tables that were empty when every statement was prepared, and were filled afterwards."""

    def __init__(self, connection: ProbeConnection, dataset: Dataset) -> None:
        self._connection = connection
        self._world = dataset
        self._plans = Kept()
        self.when_empty: list[Explained] = []

    def prepare(self, sent: dict[str, Params]) -> None:
        for sql, params in sent.items():
            here = re.sub(r"\bsmall(?=[._])", "grown", sql)
            self.when_empty.append(self._plans.prepare(self._connection, here, params))

    def with_kept_plans(self, case: Case) -> list[Explained]:
        return self._run(case, self._plans.explain)

    def without_statistics(self, case: Case, plan: Explain) -> list[Explained]:
        """Plan now, with the statistics of the empty tables."""
        return self._run(case, plan)

    def _run(self, case: Case, plan: Explain) -> list[Explained]:
        return PostgresProbe(self._connection, "grown", plan).run_case(case, self._world)


@pytest.fixture(scope="session")
def filled_after_prepare(postgres_datasets: PostgresDatasets) -> Iterator[FilledAfterPrepare]:
    url, dataset = postgres_datasets.url, postgres_datasets.small
    make_tables(url, "grown")
    with contextlib.closing(ProbeConnection.open(url, library=True)) as connection:
        connection.plainly("SET plan_cache_mode = force_generic_plan")
        filled_after_prepare = FilledAfterPrepare(connection, dataset)
        filled_after_prepare.prepare(everything_sent(connection, dataset))
        with psycopg.connect(url, autocommit=True) as filling:
            fill_postgres(filling, "grown", dataset)
        yield filled_after_prepare


def everything_sent(connection: ProbeConnection, dataset: Dataset) -> dict[str, Params]:
    """Return every command that the cases send, with sample parameters."""
    sent: dict[str, Params] = {}

    def note(connection: object, sql: str, params: Params) -> dict[str, Any]:
        sent[sql] = params
        return {"Plan": {"Node Type": "", "Total Cost": 0.0}}

    for case in CASES:
        PostgresProbe(connection, "small", note).run_case(case, dataset)
    return sent
