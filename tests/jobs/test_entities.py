"""Jobs of an entity: they are found, cancelled and deleted by it; and the triggers of
docs/guides/entities.md delete them with its row, also while they run."""

import asyncio
import logging
import re
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from holdfast import Context, Holdfast, Limit
from holdfast.jobs.job import Status
from tests.conftest import Database
from tests.support import engine_commands
from tests.support.callers import begin, connect
from tests.support.jobs import in_status, insert
from tests.support.waiting import finished, until
from tests.worker.conftest import quick

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "entities.md"
IDS: list[Any] = [7, "7", 'a "quoted" \\ ümlaut\nline', 2**53 + 1, -1, uuid4()]


def test_the_newest_job_and_all_jobs_of_an_entity_are_found(app: Holdfast) -> None:
    send = app.task(name="send")(lambda n: None)
    other = app.task(name="other")(lambda n: None)
    for number in range(5):
        send.using(entity=("movie", 7)).enqueue(number)
    last = other.using(entity=("movie", 7)).enqueue(9)
    string = send.using(entity=("movie", "7")).enqueue(0)
    newest = app.jobs.latest(entity=("movie", 7), type="send")
    assert newest is not None
    assert newest.payload == {"n": 4}
    assert app.jobs.latest(entity=("movie", 7)).id == last.id  # type: ignore[union-attr]
    assert app.jobs.latest(entity=("movie", 8)) is None
    assert app.jobs.latest(entity=("movie", 7), status="failed") is None
    found = asyncio.run(app.jobs.alatest(entity=("movie", "7")))
    assert (found and found.id, found and found.entity) == (string.id, ("movie", "7"))
    assert app.jobs.count(entity=("movie", 7)) == 6


def test_the_newest_job_of_a_type_is_found_behind_many_others(app: Holdfast) -> None:
    wanted = insert(app.engine, "rare", entity_type="movie", entity_id="7")
    send = app.task(name="send")(lambda: None)
    send.using(entity=("movie", 7)).enqueue_many([{}] * 300)
    found = app.jobs.latest(entity=("movie", 7), type="rare")
    assert found is not None
    assert found.id == wanted.id


def test_jobs_of_an_entity_are_found_in_a_transaction(app: Holdfast, database: Database) -> None:
    send = app.task(name="send")(lambda: None)
    movie = ("movie", 7)
    send.using(entity=movie).enqueue()
    done = in_status(app.engine, Status.FAILED, queue="q", entity_type="movie", entity_id="7")
    with closing(connect(database)) as mine:
        begin(mine)
        inside = send.using(entity=movie, tx=mine).enqueue()
        latest = app.jobs.latest(entity=movie, type="send", tx=mine)
        assert latest is not None
        assert latest.id == inside.id
        assert len(list(app.jobs.search(entity=movie, tx=mine))) == 3
        assert app.jobs.count(entity=movie, tx=mine) == 3
        assert app.jobs.cancel_all(entity=movie, tx=mine).skipped == {"finished": 1}
        assert app.jobs.delete_all(entity=movie, status="cancelled", tx=mine).changed == 2
        mine.rollback()
        assert [job.status for job in app.jobs.search(entity=movie)] == ["failed", "pending"]
        begin(mine)
        app.jobs.delete_all(entity=movie, tx=mine)
        mine.commit()
    assert app.jobs.count() == 0
    assert engine_commands.attempts(app.engine, done.id) == []


# the recipe


def recipe(mine: Any, database: Database, number: int) -> None:
    """Run the SQL of the page for this engine, with the schema of the test."""
    blocks = re.findall(rf"^```sql\n-- {database.kind}\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    text = blocks[number].replace("holdfast.jobs", f"{database.schema}.jobs")
    (mine.executescript if database.kind == "sqlite" else mine.execute)(text)
    mine.commit()


@contextmanager
def media(database: Database, *, id: str = "integer") -> Iterator[Any]:
    """A table of the application's, with the trigger of the page."""
    with closing(connect(database)) as mine:
        own = database.kind == "sqlite"
        mine.execute("PRAGMA foreign_keys = ON" if own else f"SET search_path TO {database.schema}")
        mine.execute("CREATE TABLE shows (id integer PRIMARY KEY)")
        mine.execute(
            f"CREATE TABLE media (id {id} PRIMARY KEY, "
            "show integer REFERENCES shows ON DELETE CASCADE)"
        )
        recipe(mine, database, 0)
        yield mine


def test_deleting_a_row_deletes_its_jobs(app: Holdfast, database: Database) -> None:
    app.migrate()
    for status in Status:
        in_status(app.engine, status, queue=status, entity_type="media", entity_id="7")
    stays = [
        insert(app.engine, entity_type=kind, entity_id=id).id
        for kind, id in [("media", '"7"'), ("media", "77"), ("movie", "7")]
    ]
    with media(database) as mine:
        mine.execute("INSERT INTO shows VALUES (1)")
        mine.execute("INSERT INTO media VALUES (7, 1), (77, 1)")
        mine.commit()
        mine.execute("DELETE FROM media WHERE id = 7")
        mine.rollback()
        assert app.jobs.count() == 8 + 3
        mine.execute("DELETE FROM media WHERE id = 7")
        mine.commit()
        assert sorted(job.id for job in app.jobs.search()) == sorted(stays)
        mine.execute("DELETE FROM shows WHERE id = 1")  # and with it media 77
        mine.commit()
    assert app.jobs.count() == 2


def test_ids_of_any_kind_are_found_by_the_trigger(app: Holdfast, database: Database) -> None:
    app.migrate()
    send = app.task(name="send")(lambda: None)
    texts = [str(id) for id in IDS if not isinstance(id, int)]
    for id in texts:
        send.using(entity=("media", id)).enqueue()
    kept = send.using(entity=("media", 7)).enqueue()
    with media(database, id="text") as mine:
        for id in texts:
            place = "?" if database.kind == "sqlite" else "%s"
            mine.execute(f"INSERT INTO media (id) VALUES ({place})", (id,))
        mine.execute("DELETE FROM media")
        mine.commit()
    assert [job.id for job in app.jobs.search()] == [kept.id]


def test_a_row_that_points_at_its_job_survives_it(app: Holdfast, database: Database) -> None:
    app.migrate()
    job = insert(app.engine)
    with media(database) as mine:
        mine.execute("INSERT INTO media VALUES (7, NULL)")
        mine.commit()
        recipe(mine, database, 1)
        mine.execute(f"UPDATE media SET job_id = '{job.id}'")
        mine.commit()
        app.jobs.delete(job.id)
        assert mine.execute("SELECT id, job_id FROM media").fetchall() == [(7, None)]


@pytest.mark.parametrize("kind", ["async", "thread"])
@pytest.mark.parametrize("limit", [1, Limit(1, per="group")], ids=["whole", "keyed"])
def test_a_run_ends_quietly_when_its_row_is_deleted(
    database: Database,
    tmp_path: Path,
    kind: str,
    limit: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And what waited for its place under the limit starts."""
    app = quick(database, tmp_path)
    app.migrate()
    started, stopped, folders = threading.Event(), threading.Event(), []
    hooks: list[Any] = []
    options = {"concurrency": limit, "on_failure": hooks.append, "on_success": hooks.append}

    def note(ctx: Context) -> None:
        folders.append(ctx.workdir)
        started.set()

    if kind == "async":

        @app.task(name="work", **options)
        async def work(ctx: Context, n: int, group: int = 1) -> None:
            if n == 7:
                note(ctx)
                try:
                    await asyncio.sleep(60)
                finally:
                    stopped.set()
    else:

        @app.task(name="work", **options)
        def work(ctx: Context, n: int, group: int = 1) -> None:
            if n == 7:
                note(ctx)
                ctx.wait(60)
                stopped.set()

    with media(database) as mine, caplog.at_level(logging.INFO, "holdfast"), app.worker():
        mine.execute("INSERT INTO media VALUES (7, NULL)")
        mine.commit()
        work.using(entity=("media", 7)).enqueue(7)
        assert started.wait(20)
        waits = work.enqueue(8)
        if isinstance(limit, Limit):
            until(lambda: app.jobs.get(waits.id).status == "blocked")
        mine.execute("DELETE FROM media")
        mine.commit()
        assert stopped.wait(20)
        done = finished(app, waits, patience=3.0)  # a repair every 5 s would come too late
        assert done.status == "completed"
        until(lambda: not folders[0].exists())
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []
    assert "was deleted: its run is stopped" in caplog.text
    assert [end.job.id for end in hooks] == [waits.id]
    assert app.jobs.count() == 1
