"""The key of a recurring job: a one-off job cannot have it too, whatever its `on_conflict`."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast, KeyConflict
from holdfast.core.ids import new_id
from holdfast.engine.engine import Engine
from holdfast.jobs import finish as finish_scripts
from holdfast.jobs.job import Job, NewJob
from holdfast.jobs.outcome import completed
from tests.cli.command import Command
from tests.conftest import Database
from tests.support.engine_commands import claim_as
from tests.support.jobs import insert, new, running

POLICIES = ["existing", "replace", "debounce", "raise"]
SAYS = r"recurring job .* of task 'feed' holds the key 'k': choose another key, or .*run_now\(\)"


@pytest.fixture
def feed(app: Holdfast) -> Any:
    @app.task
    def feed(n: int) -> None: ...

    feed.using(key="k", every="1h").schedule(n=1)
    return feed


def connect(database: Database) -> Any:
    if database.kind == "sqlite":
        return sqlite3.connect(database.path, isolation_level=None)
    return psycopg.connect(database.url, autocommit=True)


def in_a_transaction(database: Database, work: Callable[[Any], object]) -> None:
    with closing(connect(database)) as connection:
        connection.execute("BEGIN")
        try:
            work(connection)
        finally:
            connection.execute("ROLLBACK")


WAYS: dict[str, Callable[[Database, Any], object]] = {
    "one": lambda _, task: task.enqueue(n=2),
    "async": lambda _, task: asyncio.run(task.aenqueue(n=2)),
    "tx": lambda database, task: in_a_transaction(
        database, lambda tx: task.using(tx=tx).enqueue(n=2)
    ),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("way", WAYS)
def test_a_one_off_job_with_the_key_of_a_recurring_job_is_refused(
    database: Database, app: Holdfast, feed: Any, way: str, policy: str
) -> None:
    before = app.schedules.get("feed", "k")
    with pytest.raises(KeyConflict, match=SAYS):
        WAYS[way](database, feed.using(key="k", on_conflict=policy))
    assert app.schedules.get("feed", "k") == before
    assert app.jobs.count() == 1


def test_a_refused_call_writes_none_of_its_jobs(app: Holdfast, feed: Any) -> None:
    """All or none, as of any refused call."""
    jobs = [new("other"), new("feed", key="k"), new("other")]
    with pytest.raises(KeyConflict, match=SAYS):
        app.engine.insert(jobs)
    assert app.jobs.count() == 1


def test_the_key_conflict_is_found_by_task_name(app: Holdfast, feed: Any) -> None:
    with pytest.raises(KeyConflict, match=SAYS):
        app.enqueue("feed", {"n": 2}, key="k")


def test_the_key_conflict_is_found_while_the_recurring_job_runs(app: Holdfast, feed: Any) -> None:
    app.engine.beat("w", "{}")
    [job] = claim_as(app.engine, "default", 1, worker="w", types=["feed"])
    assert job.schedule is not None
    with pytest.raises(KeyConflict, match=SAYS):
        feed.using(key="k", on_conflict="replace").enqueue(n=2)


def test_another_task_or_key_does_not_conflict(app: Holdfast, feed: Any) -> None:
    assert feed.using(key="other").enqueue(n=2).created
    assert app.enqueue("other", {}, key="k").created


def test_scheduling_again_finds_the_same_row(app: Holdfast, feed: Any) -> None:
    again = feed.using(key="k", every="2h").schedule(n=3)
    assert again.id == app.schedules.get("feed", "k").id


def test_a_conflicting_job_enqueued_by_a_run_fails_the_run_with_the_reason(engine: Engine) -> None:
    """The finish raises KeyConflict and writes nothing: its sender decides."""
    insert(engine, type="feed", key="k", schedule='{"every":3600}', delay=3600.0)
    job: Job = running(engine)
    child = NewJob(id=new_id(), type="feed", payload="{}", key="k")
    finish = completed(job, keep=60.0, enqueue=[child])
    with pytest.raises(KeyConflict, match=SAYS):
        engine.run(lambda: finish_scripts.finish(engine.dialect, [finish]), write=True)
    assert engine.get([job.id])[0].status == "running"


def test_the_command_reports_the_key_conflict(
    database: Database, tmp_path: Path, feed: Any
) -> None:
    reply = Command(database, tmp_path)("enqueue", "feed", "n=2", "--key", "k")
    assert reply.code == 1
    assert "holdfast: the recurring job" in reply.err
    assert "run_now()" in reply.err
    assert reply.out == ""
