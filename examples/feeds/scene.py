"""Where the reader is tried out: a database of its own, the world outside, and those who work.

A scene with a clock that stands still runs what is due in this process; a live one has worker
processes. Feeds and the hub are real servers in both.
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
from examples.feeds.outside import Outside, outside
from examples.feeds.store import feeds
from examples.stage import Stage
from holdfast import Job
from holdfast.testing import FakeClock, drain, temporary

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
QUICK = {"FEEDS_SHORTEST": "0.05", "FEEDS_BACKOFF": "0.2s", "HOLDFAST_HEARTBEAT": "0.5"}
Process = subprocess.Popen[bytes]


@dataclass
class Scene:
    """A database of its own, the world outside, and those who work."""

    stage: Stage
    web: Outside
    clock: FakeClock | None
    processes: list[Process] = field(default_factory=list)

    @property
    def now(self) -> datetime:
        return app.clock.now()

    def prove(self, sentence: str, holds: object) -> None:
        self.stage.prove(sentence, holds)

    def pass_time(self, time: timedelta) -> list[Job]:
        """So much later: the jobs that have run then."""
        assert self.clock is not None
        self.clock.advance(time.total_seconds())
        return drain(app, raise_errors=False)

    def start(self, *words: str) -> None:
        self.processes.append(self.stage.start(*words, HOLDFAST_URL=app.url, **QUICK))


@contextmanager
def scene(stage: Stage, url: str, clock: FakeClock | None = None) -> Iterator[Scene]:
    with ExitStack() as stack:
        stack.enter_context(temporary(app, url, clock=clock))
        web = stack.enter_context(outside())
        callback = stack.enter_context(server.serving())
        stack.enter_context(mock.patch.dict(os.environ, FEEDS_CALLBACK=callback))
        stack.callback(store.database(url).dispose)
        create()
        yield Scene(stage, web, clock)


@contextmanager
def live_scene(stage: Stage, url: str) -> Iterator[Scene]:
    """With two workers, and two readers in processes of their own, who wait for their moment."""
    with scene(stage, url) as it:
        for _ in range(2):
            it.start("holdfast", "worker", "examples.feeds.app:app", "--grace", "5s")
        for name in ("xan", "yan"):
            it.start("examples.feeds.crowd", str(stage.folder), name)
        try:
            yield it
        finally:
            for process in it.processes:
                stage.stop(process)


def agree(url: str) -> tuple[Any, Job]:
    """A feed and its job, which never disagree: read while nobody can change them."""
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


def rows(url: str) -> list[Job]:
    """All the jobs of a feed; and there are not more jobs than feeds."""
    assert app.jobs.count(type="fetch_feed") == len(read(feeds))
    return list(app.jobs.search(type="fetch_feed", key=key(read(feeds, url=url)[0].id)))
