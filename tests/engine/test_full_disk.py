"""A full disk: an enqueue that raised left nothing behind, and one that returned is there, whatever
else was in its transaction."""

import sqlite3
import threading
from contextlib import closing

import pytest

from holdfast import StorageError
from holdfast.engine.sqlite.engine import SqliteEngine
from holdfast.jobs.job import NewJob
from tests.conftest import Database
from tests.support.jobs import insert, new

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)

LARGE = '{"x":"%s"}' % ("x" * 400_000)


@pytest.fixture
def engine(database: Database) -> SqliteEngine:
    engine = database.engine()
    assert isinstance(engine, SqliteEngine)
    engine.open()
    return engine


def limit_pages(engine: SqliteEngine, more: int) -> None:
    """Let the file grow by so many pages: beyond that SQLite says that the disk is full."""
    connection = engine._open().connection
    [(pages,)] = connection.execute("PRAGMA page_count").fetchall()
    connection.execute(f"PRAGMA max_page_count = {pages + more}").fetchall()


def insert_in_one_group(engine: SqliteEngine, jobs: list[NewJob]) -> dict[str, str]:
    """Each from a thread of its own, while the write lock is held, so that they share a transaction;
    what each was told."""
    told: dict[str, str] = {}

    def run(job: NewJob) -> None:
        try:
            engine.insert([job])
            told[job.id] = "made"
        except StorageError:
            told[job.id] = "refused"

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    with closing(sqlite3.connect(engine.path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        for thread in threads:
            thread.start()
        deadline = threading.Event()
        for _ in range(1000):
            if len(engine._group._waiting) == len(jobs) - 1:
                break
            deadline.wait(0.005)
        holder.execute("ROLLBACK")
    for thread in threads:
        thread.join(30)
    return told


@pytest.mark.parametrize("keyed", [False, True])
def test_an_enqueue_that_raised_wrote_nothing(engine: SqliteEngine, keyed: bool) -> None:
    limit_pages(engine, 500)  # five large payloads
    jobs = [
        new(payload=LARGE if number % 3 == 1 else '{"n":1}', key=f"k{number}" if keyed else None)
        for number in range(58)
    ]
    told = insert_in_one_group(engine, jobs)
    made = {id for id, word in told.items() if word == "made"}
    assert len(told) == 58
    assert "refused" in told.values()
    assert {job.id for job in engine.get(list(told))} == made
    small = {job.id for job in jobs if job.payload != LARGE}
    assert small <= made  # there was room for them
    limit_pages(engine, 100_000)
    assert insert(engine).created


def test_a_full_disk_is_reported_with_the_remedy(engine: SqliteEngine) -> None:
    limit_pages(engine, 10)
    with pytest.raises(StorageError, match=r"cannot write to '.*make room on its disk"):
        insert(engine, payload=LARGE)
