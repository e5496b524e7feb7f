"""What only SQLite has: the log, checkpoints, turns between processes, one file for two programs."""

import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.engine.open import open_engine
from holdfast.engine.sqlite import engine as module
from holdfast.engine.sqlite import writer as sqlite_writer
from holdfast.engine.sqlite.connection import translate
from holdfast.engine.sqlite.engine import SqliteEngine
from holdfast.engine.sqlite.writer import Turns
from holdfast.errors import DatabaseBusy, DatabaseUnavailable
from tests.conftest import Database
from tests.support.jobs import claim, insert, new
from tests.support.threads import in_threads

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


def pragma(connection: sqlite3.Connection, name: str) -> Any:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def test_every_connection_is_durable_and_never_checkpoints_by_itself(database: Database) -> None:
    engine = database.engine()
    insert(engine)
    engine.counts()
    assert isinstance(engine, SqliteEngine)
    writer = engine._open()
    connections = [writer.connection, writer.checkpoints.connection, *engine._readers]
    assert len(connections) == 3
    for connection in connections:
        assert connection is not None
        assert pragma(connection, "journal_mode") == "wal"
        assert pragma(connection, "synchronous") == 2  # FULL
        assert pragma(connection, "wal_autocheckpoint") == 0
        assert pragma(connection, "journal_size_limit") == 64 * 1024 * 1024


def test_a_new_file_is_readable_only_by_its_owner(tmp_path: Path, database: Database) -> None:
    with closing(open_engine(f"sqlite:///{tmp_path}/new.db")) as engine:
        engine.open()
        files = list(tmp_path.glob("new.db*"))
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in files}
    names = ["new.db", "new.db-wal", "new.db-shm", "new.db-turn", "new.db-line"]
    assert modes == dict.fromkeys(names, 0o600)


def test_an_existing_file_keeps_its_mode(tmp_path: Path, database: Database) -> None:
    path = tmp_path / "mine.db"
    with closing(sqlite3.connect(path)) as mine:
        mine.execute("CREATE TABLE mine (id)")
    path.chmod(0o660)
    with closing(open_engine(f"sqlite:///{path}")) as engine:
        engine.open()
    assert stat.S_IMODE(path.stat().st_mode) == 0o660


def test_synchronous_normal_must_be_requested(database: Database) -> None:
    with closing(
        module.SqliteEngine.from_url(
            database.url + "?synchronous=normal", clock=database.engine().clock, auto_migrate=True
        )
    ) as engine:
        insert(engine)
        assert pragma(engine._open().connection, "synchronous") == 1


def test_an_unwritable_file_is_reported_with_the_remedy(database: Database) -> None:
    """Root may write anything, so SQLite is told to open it for reading alone."""
    engine = database.engine()
    insert(engine)
    assert isinstance(engine, SqliteEngine)
    uri = f"{engine.path.as_uri()}?mode=ro"
    with (
        closing(sqlite3.connect(uri, uri=True)) as reader,
        pytest.raises(sqlite3.OperationalError) as raised,
    ):
        reader.execute("DELETE FROM holdfast_jobs")
    told = translate(raised.value, engine.path)
    assert isinstance(told, DatabaseUnavailable)
    assert "let this user write to the file" in str(told)
    assert str(engine.path) in str(told)


def test_the_wal_is_checkpointed_and_does_not_grow(database: Database) -> None:
    """Without checkpoints this would leave a log of tens of megabytes."""
    engine = database.engine()
    largest = 0
    for _ in range(40):
        engine.insert([new(payload='{"x":"%s"}' % ("x" * 2000)) for _ in range(200)])
        largest = max(largest, Path(f"{database.path}-wal").stat().st_size)
    assert database.path.stat().st_size > 15_000_000
    assert largest < 20_000_000


def test_checkpoints_run_while_the_writer_holds_the_lock(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The WAL-reset bug needs a commit during a checkpoint: none can come from anywhere."""
    monkeypatch.setattr(sqlite_writer, "LOG_PAGES", 1)
    engine = database.engine()
    insert(engine)
    assert isinstance(engine, SqliteEngine)
    seen: list[str] = []

    class Watched:
        def execute(self, sql: str) -> Any:
            with (
                closing(sqlite3.connect(database.path, timeout=0)) as stranger,
                pytest.raises(sqlite3.OperationalError, match="locked"),
            ):
                stranger.execute("BEGIN IMMEDIATE")
            seen.append(sql)
            return real.execute(sql)

        def close(self) -> None:
            real.close()

    checkpoints = engine._open().checkpoints
    real = checkpoints.connection
    checkpoints.connection = Watched()  # type: ignore[assignment]
    insert(engine)
    assert seen == ["PRAGMA wal_checkpoint(PASSIVE)"]


def test_a_held_lock_is_an_error_in_bounded_time_until_it_is_released(database: Database) -> None:
    app = Holdfast(database.url + "?busy_timeout=0.3")
    app.enqueue("t")
    with closing(sqlite3.connect(database.path, isolation_level=None)) as mine:
        mine.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with pytest.raises(DatabaseBusy, match=r"task.using\(tx=connection\)"):
            app.enqueue("t")
        assert time.monotonic() - began < 3
        mine.execute("ROLLBACK")
    app.enqueue("t")
    assert app.jobs.count() == 2
    app.close()


def test_the_write_turn_has_one_holder_at_a_time(tmp_path: Path, database: Database) -> None:
    path = tmp_path / "x.db"
    turns = [Turns(path, timeout=10) for _ in range(4)]
    inside: list[int] = []
    most: list[int] = []

    def work(number: int) -> None:
        for _ in range(50):
            with turns[number]:
                inside.append(number)
                most.append(len(inside))
                inside.remove(number)

    in_threads(4, work)
    assert max(most) == 1
    for turn in turns:
        turn.close()


def test_the_first_use_inside_a_transaction_does_not_wait(database: Database) -> None:
    """The one whose turn it is may wait for that very transaction."""
    database.app().migrate()
    app = Holdfast(f"{database.url}?busy_timeout=0.2")
    turns = Turns(database.path, timeout=0.2)
    with app, closing(turns), closing(sqlite3.connect(database.path)) as mine:
        mine.execute("CREATE TABLE own (id INTEGER)")
        mine.execute("INSERT INTO own VALUES (1)")
        with turns:
            job = app.enqueue("send", {"n": 1}, tx=mine)
            mine.commit()
    assert database.app().jobs.get(job.id).status == "pending"


def test_a_write_turn_that_is_never_free_is_an_error(tmp_path: Path, database: Database) -> None:
    path = tmp_path / "x.db"
    one, two = Turns(path, timeout=10), Turns(path, timeout=0.2)
    with one, pytest.raises(DatabaseBusy, match="no turn to write"), two:
        pass
    with two:
        pass
    one.close()
    two.close()


WRITER = """
import sys, time
from holdfast import Holdfast
from holdfast.engine.open import open_engine
with Holdfast(sys.argv[1]) as app:
    app.enqueue("warm")
    print("ready", flush=True)
    sys.stdin.readline()
    done = 0
    while done < 150:
        app.enqueue("t", {"n": done})
        done += 1
print(done)
"""


def test_four_processes_write_to_one_file(database: Database) -> None:
    """Nobody sees "database is locked", nothing is lost, and the file stays sound."""
    database.engine().migrate()
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, database.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    results = [writer.communicate("go\n", timeout=60) for writer in writers]
    assert [out for out, _ in results] == ["150\n"] * 4, [err for _, err in results]
    engine = database.engine()
    assert engine.counts()["pending"] == 4 * 151
    with closing(sqlite3.connect(database.path)) as connection:
        assert pragma(connection, "integrity_check") == "ok"


def test_large_payloads_are_not_rewritten_with_each_change_of_status(database: Database) -> None:
    """The row of a job with 20 KB of arguments is as small as any other."""
    engine = database.engine()
    job = insert(engine, payload='{"x":"%s"}' % ("x" * 20_000))
    claim(engine)
    with closing(sqlite3.connect(database.path)) as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(holdfast_jobs)")]
    assert not {"payload", "result"} & set(columns)
    assert len(engine.get([job.id])[0].payload["x"]) == 20_000
