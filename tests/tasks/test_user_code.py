"""Functions of the application are called outside of our own transactions: on SQLite a slow one would
keep every other writer waiting."""

import pytest

from holdfast import Holdfast, Limit
from holdfast.limits.keys import LimitKeys
from tests.conftest import Database


def other(database: Database) -> Holdfast:
    """Return an application with the same database, which gives up a write after 0.2 s."""
    url = f"{database.url}?busy_timeout=0.2" if database.kind == "sqlite" else database.url
    app = Holdfast(url, schema=database.schema)
    app.task(name="note", queue="notes")(lambda: None)
    return app


def test_the_function_of_a_limit_runs_outside_of_transactions(database: Database) -> None:
    with other(database) as beside, database.app() as app:

        def tenant(n: int) -> str:
            beside.enqueue("note")
            return f"t{n % 2}"

        ran: list[int] = []

        @app.task(concurrency=Limit(1, per=tenant))
        def send(n: int) -> None:
            ran.append(n)

        jobs = [send.enqueue(n) for n in range(6)]
        with app.worker() as worker:
            assert worker.join(60)
        found = [app.jobs.get(job.id) for job in jobs]
    assert sorted(ran) == list(range(6))
    assert [(job.status, job.error) for job in found] == [("completed", None)] * 6


def test_a_limit_function_that_raises_fails_only_its_job(database: Database) -> None:
    with database.app() as app:

        def tenant(n: int) -> str:
            if n == 1:
                raise SystemExit(3)
            return "all"

        @app.task(concurrency=Limit(1, per=tenant), max_attempts=1)
        def send(n: int) -> None: ...

        jobs = [send.enqueue(n) for n in range(3)]
        with app.worker() as worker:
            assert worker.join(60)
        found = [app.jobs.get(job.id) for job in jobs]
    assert [job.status for job in found] == ["completed", "failed", "completed"]
    assert "SystemExit(3)" in str(found[1].error)


def test_the_function_of_sync_runs_outside_of_transactions(database: Database) -> None:
    with other(database) as beside, database.app() as app:

        @app.task
        def fetch() -> None: ...

        feed = fetch.using(key="k", every=60)
        feed.schedule()
        asked: list[int] = []

        def has_readers() -> bool:
            asked.append(len(asked))
            beside.enqueue("note")
            return False

        assert feed.sync(enabled=has_readers).enabled is False
    assert asked == [0, 1]


def test_sync_calls_its_function_again_after_the_commit(database: Database) -> None:
    """The second call sees what changed between the first call and the commit."""
    with database.app() as app:

        @app.task
        def fetch() -> None: ...

        feed = fetch.using(key="k", every=60)
        feed.schedule()
        answers = [False, True, True]
        assert feed.sync(enabled=lambda: answers.pop(0)).enabled is True
        assert answers == []


@pytest.mark.parametrize(("kept", "key"), [(60.0, "a"), (0.0, None)])
def test_computed_limit_keys_are_cached(kept: float, key: str | None) -> None:
    keys = LimitKeys(kept)
    keys.put(("send", b"digest"), "a")
    assert keys.get(("send", b"digest")) == key
    assert keys.get(("load", b"digest")) is None
