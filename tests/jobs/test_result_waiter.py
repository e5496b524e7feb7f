"""`wait_for` returns the outcome of a job, in any process."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import Discard, Holdfast, InvalidArguments, InvalidInput, JobFailed, JobNotFound
from holdfast.core.ids import new_id
from holdfast.engine.script import Script
from holdfast.events import outbox
from holdfast.jobs import commands, result_waiter
from holdfast.jobs.job import Job
from tests.conftest import Database

SOON = 5.0  # seconds, within which what is woken comes; without that it would take 30


class Total(BaseModel):
    count: int


def define(app: Holdfast) -> None:
    @app.task
    def add(a: int, b: int) -> Total:
        return Total(count=a + b)

    @app.task
    async def nothing() -> None: ...

    @app.task(max_attempts=1)
    def fails() -> int:
        raise Discard("no such disc")

    @app.task
    def waits(seconds: float) -> timedelta:
        time.sleep(seconds)
        return timedelta(seconds=seconds)


@pytest.fixture
def app(database: Database) -> Holdfast:
    app = database.app()
    define(app)
    return app


@contextmanager
def elsewhere(database: Database) -> Iterator[None]:
    """A worker with connections of its own."""
    other = database.app(poll_interval=0.2)
    define(other)
    with other.worker():
        yield


Wait = Callable[..., Any]


@pytest.fixture(params=["wait_for", "await_for"])
def wait(request: pytest.FixtureRequest, app: Holdfast) -> Wait:
    if request.param == "wait_for":
        return app.jobs.wait_for
    return lambda id, **options: asyncio.run(app.jobs.await_for(id, **options))


def test_wait_for_returns_every_outcome(database: Database, app: Holdfast, wait: Wait) -> None:
    cancelled = app.enqueue("waits", {"seconds": 0.0}, delay=60)
    app.jobs.cancel(cancelled.id)
    bad = app.enqueue("fails")
    with elsewhere(database):
        assert wait(app.enqueue("add", {"a": 1, "b": 2}).id, timeout=SOON) == Total(count=3)
        assert wait(app.enqueue("nothing").id, timeout="5s") is None
        assert wait(app.enqueue("waits", {"seconds": 0.2}).id) == timedelta(seconds=0.2)
        with pytest.raises(
            JobFailed, match=rf"job {bad.id} \(fails\) failed: Discard: no such"
        ) as e:
            wait(bad.id, timeout=SOON)
    assert e.value.job.id == bad.id
    with pytest.raises(JobFailed, match=rf"job {cancelled.id} \(waits\) was cancelled$"):
        wait(cancelled.id)
    with pytest.raises(TimeoutError, match=r"has not ended within 0\.05 s, and is scheduled"):
        wait(app.enqueue("add", {"a": 1, "b": 2}, delay=60).id, timeout=0.05)
    with pytest.raises(JobNotFound):
        wait(new_id())
    recurring = app.tasks["nothing"].using(key="k", every=60).schedule()
    with pytest.raises(InvalidInput, match=r"recurs, and never ends: .* app\.events\(job="):
        wait(recurring.id)


def test_wait_for_works_without_the_tasks_code(database: Database, app: Holdfast) -> None:
    with elsewhere(database):
        id = app.enqueue("add", {"a": 1, "b": 2}).id
        assert database.app().jobs.wait_for(id, timeout=SOON) == {"count": 3}
    stranger = database.app()

    @stranger.task(name="add")
    def other(a: int, b: int) -> list[int]:
        return []

    with pytest.raises(InvalidArguments, match=r"does not fit what task 'add' returns now"):
        stranger.jobs.wait_for(id)


def test_wait_for_is_woken_by_events(
    database: Database, app: Holdfast, wait: Wait, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many callers wait, and one thread wakes them."""
    monkeypatch.setattr(result_waiter, "FIRST", 30.0)
    monkeypatch.setattr(result_waiter, "LONGEST", 30.0)
    other = database.app()
    define(other)
    app.engine.run(lambda: outbox.subscribe(app.engine.dialect, "all", [""], 60), write=True)
    ids = [other.enqueue("waits", {"seconds": 0.3}).id for _ in range(5)]
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda id=id: found.append(wait(id, timeout=20))) for id in ids
    ]
    for thread in threads:
        thread.start()
    begin = time.monotonic()
    while len(app.jobs._results._waiters._waiting) < 5:
        assert time.monotonic() < begin + SOON
        time.sleep(0.005)
    with other.worker():
        for thread in threads:
            thread.join(20)
    assert found == [timedelta(seconds=0.3)] * 5
    assert time.monotonic() - begin < 10
    rooms = [one for one in threading.enumerate() if one.name == "holdfast-results"]
    assert len(rooms) == 1


def test_wait_for_polls_rarely(
    database: Database, app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    get = app.engine.get

    def counted(ids: Sequence[str]) -> list[Job]:
        looks.append(time.monotonic())
        return get(ids)

    monkeypatch.setattr(app.engine, "get", counted)
    id = app.enqueue("waits", {"seconds": 0.0}, delay=60).id
    with pytest.raises(TimeoutError):
        app.jobs.wait_for(id, timeout=1.2)
    assert 5 <= len(looks) <= 9


@pytest.mark.parametrize("reported", [False, True], ids=["deleted", "ended and deleted"])
def test_wait_for_raises_when_the_job_is_deleted(
    app: Holdfast, reported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is deleted; but if an event reported its end, that is the answer."""
    if reported:
        monkeypatch.setattr(result_waiter, "FIRST", 30.0)
    job, dialect = app.enqueue("add", {"a": 1, "b": 2}), app.engine.dialect
    raised: list[type] = []

    def wait() -> None:
        try:
            app.jobs.wait_for(job.id, timeout=20)
        except Exception as error:
            raised.append(type(error))

    def remove() -> Script[None]:
        if reported:
            yield from commands.cancel(dialect, [job.id], 60.0)
        yield from commands.delete(dialect, [job.id])

    thread = threading.Thread(target=wait)
    thread.start()
    begin = time.monotonic()
    while app.jobs._results._waiters._feed is None:
        assert time.monotonic() < begin + SOON
        time.sleep(0.005)
    app.engine.run(remove, write=True)
    thread.join(20)
    assert raised == [JobFailed if reported else JobNotFound]
