"""Migrations: forward only, mirrored, safe when many start at once, and honest about newer ones."""

import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from holdfast import SchemaError
from holdfast.engine import migrations
from tests.conftest import Database
from tests.support.jobs import execute, insert

ENGINES = Path(migrations.__file__).parent


def test_the_engines_have_the_same_migrations() -> None:
    names = [
        sorted(path.name for path in (ENGINES / engine / "migrations").glob("*.sql"))
        for engine in ("sqlite", "postgres")
    ]
    assert names[0] == names[1]
    numbers = [int(name[:4]) for name in names[0]]
    assert numbers == list(range(1, len(numbers) + 1))


def test_migrate_returns_what_it_applied_and_can_be_repeated(bare_database: Database) -> None:
    engine = bare_database.engine(auto_migrate=False)
    assert engine.migrate() == ["0001_initial", "0002_idempotency_and_deaths"]
    assert engine.migrate() == []
    assert bare_database.engine(auto_migrate=False).migrate() == []
    assert insert(engine).created


def test_without_tables_the_error_names_the_command(bare_database: Database) -> None:
    engine = bare_database.engine(auto_migrate=False)
    with pytest.raises(SchemaError, match=r"0001_initial.*run 'holdfast migrate'"):
        insert(engine)


def test_sqlite_migrates_automatically_and_postgresql_only_on_request(
    bare_database: Database,
) -> None:
    engine = bare_database.engine(auto_migrate=None)
    if bare_database.kind == "sqlite":
        assert insert(engine).created
    else:
        with pytest.raises(SchemaError, match="auto_migrate=True"):
            insert(engine)


SCRIPT = """
import sys
from holdfast import Holdfast
url, schema = sys.argv[1:]
with Holdfast(url, schema=schema, auto_migrate=True) as app:
    sys.stdin.readline()
    app.enqueue("t")
print("ok")
"""


def test_ten_processes_migrate_concurrently(bare_database: Database) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, bare_database.url, bare_database.schema],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(10)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    results = [process.communicate(timeout=60) for process in processes]
    assert [out for out, _ in results] == ["ok\n"] * 10, [err for _, err in results]
    assert bare_database.engine().counts()["pending"] == 10
    assert execute(bare_database.engine(), "SELECT number FROM {migrations}") == [(1,), (2,)]


@pytest.mark.parametrize("breaking", [True, False])
def test_an_older_release_works_on_a_newer_schema(bare_database: Database, breaking: bool) -> None:
    engine = bare_database.engine()
    insert(engine)
    applied = 0 if bare_database.kind == "sqlite" else "2031-01-01"
    execute(
        engine,
        "INSERT INTO {migrations} VALUES (99, 'from_the_future', :breaking, :applied)",
        breaking=breaking,
        applied=applied,
    )
    older = bare_database.engine()
    if breaking:
        with pytest.raises(
            SchemaError, match=r"0099_from_the_future.*upgrade the holdfast package"
        ):
            insert(older)
        with pytest.raises(SchemaError, match="newer release"):
            bare_database.engine().migrate()
    else:
        assert insert(older).created
    engine.close()
    assert bare_database.engine is not None


def test_the_printed_sql_equals_the_applied_sql(bare_database: Database) -> None:
    text = bare_database.engine().migrations_sql()
    assert len(re.findall(r"CREATE TABLE", text)) >= 4
    assert "{" not in text
    if bare_database.kind == "postgres":
        assert f"CREATE SCHEMA IF NOT EXISTS {bare_database.schema};" in text


def test_applying_the_printed_sql_migrates(bare_database: Database) -> None:
    text = bare_database.engine().migrations_sql()
    if bare_database.kind == "sqlite":
        with closing(sqlite3.connect(bare_database.url.removeprefix("sqlite:///"))) as mine:
            mine.executescript(text)
    else:
        assert "psql -v ON_ERROR_STOP=1 -f FILE" in text
        # As psql does: an index cannot be built CONCURRENTLY in a transaction.
        with psycopg.connect(bare_database.url, autocommit=True) as connection:
            for command in migrations.commands(text):
                connection.execute(command.encode())
    engine = bare_database.engine(auto_migrate=False)
    assert insert(engine).created
    assert engine.migrate() == []
    assert [name for name, _ in engine.doctor.measure().migrations] == [
        "0001_initial",
        "0002_idempotency_and_deaths",
    ]


def test_a_migration_must_declare_whether_it_breaks_compatibility() -> None:
    for path in ENGINES.glob("*/migrations/*.sql"):
        assert path.read_text().splitlines()[0] in ("-- breaking: no", "-- breaking: yes"), path


def test_commands_keep_a_trigger_in_one_piece() -> None:
    found = migrations.commands(
        "-- a comment; with a semicolon\nCREATE TABLE a (x);\nCREATE TRIGGER t AFTER DELETE ON a\n"
        "BEGIN\n  DELETE FROM b;\n  DELETE FROM c;\nEND;\nCREATE TABLE d (y);\n"
    )
    assert [command.split("(")[0].split()[1] for command in found] == ["TABLE", "TRIGGER", "TABLE"]
    assert found[1].endswith("END")
