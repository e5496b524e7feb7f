"""Tables of an older release are upgraded statement by statement, and resumed after a kill."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from holdfast import SchemaError
from holdfast.engine.open import open_engine
from tests.conftest import Database
from tests.engine.migrations.killed_migration import KILLED
from tests.support.jobs import insert
from tests.support.upgrades import forget_upgrades, make_first_tables, plain, shape

UPGRADE = ["0002_idempotency_and_deaths"]


@pytest.fixture
def old_database(bare_database: Database) -> Database:
    """The tables of the release that knew migration 0001 alone."""
    make_first_tables(bare_database.kind, bare_database.url, bare_database.schema)
    return bare_database


@contextmanager
def copies(database: Database, folder: Path) -> Iterator[Any]:
    """A maker of further databases beside one, dropped in the end."""
    schemas: list[str] = []

    def make() -> tuple[str, str, str]:
        if database.kind == "sqlite":
            return "sqlite", f"sqlite:///{folder}/{uuid4().hex}.db", "holdfast"
        schemas.append(f"test_{uuid4().hex[:12]}")
        return "postgres", database.url, schemas[-1]

    try:
        yield make
    finally:
        for schema in schemas:
            with plain("postgres", database.url) as connection:
                connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


def migrated(kind: str, url: str, schema: str) -> list[str]:
    engine = open_engine(url, schema=schema, auto_migrate=False)
    try:
        return engine.migrate()
    finally:
        engine.close()


def test_a_migration_killed_at_any_statement_is_resumed(
    bare_database: Database, tmp_path: Path
) -> None:
    with (
        copies(bare_database, tmp_path) as make,
        subprocess.Popen(
            [sys.executable, "-m", "tests.engine.migrations.killed_migration"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as dying,
    ):
        assert dying.stdin is not None
        assert dying.stdout is not None
        make_first_tables(*(straight := make()))
        assert migrated(*straight) == UPGRADE
        expected = shape(*straight)
        deaths = 0
        # On SQLite COMMIT is a statement, too: after one is before the next.
        for when in ("before",) if bare_database.kind == "sqlite" else ("before", "after"):
            number = 0
            died = True
            while died:
                number += 1
                make_first_tables(*(place := make()))
                before = shape(*place)
                print(when, number, *place[1:], file=dying.stdin, flush=True)
                died = int(dying.stdout.readline()) == KILLED
                if died and shape(*place)[-1] != expected[-1]:
                    assert shape(*place)[-1] == before[-1], "recorded before its end"
                    assert migrated(*place) == UPGRADE, (when, number)
                assert migrated(*place) == []
                assert shape(*place) == expected, (when, number)
                deaths += died
        dying.stdin.close()
    assert deaths >= 12  # five statements and the record, before and after each


def test_many_processes_upgrade_concurrently(old_database: Database) -> None:
    engines = [old_database.engine(auto_migrate=None) for _ in range(10)]
    with ThreadPoolExecutor(10) as pool:
        done = list(pool.map(lambda engine: engine.migrate(), engines))
    assert sorted(done) == [[]] * 9 + [UPGRADE]
    assert all(insert(engine).created for engine in engines)


def test_every_statement_of_an_upgrade_can_be_repeated(
    bare_database: Database, tmp_path: Path
) -> None:
    place = (bare_database.kind, bare_database.url, bare_database.schema)
    migrated(*place)
    expected = shape(*place)
    with copies(bare_database, tmp_path) as make:
        make_first_tables(*(upgraded := make()))
        migrated(*upgraded)
        assert shape(*upgraded) == expected, (
            "an upgrade makes the same tables as a new database has"
        )
    forget_upgrades(*place)
    assert migrated(*place) == UPGRADE
    assert shape(*place) == expected


def test_new_code_refuses_old_tables_until_they_are_migrated(old_database: Database) -> None:
    early = old_database.engine(auto_migrate=False)
    with pytest.raises(
        SchemaError, match=r"missing: 0002_idempotency_and_deaths\): run 'holdfast migrate'"
    ):
        insert(early)
    assert old_database.engine(auto_migrate=False).migrate() == UPGRADE
    assert insert(early).created
