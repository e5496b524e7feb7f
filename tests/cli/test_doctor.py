"""`holdfast doctor`: what is examined, and what is said about it."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.cli.commands.database import examine
from holdfast.engine.open import open_engine
from holdfast.engine.postgres import doctor as postgres
from holdfast.engine.records import Finding
from holdfast.engine.sqlite import doctor as sqlite
from tests.cli.command import Command, make_empty
from tests.conftest import Database
from tests.support.jobs import execute


def levels(findings: list[Finding]) -> dict[str, str]:
    return {finding.subject: finding.level for finding in findings}


def text(findings: list[Finding], subject: str) -> str:
    return next(finding.text for finding in findings if finding.subject == subject)


def test_a_good_database(command: Command):
    examined = command("doctor", "--json")
    assert examined.code == 0
    found = {line["subject"]: line["level"] for line in examined.json}
    assert all(list(line) == ["level", "subject", "text"] for line in examined.json)
    assert "fail" not in found.values()
    assert found["schema"] == "ok"
    wanted = {
        "sqlite": {"SQLite", "journal", "synchronous", "filesystem", "file", "disk"},
        "postgres": {"server", "fsync", "synchronous_commit", "autovacuum", "connections", "clock"},
    }
    assert wanted[command.database.kind] | {"Holdfast", "Python", "workdir"} <= set(found)
    lines = command("doctor").out.splitlines()
    assert lines[1].startswith("ok    Python: 3.")
    assert "ok" in command.terminal("doctor").out


def test_tables_that_are_missing(bare_database: Database, tmp_path: Path):
    make_empty(bare_database)
    examined = Command(bare_database, tmp_path)("doctor")
    assert examined.code == 1
    assert "fail  schema:" in examined.out
    assert "holdfast migrate" in examined.out


def test_tables_of_a_newer_release(command: Command, database: Database):
    engine = database.engine()
    values = "9999, 'future', (1 = 1), 0" if database.kind == "sqlite" else "9999, 'future', true"
    execute(engine, f"INSERT INTO {{migrations}} VALUES ({values})")
    examined = command("doctor")
    assert examined.code == 1
    assert "upgrade the holdfast package" in examined.out


@pytest.mark.parametrize("url", ["sqlite:///none.db", "postgresql://127.0.0.1:1/x"])
def test_an_absent_database(local: Command, url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(local.cwd)
    absent = local("doctor", HOLDFAST_URL=url)
    assert absent.code == 1
    assert "fail" in absent.out
    assert not (local.cwd / "none.db").exists()


def test_the_log_reset_bug():
    affected = [(3, 40, 1), (3, 44, 5), (3, 45, 0), (3, 50, 6), (3, 51, 0), (3, 51, 2)]
    assert all(sqlite.has_reset_bug(version) for version in affected)
    sound = [(3, 44, 6), (3, 44, 9), (3, 50, 7), (3, 51, 3), (3, 52, 0), (4, 0, 0)]
    assert not any(sqlite.has_reset_bug(version) for version in sound)
    finding = sqlite._version((3, 40, 1))
    assert (finding.level, "wal_autocheckpoint" in finding.text) == ("warn", True)
    assert sqlite._version((3, 34, 0)).level == "fail"
    assert sqlite._version((3, 51, 3)).level == "ok"


def examined(tmp_path: Path, query: str = "") -> list[Finding]:
    engine = open_engine(f"sqlite:///{tmp_path}/jobs.db{query}")
    try:
        engine.open()
        return engine.doctor.diagnose()
    finally:
        engine.close()


def test_sqlite_that_may_forget(tmp_path: Path):
    assert levels(examined(tmp_path, "?synchronous=normal"))["synchronous"] == "warn"


def test_sqlite_that_everybody_may_write(tmp_path: Path):
    examined(tmp_path)
    os.chmod(tmp_path / "jobs.db", 0o666)
    found = examined(tmp_path)
    assert levels(found)["file"] == "warn"
    assert "chmod o-w" in text(found, "file")


def test_sqlite_that_everybody_may_read(tmp_path: Path):
    assert levels(examined(tmp_path))["file"] == "ok"
    os.chmod(tmp_path / "jobs.db", 0o644)
    found = examined(tmp_path)
    assert levels(found)["file"] == "warn"
    assert "chmod o-r" in text(found, "file")


def test_sqlite_that_is_no_database(tmp_path: Path):
    (tmp_path / "jobs.db").mkdir()
    engine = open_engine(f"sqlite:///{tmp_path}/jobs.db")
    assert levels(engine.doctor.diagnose())["database"] == "fail"
    engine.close()


def test_sqlite_in_another_journal_mode(tmp_path: Path):
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        connection.execute("CREATE TABLE other (id)")
    engine = open_engine(f"sqlite:///{tmp_path}/jobs.db", auto_migrate=False)
    found = levels(engine.doctor.diagnose())
    engine.close()
    assert (found["journal"], found["schema"]) == ("warn", "fail")
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:  # nothing was changed
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("other",)]


def test_filesystems(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    mounts = tmp_path / "mounts"
    monkeypatch.setattr(sqlite, "_MOUNTS", mounts)
    mounts.write_text("1 1 0:1 / / rw - nfs4 server:/ rw\n")
    assert sqlite._filesystem(tmp_path / "jobs.db", False).level == "fail"
    assert sqlite._filesystem(tmp_path / "jobs.db", True).level == "warn"
    mounts.write_text("1 1 0:1 / / rw - tmpfs tmpfs rw\n")
    assert sqlite._filesystem(tmp_path / "jobs.db", False).level == "warn"
    mounts.write_text("1 1 0:1 / / rw - ext4 /dev/sda rw\n")
    assert sqlite._filesystem(tmp_path / "jobs.db", False) == ("ok", "filesystem", "ext4")


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def free(amount: int) -> dict[str, str]:
        usage = type("Usage", (), {"free": amount})
        monkeypatch.setattr("shutil.disk_usage", lambda folder: usage)
        return levels(list(sqlite._folder(tmp_path / "jobs.db")))

    assert free(10 * 1024**2) == {"disk": "fail"}
    assert free(500 * 1024**2) == {"disk": "warn"}
    assert free(50 * 1024**3) == {"disk": "ok"}


def test_folders(tmp_path: Path):
    assert levels(list(sqlite._folder(tmp_path / "none" / "jobs.db"))) == {"folder": "fail"}


def test_the_scratch_folder(tmp_path: Path):
    found = levels(list(examine(tmp_path / "deep" / "down")))
    assert found["workdir"] == "ok"
    assert not (tmp_path / "deep").exists()


class Rows:
    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        self._rows = rows

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows


class Told:
    """A connection that answers as a badly kept server would."""

    def __init__(self, connection: Any, answers: dict[str, list[tuple[Any, ...]]]) -> None:
        self._connection = connection
        self._answers = answers
        self.info = connection.info

    def execute(self, sql: str, params: Any = ()) -> Any:
        for beginning, rows in self._answers.items():
            if sql.startswith(beginning):
                return Rows(rows)
        return self._connection.execute(sql, params)


@pytest.mark.parametrize(
    ("answers", "subject", "level"),
    [
        ({"SHOW fsync": [("off",)]}, "fsync", "fail"),
        ({"SHOW full_page_writes": [("off",)]}, "full_page_writes", "fail"),
        ({"SHOW synchronous_commit": [("off",)]}, "synchronous_commit", "warn"),
        ({"SHOW autovacuum": [("off",)]}, "autovacuum", "warn"),
        ({"SELECT pg_is_in_recovery": [(True,)]}, "role", "fail"),
        ({"SHOW server_encoding": [("SQL_ASCII",)]}, "encoding", "warn"),
        ({"SELECT (SELECT count(*)": [(95, 100)]}, "connections", "warn"),
        ({"SELECT COALESCE(max(extract": [(3600.0,)]}, "transactions", "warn"),
        ({"SELECT relname, wanted": [("jobs", "INSERT")]}, "rights", "fail"),
    ],
)
def test_a_badly_kept_server(
    postgres_url: str, answers: dict[str, list[tuple[Any, ...]]], subject: str, level: str
):
    with psycopg.connect(postgres_url) as connection:
        told: Any = Told(connection, answers)
        found = [
            *postgres._server(told),
            *postgres._durability(told),
            *postgres._rights(told, "pg_catalog"),
            *postgres._upkeep(told, "none.jobs"),
            postgres._connections(told),
            postgres._clock(told),
        ]
    assert levels(found)[subject] == level


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_a_role_that_was_granted_the_tables_and_no_sequence(database: Database):
    database.engine().migrate()
    schema, role = database.schema, f"role_{database.schema}"
    with psycopg.connect(database.url) as connection:
        connection.execute(f"CREATE ROLE {role}".encode())
        connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}".encode())
        tables = f"ALL TABLES IN SCHEMA {schema} TO {role}"
        connection.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables}".encode())
        connection.execute(f"SET ROLE {role}".encode())
        given: Any = connection
        found = [finding.text for finding in postgres._rights(given, schema)]
        connection.rollback()
    assert len(found) == 2
    assert f"lacks SELECT, USAGE on {schema}.events_position_seq" in found[1]


@pytest.mark.parametrize(("hours", "word"), [(1, "ahead"), (-1, "behind")])
def test_a_clock_that_is_wrong(postgres_url: str, hours: int, word: str):
    with psycopg.connect(postgres_url) as connection:
        [[there]] = connection.execute(
            "SELECT extract(epoch FROM clock_timestamp() + %s * interval '1 hour')::float8", [hours]
        ).fetchall()
        told: Any = Told(connection, {"SELECT extract(epoch FROM clock": [(there,)]})
        finding = postgres._clock(told)
    assert finding.level == "warn"
    assert word in finding.text
