"""The testbed of the reader: a database of its own, servers of feeds and of a hub, and workers.

With a fake clock, due jobs run in this process; with workers, in worker processes. Feeds and the hub
are real HTTP servers in both.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from unittest import mock

import sqlalchemy as sql

from examples.feeds import server, store
from examples.feeds.app import app, create, job_of, key, transaction
from examples.feeds.feed_server import FeedServer, serve_feeds
from examples.feeds.store import feeds
from examples.harness import Harness
from holdfast import Job
from holdfast.testing import FakeClock, drain, temporary

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
QUICK = {"FEEDS_SHORTEST": "0.05", "FEEDS_BACKOFF": "0.2s", "HOLDFAST_HEARTBEAT": "0.5"}
Process = subprocess.Popen[bytes]


@dataclass
class FeedsTestbed:
    """A database of its own, servers of feeds and of a hub, and workers."""

    harness: Harness
    web: FeedServer
    clock: FakeClock | None
    processes: list[Process] = field(default_factory=list)

    @property
    def now(self) -> datetime:
        return app.clock.now()

    def check(self, sentence: str, holds: object) -> None:
        self.harness.check(sentence, holds)

    def advance(self, time: timedelta) -> list[Job]:
        """Advance the clock and run what is due; returns the jobs that ran."""
        assert self.clock is not None
        self.clock.advance(time.total_seconds())
        return drain(app, raise_errors=False)

    def start(self, *words: str) -> None:
        self.processes.append(self.harness.start(*words, HOLDFAST_URL=app.url, **QUICK))


@contextmanager
def open_testbed(
    harness: Harness, url: str, clock: FakeClock | None = None
) -> Iterator[FeedsTestbed]:
    with ExitStack() as stack:
        stack.enter_context(temporary(app, url, clock=clock))
        web = stack.enter_context(serve_feeds())
        callback = stack.enter_context(server.serving())
        stack.enter_context(mock.patch.dict(os.environ, FEEDS_CALLBACK=callback))
        stack.callback(store.database(url).dispose)
        create()
        yield FeedsTestbed(harness, web, clock)


@contextmanager
def open_testbed_with_workers(harness: Harness, url: str) -> Iterator[FeedsTestbed]:
    """Open a testbed with two worker processes and two subscriber processes, which wait for a file."""
    with open_testbed(harness, url) as testbed:
        for _ in range(2):
            testbed.start("holdfast", "worker", "examples.feeds.app:app", "--grace", "5s")
        for name in ("xan", "yan"):
            testbed.start("examples.feeds.concurrency_checks", str(harness.folder), name)
        try:
            yield testbed
        finally:
            for process in testbed.processes:
                harness.stop(process)


def feed_and_job(url: str) -> tuple[Any, Job]:
    """Return a feed and its job from one transaction, and check that they agree."""
    with transaction() as tx:
        wanted = feeds.select().where(feeds.c.url == url)
        job = job_of(tx, tx.execute(wanted).one().id)
        feed = tx.execute(wanted).one()
    shown = (feed.next_fetch_at, feed.consecutive_failures)
    assert shown == (job.run_at if job.enabled else None, job.consecutive_failures), (shown, job)
    return feed, job


def read(table: sql.Table, **where: object) -> list[Any]:
    with transaction() as tx:
        return list(tx.execute(table.select().filter_by(**where)))


def jobs_of_feed(url: str) -> list[Job]:
    """Return all jobs of a feed; checks that there are as many jobs as feeds."""
    assert app.jobs.count(type="fetch_feed") == len(read(feeds))
    return list(app.jobs.search(type="fetch_feed", key=key(read(feeds, url=url)[0].id)))
