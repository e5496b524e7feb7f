"""Groups of writes that share a transaction on SQLite: what becomes of the others if one member is
refused, its thread interrupted, or the commit not synced."""

import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import pytest

from holdfast.engine.sqlite.engine import SqliteEngine
from holdfast.engine.sqlite.writer import Writer
from holdfast.errors import OutcomeUnknown, Refused
from holdfast.jobs.job import Job, NewJob
from tests.conftest import Database
from tests.support.jobs import new
from tests.support.waiting import until

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


@pytest.fixture
def engine(database: Database) -> SqliteEngine:
    engine = database.engine()
    assert isinstance(engine, SqliteEngine)
    engine.open()
    return engine


class Cursor:
    """The writer's cursor, and what happens at its COMMITs instead."""

    def __init__(self, cursor: sqlite3.Cursor, commit: Callable[[sqlite3.Cursor], Any]) -> None:
        self._cursor = cursor
        self._commit = commit

    def execute(self, sql: str, *params: Any) -> Any:
        return self._commit(self._cursor) if sql == "COMMIT" else self._cursor.execute(sql, *params)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


def at_commit(engine: SqliteEngine, commit: Callable[[sqlite3.Cursor], Any]) -> None:
    writer = engine._open()
    writer._cursor = Cursor(writer._cursor, commit)  # type: ignore[assignment]


def in_one_group(engine: SqliteEngine, jobs: Sequence[NewJob]) -> list[Job | BaseException]:
    """What each of them was told. A first one, of its own, leads a group that waits for the write lock,
    so that the others gather."""
    told: list[Any] = [None] * (len(jobs) + 1)

    def run(number: int, job: NewJob) -> None:
        try:
            [told[number]] = engine.insert([job])
        except BaseException as problem:
            told[number] = problem

    works = enumerate([new(), *jobs])
    threads = [threading.Thread(target=run, args=work) for work in works]
    with closing(sqlite3.connect(engine.path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        for number, thread in enumerate(threads):
            thread.start()
            until(lambda: engine._group._led and len(engine._group._waiting) == number)  # noqa: B023
        holder.execute("ROLLBACK")
    for thread in threads:
        thread.join(30)
    assert isinstance(told[0], Job)
    return told[1:]


def test_an_interrupt_of_the_leader_after_the_commit_loses_nothing(engine: SqliteEngine) -> None:
    """The other callers find their jobs in the database, and get no error."""
    commits = 0

    def commit(cursor: sqlite3.Cursor) -> None:
        nonlocal commits
        commits += 1
        cursor.execute("COMMIT")
        if commits == 2:
            raise KeyboardInterrupt

    at_commit(engine, commit)
    jobs = [new() for _ in range(3)]
    leader, *others = in_one_group(engine, jobs)
    assert isinstance(leader, KeyboardInterrupt)
    assert [other.created for other in others if isinstance(other, Job)] == [True, True]
    assert {job.id for job in engine.get([job.id for job in jobs])} == {job.id for job in jobs}
    assert engine.counts()["pending"] == 4


@pytest.mark.parametrize("keyed", [False, True])
def test_a_trigger_that_rolls_back_the_transaction_fails_only_its_request(
    engine: SqliteEngine, keyed: bool
) -> None:
    with closing(sqlite3.connect(engine.path)) as own:
        own.execute(
            "CREATE TRIGGER no_bad BEFORE INSERT ON holdfast_jobs WHEN NEW.type = 'bad'"
            " BEGIN SELECT RAISE(ROLLBACK, 'no bad ones'); END"
        )
    types = ["good", "bad", "good", "bad", "good"]
    jobs = [new(type=type, key=f"k{n}" if keyed else None) for n, type in enumerate(types)]
    told = in_one_group(engine, jobs)
    assert [type(answer) for answer in told] == [Job, Refused, Job, Refused, Job]
    good = {job.id for job in jobs if job.type == "good"}
    assert {job.id for job in engine.get([job.id for job in jobs])} == good
    assert engine.counts()["pending"] == 4


def not_synced() -> sqlite3.OperationalError:
    problem = sqlite3.OperationalError("disk I/O error")
    problem.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    return problem


@pytest.mark.parametrize("written", [True, False])
def test_a_commit_that_could_not_be_synced_is_repeated(engine: SqliteEngine, written: bool) -> None:
    """The log may have it or not: what a repeat finds, or writes, is certain."""
    commits = 0

    def commit(cursor: sqlite3.Cursor) -> None:
        nonlocal commits
        commits += 1
        cursor.execute("COMMIT" if written or commits > 1 else "ROLLBACK")
        if commits == 1:
            raise not_synced()

    at_commit(engine, commit)
    [job] = engine.insert([new()])
    assert (job.created, commits) == (True, 2)
    assert engine.counts()["pending"] == 1


def test_a_disk_that_never_syncs_is_an_error(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the ids, and no repeat is given more than the time that is left."""
    engine = database.engine(timeout=2.0)
    assert isinstance(engine, SqliteEngine)
    engine.open()
    times: list[float] = []
    submit = engine._group.submit

    def watch(work: Any, timeout: float) -> Any:
        times.append(timeout)
        return submit(work, timeout)

    def commit(cursor: sqlite3.Cursor) -> None:
        cursor.execute("COMMIT")
        raise not_synced()

    monkeypatch.setattr(engine._group, "submit", watch)
    at_commit(engine, commit)
    job = new()
    with pytest.raises(OutcomeUnknown, match="look at its disk") as raised:
        engine.insert([job])
    assert raised.value.ids == (job.id,)
    assert len(times) > 1
    assert times[0] <= 2.0
    assert times == sorted(times, reverse=True)
    assert times[-1] < times[0]


@pytest.mark.parametrize("policy", ["replace", "debounce"])
def test_changes_of_live_jobs_are_not_committed_again(engine: SqliteEngine, policy: Any) -> None:
    """The job that it changed may have finished by then, and a repeat would add another one."""
    engine.insert([new(key="k")])
    commits = 0

    def commit(cursor: sqlite3.Cursor) -> None:
        nonlocal commits
        commits += 1
        cursor.execute("COMMIT")
        raise not_synced()

    at_commit(engine, commit)
    job = new(key="k", on_conflict=policy)
    with pytest.raises(OutcomeUnknown, match="are not sent again") as raised:
        engine.insert([job])
    assert (raised.value.ids, commits) == ((job.id,), 1)


def test_closing_an_engine_during_a_call_of_another_thread(
    engine: SqliteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer: Writer | None = engine._open()
    there = [writer]

    def read(_: SqliteEngine) -> Writer | None:
        return there.pop() if there else None  # closed right after the first look

    with monkeypatch.context() as patch:
        patch.setattr(SqliteEngine, "_writer", property(read), raising=False)
        assert engine._open() is writer
