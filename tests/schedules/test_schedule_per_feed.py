"""An application with feeds and subscribers: a recurring job for each feed, enabled exactly while
it has subscribers, kept so by the same transactions that change the application's own tables,
however many of them at once."""

import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast, Job
from tests.conftest import Database
from tests.support.threads import in_threads

FEEDS = 3
ANY = "SELECT EXISTS (SELECT 1 FROM subscriptions WHERE feed_id = :id)"
PATIENCE = 20.0


class Feeds:
    """The application. `by_function`: it asks a function whether a feed has subscribers, not SQL."""

    def __init__(self, app: Holdfast, database: Database, *, by_function: bool = False) -> None:
        @app.task
        def fetch_feed(feed_id: int) -> None:
            """No worker runs it in these tests."""

        self.app = app
        self._fetch_feed = fetch_feed
        self._database = database
        self._by_function = by_function
        with self.transaction() as tx:
            self.execute(
                tx,
                "CREATE TABLE feeds (id integer PRIMARY KEY, next_fetch_at text, active integer)",
            )
            self.execute(
                tx,
                "CREATE TABLE subscriptions (feed_id integer, reader integer,"
                " PRIMARY KEY (feed_id, reader))",
            )
            for feed in range(FEEDS):
                self.execute(tx, f"INSERT INTO feeds (id) VALUES ({feed})")

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """On a connection of the application's own."""
        if self._database.kind == "sqlite":
            connection: Any = sqlite3.connect(
                self._database.path, timeout=PATIENCE, isolation_level=None
            )
            connection.execute("BEGIN IMMEDIATE")
        else:
            connection = psycopg.connect(
                self._database.url, options=f"-c search_path={self._database.schema}"
            )
        try:
            yield connection
            connection.commit()
        finally:
            connection.close()

    def execute(self, tx: Any, sql: str) -> list[Any]:
        cursor = tx.execute(sql)
        return list(cursor.fetchall()) if cursor.description else []

    def subscribe(self, tx: Any, feed: int, reader: int) -> None:
        self.execute(tx, f"INSERT INTO subscriptions VALUES ({feed}, {reader})")
        self._mirror(tx, feed, self._job(tx, feed).schedule(feed_id=feed))

    def unsubscribe(self, tx: Any, feed: int, reader: int) -> None:
        self.execute(tx, f"DELETE FROM subscriptions WHERE feed_id = {feed} AND reader = {reader}")
        self._mirror(tx, feed, self._job(tx, feed).sync(enabled=self._condition(tx, feed)))

    def _job(self, tx: Any, feed: int) -> Any:
        return self._fetch_feed.using(key=f"feed:{feed}", every="30m", tx=tx)

    def _condition(self, tx: Any, feed: int) -> Any:
        if self._by_function:
            return lambda: self.execute(tx, ANY.replace(":id", str(feed)))[0][0]
        return ANY, {"id": feed}

    def _mirror(self, tx: Any, feed: int, job: Job) -> None:
        self.execute(
            tx,
            f"UPDATE feeds SET next_fetch_at = '{job.run_at.isoformat()}',"
            f" active = {int(job.enabled)} WHERE id = {feed}",
        )

    def check(self) -> None:
        """The two never disagree."""
        jobs = {str(job.key): job for job in self.app.schedules.list()}
        with self.transaction() as tx:
            shown = {
                feed: (next_fetch_at, active)
                for feed, next_fetch_at, active in self.execute(
                    tx, "SELECT id, next_fetch_at, active FROM feeds"
                )
            }
            readers = dict(
                self.execute(tx, "SELECT feed_id, count(*) FROM subscriptions GROUP BY feed_id")
            )
        rows = [job for job in self.app.jobs.search() if job.type == "fetch_feed"]
        assert len(rows) == len(jobs)
        for feed in range(FEEDS):
            job = jobs.get(f"feed:{feed}")
            if job is None:
                assert (readers.get(feed, 0), shown[feed]) == (0, (None, None))
                continue
            assert job.enabled == (readers.get(feed, 0) > 0)
            assert shown[feed] == (job.run_at.isoformat(), int(job.enabled))


@pytest.fixture(params=[False, True], ids=["by-sql", "by-function"])
def feeds(request: pytest.FixtureRequest, database: Database) -> Feeds:
    app = database.app()
    app.migrate()
    return Feeds(app, database, by_function=request.param)


def test_readers_subscribe_and_unsubscribe_concurrently(feeds: Feeds, database: Database) -> None:
    readers = 16 if database.kind == "postgres" else 4
    rounds = 12 if database.kind == "postgres" else 8

    def read(reader: int) -> None:
        """Each subscribes and unsubscribes by turns, to one feed after the other."""
        chance = random.Random(reader)
        mine: set[int] = set()
        for _ in range(rounds):
            feed = chance.randrange(FEEDS)
            with feeds.transaction() as tx:
                (feeds.unsubscribe if feed in mine else feeds.subscribe)(tx, feed, reader)
            mine ^= {feed}
        for feed in mine if reader % 4 else ():  # most go in the end
            with feeds.transaction() as tx:
                feeds.unsubscribe(tx, feed, reader)

    in_threads(readers, read)
    feeds.check()


def test_all_readers_unsubscribe_concurrently(feeds: Feeds, database: Database) -> None:
    """No reader stays: whichever is the last, each feed is disabled."""
    readers = 16 if database.kind == "postgres" else 4
    for reader in range(readers):
        with feeds.transaction() as tx:
            feeds.subscribe(tx, reader % FEEDS, reader)
    feeds.check()

    def go(reader: int) -> None:
        with feeds.transaction() as tx:
            feeds.unsubscribe(tx, reader % FEEDS, reader)

    in_threads(readers, go)
    feeds.check()
    assert [job.enabled for job in feeds.app.schedules.list()] == [False] * FEEDS


# two that overlap, step by step; on SQLite one would wait for the other from the beginning


class Step:
    """Done in a thread: by the time that it returns it has ended, or waits for a lock."""

    def __init__(self, database: Database, work: Callable[[], None]) -> None:
        self._error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        deadline = time.monotonic() + PATIENCE
        with psycopg.connect(database.url, autocommit=True) as connection:
            while self._thread.is_alive() and not self._waits(connection):
                assert time.monotonic() < deadline, "neither ended nor waiting for a lock"

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error

    def _waits(self, connection: Any) -> bool:
        [(waiting,)] = connection.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE wait_event_type = 'Lock' AND datname = current_database()"
        ).fetchall()
        return bool(waiting)

    @property
    def waits(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_the_last_two_readers_unsubscribe_without_seeing_each_other(
    feeds: Feeds, database: Database
) -> None:
    for reader in (1, 2):
        with feeds.transaction() as tx:
            feeds.subscribe(tx, 0, reader)
    with feeds.transaction() as one, feeds.transaction() as two:
        feeds.unsubscribe(one, 0, 1)
        step = Step(database, lambda: feeds.unsubscribe(two, 0, 2))
        assert step.waits  # for what the first will have done
        one.commit()
        step.end()
    feeds.check()
    [job] = feeds.app.schedules.list()
    assert not job.enabled


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_a_reader_subscribes_while_the_last_one_unsubscribes(
    feeds: Feeds, database: Database
) -> None:
    with feeds.transaction() as tx:
        feeds.subscribe(tx, 0, 1)
    for first, second in ((1, 2), (2, 1)):  # who goes first in the first round comes in the second
        with feeds.transaction() as one, feeds.transaction() as two:
            feeds.unsubscribe(one, 0, first)
            step = Step(database, partial(feeds.subscribe, two, 0, second))
            assert step.waits
            one.commit()
            step.end()
        feeds.check()
        [job] = feeds.app.schedules.list()
        assert job.enabled


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_two_first_subscribers_make_one_row(feeds: Feeds, database: Database) -> None:
    with feeds.transaction() as one, feeds.transaction() as two:
        feeds.subscribe(one, 0, 1)
        step = Step(database, lambda: feeds.subscribe(two, 0, 2))
        assert step.waits
        one.commit()
        step.end()
    feeds.check()
    assert len(list(feeds.app.schedules.list())) == 1


def test_a_transaction_that_is_rolled_back_changes_nothing(feeds: Feeds) -> None:
    with feeds.transaction() as tx:
        feeds.subscribe(tx, 0, 1)
    with feeds.transaction() as tx:
        feeds.unsubscribe(tx, 0, 1)
        tx.rollback()
    feeds.check()
    with feeds.transaction() as tx:
        feeds.subscribe(tx, 1, 1)
        tx.rollback()
    feeds.check()
    [job] = feeds.app.schedules.list()
    assert (job.key, job.enabled) == ("feed:0", True)
    assert job.run_at <= datetime.now(UTC) + timedelta(minutes=30)
