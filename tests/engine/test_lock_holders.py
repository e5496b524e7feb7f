"""Which process holds the locks that a write needs, and how an error names it."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from holdfast import DatabaseBusy, Holdfast
from holdfast.engine.sqlite.lock_holders import lock_holders
from tests.conftest import Database

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)

TURN = """
import fcntl, os, sys
fcntl.flock(os.open(sys.argv[1] + "-turn", os.O_RDWR), fcntl.LOCK_EX)
"""
WRITE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
"""
READ = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN")
connection.execute("SELECT count(*) FROM holdfast_jobs").fetchall()
"""
SAY = """
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def other_process(program: str, path: Path) -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, "-c", program + SAY, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process.pid
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def path(database: Database) -> Path:
    database.engine().open()
    return Path(database.url.removeprefix("sqlite:///").partition("?")[0])


@pytest.mark.parametrize("program", [TURN, WRITE], ids=["turn", "write"])
def test_the_holder_of_a_lock_is_named(database: Database, path: Path, program: str) -> None:
    with Holdfast(f"{database.url}?busy_timeout=0.2") as app:
        app.task(name="send")(lambda: None)
        app.enqueue("send")
        assert lock_holders(path) == app.engine.lock_holders() == set()
        with other_process(program, path) as pid:
            assert lock_holders(path) == app.engine.lock_holders() == {pid}
            with pytest.raises(DatabaseBusy) as running:
                app.enqueue("send")
            os.kill(pid, signal.SIGSTOP)
            os.waitpid(pid, os.WUNTRACED)
            with pytest.raises(DatabaseBusy) as stopped:
                app.enqueue("send")
        assert lock_holders(path) == set()
        app.enqueue("send")
    command = f"held by process {pid} ({sys.executable} -c"
    assert command in str(running.value)
    assert "which is stopped" not in str(running.value)
    assert command in str(stopped.value)
    assert "which is stopped" in str(stopped.value)


def test_a_reader_is_not_named_as_a_lock_holder(database: Database, path: Path) -> None:
    with other_process(READ, path):
        assert lock_holders(path) == set()


def test_this_process_is_named_as_the_lock_holder(database: Database, path: Path) -> None:
    with Holdfast(f"{database.url}?busy_timeout=0.2") as app:
        app.task(name="send")(lambda: None)
        app.enqueue("send")
        with closing(sqlite3.connect(path, isolation_level=None)) as mine:
            mine.execute("BEGIN IMMEDIATE")
            with pytest.raises(DatabaseBusy, match=rf"held by this process \({os.getpid()}\)"):
                app.enqueue("send")


def test_a_missing_database_has_no_lock_holders(database: Database, tmp_path: Path) -> None:
    assert lock_holders(tmp_path / "none.db") == set()
