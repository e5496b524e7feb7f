"""The filled tables, made once for the session: a large world, and a small one to compare with."""

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
from tests.plans.explained import Explained
from tests.plans.postgres_probe import Explain, Kept, Params, PostgresProbe, ProbeConnection
from tests.plans.world import World, fill_postgres, fill_sqlite
from tests.support.server import PostgresServer

VACUUMED = ("jobs", "attempts", "logs", "workers", "edges", "workflows", "events", "audit")
LARGE, SMALL, TINY = 500_000, 50_000, 10


@dataclass(frozen=True)
class SqliteWorld:
    path: Path
    world: World
    statistics: list[tuple[str, str, str]]  #: what ANALYZE found, and was made to forget


class SqliteWorlds(dict[int, SqliteWorld]):
    """By their size, each made when it is asked for."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        super().__init__()
        self._folders = folders

    def __missing__(self, size: int) -> SqliteWorld:
        world, path = World(size), self._folders.mktemp("plans") / "jobs.db"
        fill_sqlite(path, world)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("ANALYZE")
            found = connection.execute("SELECT tbl, idx, stat FROM sqlite_stat1").fetchall()
            connection.execute("DELETE FROM sqlite_stat1")
        made = self[size] = SqliteWorld(path, world, found)
        return made


@pytest.fixture(scope="session")
def sqlite_worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteWorlds]:
    worlds = SqliteWorlds(tmp_path_factory)
    yield worlds
    for filled in worlds.values():
        for file in filled.path.parent.iterdir():
            file.unlink()  # half a gigabyte, which pytest would keep for three runs


@dataclass(frozen=True)
class PostgresWorlds:
    url: str
    large: World
    small: World


@pytest.fixture(scope="session")
def postgres_worlds(server: PostgresServer) -> Iterator[PostgresWorlds]:
    """Schemas `large` and `small`, with the statistics that autovacuum would have gathered."""
    url = server.create_database()
    worlds = PostgresWorlds(url, World(LARGE), World(SMALL))
    for schema, world in (("large", worlds.large), ("small", worlds.small)):
        make_tables(url, schema)
        with psycopg.connect(url, autocommit=True) as connection:
            fill_postgres(connection, schema, world)
            for table in VACUUMED:
                connection.execute(f"VACUUM (ANALYZE) {schema}.{table}")
    yield worlds
    server.drop_database(url.rpartition("/")[2])


def make_tables(url: str, schema: str) -> None:
    """By the library's migrations; without autovacuum, which would come when it likes."""
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


class Grown:
    """Tables that were empty when every statement was prepared on them, and are full now."""

    def __init__(self, connection: ProbeConnection, world: World) -> None:
        self._connection = connection
        self._world = world
        self._plans = Kept()
        self.when_empty: list[Explained] = []

    def prepare(self, sent: dict[str, Params]) -> None:
        for sql, params in sent.items():
            here = re.sub(r"\bsmall(?=[._])", "grown", sql)
            self.when_empty.append(self._plans.prepare(self._connection, here, params))

    def with_kept_plans(self, case: Case) -> list[Explained]:
        return self._run(case, self._plans.explain)

    def without_statistics(self, case: Case, plan: Explain) -> list[Explained]:
        """Planned now; but nothing has been counted since the tables were empty."""
        return self._run(case, plan)

    def _run(self, case: Case, plan: Explain) -> list[Explained]:
        return PostgresProbe(self._connection, "grown", plan).run_case(case, self._world)


@pytest.fixture(scope="session")
def grown(postgres_worlds: PostgresWorlds) -> Iterator[Grown]:
    url, world = postgres_worlds.url, postgres_worlds.small
    make_tables(url, "grown")
    with contextlib.closing(ProbeConnection.open(url, library=True)) as connection:
        connection.plainly("SET plan_cache_mode = force_generic_plan")
        grown = Grown(connection, world)
        grown.prepare(everything_sent(connection, world))
        with psycopg.connect(url, autocommit=True) as filling:
            fill_postgres(filling, "grown", world)
        yield grown


def everything_sent(connection: ProbeConnection, world: World) -> dict[str, Params]:
    """Every command that the cases send, with the parameters of one time."""
    sent: dict[str, Params] = {}

    def note(connection: object, sql: str, params: Params) -> dict[str, Any]:
        sent[sql] = params
        return {"Plan": {"Node Type": "", "Total Cost": 0.0}}

    for case in CASES:
        PostgresProbe(connection, "small", note).run_case(case, world)
    return sent
