"""The SQLite file is deleted, moved or replaced while processes have it open: none of them may say that
a job was stored when the file that other processes open does not have it."""

import contextlib
import logging
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import DatabaseReplaced, Holdfast
from holdfast.engine.sqlite.file_identity import Identity
from tests.support.databases import Template
from tests.support.waiting import until

THREADS = 8


@pytest.fixture
def path(tmp_path: Path, template: Template) -> Path:
    template.copy(tmp_path / "jobs.db")
    return tmp_path / "jobs.db"


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[[], Holdfast]]:
    made: list[Holdfast] = []

    def make() -> Holdfast:
        made.append(Holdfast(f"sqlite:///{path}", poll_interval=0.2, heartbeat=0.5))
        return made[-1]

    yield make
    for app in made:
        app.close()


class Load:
    """Threads that enqueue all the time, and write down what they were told."""

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self._over = threading.Event()
        self.told: list[
            tuple[str, float]
        ] = []  #: ids that were acknowledged, and when their call began
        self.errors: list[Exception] = []
        self._threads = [threading.Thread(target=self._run) for _ in range(THREADS)]

    def _run(self) -> None:
        while not self._over.is_set():
            begun = time.monotonic()
            try:
                self.told.append((self._app.enqueue("send").id, begun))
            except Exception as problem:
                self.errors.append(problem)

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        until(lambda: len(self.told) > 200, "load")
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def ids_in(connection: sqlite3.Connection) -> set[str]:
    return {id for (id,) in connection.execute("SELECT id FROM holdfast_jobs")}


def delete(path: Path) -> None:
    path.unlink()


def delete_all(path: Path) -> None:
    for file in path.parent.glob("jobs.db*"):
        file.unlink()


def replace(path: Path) -> None:
    """Replace only the database: a process that opens it finds the WAL of the old one beside it."""
    os.replace(path.with_name("other.db"), path)


def restore(path: Path) -> None:
    """As one should, but while the old one is in use; then another process starts."""
    for file in path.parent.glob("jobs.db-*"):
        file.unlink()
    os.replace(path.with_name("other.db"), path)
    start_another(path)


def move(path: Path) -> None:
    """All of it; then another process starts, and makes a new file."""
    for file in path.parent.glob("jobs.db*"):
        file.rename(path.with_name(file.name.replace("jobs", "moved")))
    start_another(path)


def start_another(path: Path) -> None:
    code = "import sys, holdfast; holdfast.Holdfast(f'sqlite:///{sys.argv[1]}').enqueue('other')"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=60)


@pytest.mark.parametrize("harm", [delete, delete_all, replace, restore, move])
def test_nothing_is_acknowledged_after_the_file_is_gone(
    path: Path,
    opened: Callable[[], Holdfast],
    template: Template,
    caplog: pytest.LogCaptureFixture,
    harm: Callable[[Path], None],
) -> None:
    template.copy(path.with_name("other.db"))
    app = opened()
    app.enqueue("send")
    # A connection of its own sees what is in the file after it has lost its name.
    with contextlib.closing(sqlite3.connect(path)) as old, Load(app) as load:
        ids_in(old)
        harm(path)
        gone = time.monotonic()
        known = ids_in(old)
        until(lambda: len(load.errors) >= 2 * THREADS, "the error in each thread")
        late = [id for id, begun in load.told if begun > gone]
        assert late == []
        assert {type(problem) for problem in load.errors} == {DatabaseReplaced}
        assert {id for id, _ in load.told} <= known
    assert "was deleted or moved" in str(load.errors[0]) or "was replaced" in str(load.errors[0])
    assert "restart" in str(load.errors[0])
    critical = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert [record.name for record in critical] == ["holdfast.engine"]
    with pytest.raises(DatabaseReplaced):
        app.jobs.count()
    with pytest.raises(DatabaseReplaced):
        app.migrate()


def test_a_deleted_wal_is_noticed(path: Path, opened: Callable[[], Holdfast]) -> None:
    app = opened()
    app.enqueue("send")
    path.with_name("jobs.db-wal").unlink()
    with pytest.raises(DatabaseReplaced, match=r"jobs\.db-wal' was deleted"):
        app.enqueue("send")


def test_the_wal_may_be_reset_and_truncated(path: Path, opened: Callable[[], Holdfast]) -> None:
    """By ourselves, by another connection that checkpoints, by others that open and close."""
    app = opened()
    for _ in range(3):
        app.enqueue("send")
        with contextlib.closing(sqlite3.connect(path, timeout=10)) as other:
            assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        with Holdfast(f"sqlite:///{path}") as another:
            another.enqueue("send")
        with contextlib.closing(sqlite3.connect(path, timeout=10)) as other:
            other.execute("VACUUM")
    assert app.jobs.count() == 6


def test_a_reading_process_notices_within_seconds(
    path: Path, opened: Callable[[], Holdfast]
) -> None:
    app = opened()
    assert app.jobs.count() == 0
    path.unlink()

    def refused() -> bool:
        try:
            app.jobs.count()
        except DatabaseReplaced:
            return True
        return False

    until(refused, "the error")
    health = app.health()
    assert not health.ok
    assert "was deleted or moved" in health.problems[0]


def test_a_worker_stops_claiming(
    path: Path, opened: Callable[[], Holdfast], caplog: pytest.LogCaptureFixture
) -> None:
    """It keeps away from both files: the one that it has open, and the new one."""
    app = opened()
    ran: list[int] = []

    @app.task
    def send(n: int) -> None:
        ran.append(n)

    with app.worker():
        send.enqueue(n=1)
        until(lambda: app.jobs.count(status="completed") == 1, "the first job")
        for file in path.parent.glob("jobs.db*"):
            file.rename(path.with_name(file.name.replace("jobs", "moved")))
        fresh = opened()
        fresh.enqueue("send", {"n": 2})
        until(lambda: "no work can be taken" in caplog.text, "the worker's log")
        until(lambda: not app.health().ok, "its health")
        assert fresh.jobs.count(status="pending") == 1
        assert fresh.health().workers == 0
    assert ran == [1]
    assert caplog.text.count("CRITICAL") == 1
    with Holdfast(f"sqlite:///{path}") as restarted:
        restarted.tasks["send"] = send
        with restarted.worker():
            until(lambda: ran == [1, 2], "the job of the new file")


def test_closing_does_not_harm_the_new_file(
    path: Path, opened: Callable[[], Holdfast], template: Template
) -> None:
    """SQLite deletes the log by its name when the last connection closes."""
    template.copy(path.with_name("other.db"))
    app, fresh = opened(), opened()
    app.enqueue("send")
    for file in path.parent.glob("jobs.db-*"):
        file.unlink()
    os.replace(path.with_name("other.db"), path)
    jobs = [fresh.enqueue("send").id for _ in range(20)]
    app.close()
    assert path.with_name("jobs.db-wal").exists()
    with Holdfast(f"sqlite:///{path}") as third:
        assert {job.id for job in third.jobs.search()} == set(jobs)
    assert fresh.enqueue("send").created


def test_another_reader_is_not_opened_on_the_new_file(
    path: Path, opened: Callable[[], Holdfast], template: Template
) -> None:
    """Connections for reading are opened when they are needed."""
    template.copy(path.with_name("other.db"))
    app = opened()
    app.enqueue("send")  # no reader yet
    os.replace(path.with_name("other.db"), path)
    with pytest.raises(DatabaseReplaced):
        app.jobs.count()


def test_links_and_timestamps_do_not_matter(path: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    with Holdfast(f"sqlite:///{tmp_path}/link/jobs.db") as app:
        app.enqueue("send")
        os.link(path, tmp_path / "second-name.db")
        os.utime(path)
        app.enqueue("send")
        assert app.jobs.count() == 2


def test_a_file_replaced_during_open_is_opened_again(path: Path) -> None:
    identity, made = Identity(path), []

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(path)
        connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchall()
        made.append(connection)
        if len(made) == 1:
            other = path.with_name("other.db")
            with contextlib.closing(sqlite3.connect(other)) as fresh:
                fresh.execute("PRAGMA journal_mode = WAL")
                fresh.execute("CREATE TABLE fresh (x)")
            os.replace(other, path)
        return connection

    with contextlib.closing(identity.settle(connect)) as settled:
        assert len(made) == 2
        assert settled.execute("SELECT name FROM sqlite_master").fetchall() == [("fresh",)]
        identity.check()


def test_a_newly_created_file_is_identified(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    with Holdfast(f"sqlite:///{path}") as app:
        app.enqueue("send")
        path.unlink()
        with pytest.raises(DatabaseReplaced):
            app.enqueue("send")
