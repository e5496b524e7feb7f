"""`idempotency_key=`: at most one job of a task has a value for as long as its row exists, finished or
not. A repeat returns the first one as it is now, with `created=False`."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest

from holdfast import DatabaseBusy, Holdfast, InvalidInput, Job, Task
from holdfast.core.clock import FakeClock
from holdfast.engine.engine import Engine
from holdfast.engine.records import Filter
from holdfast.events.event import Event
from holdfast.jobs import outcome
from holdfast.jobs.job import Status
from holdfast.tasks.context import Context
from holdfast.testing import Inline, drain
from tests.conftest import Database
from tests.support import engine_commands
from tests.support.callers import KINDS, Kind
from tests.support.jobs import claim, execute, in_status, insert, new, prune, running
from tests.support.threads import in_threads

on_postgres = pytest.mark.parametrize("database", ["postgres"], indirect=True)


def count(engine: Engine) -> int:
    return len(engine.search(Filter(), limit=1000).jobs)


# the engines


@pytest.mark.parametrize("status", sorted(Status))
def test_a_repeat_returns_the_first_whatever_its_status(engine: Engine, status: Status) -> None:
    first = in_status(engine, status, idempotency_key="order-7", payload='{"n":1}')
    again = insert(engine, idempotency_key="order-7", payload='{"n":2}', priority=5)
    assert (again.id, again.status, again.created) == (first.id, status, False)
    assert again == engine.get([first.id])[0]
    assert (again.payload, again.idempotency_key) == ({"n": 1}, "order-7")
    assert count(engine) == 1


def test_a_repeat_returns_the_result_of_a_job_finished_long_ago(
    engine: Engine, clock: FakeClock
) -> None:
    held = running(engine, idempotency_key="k")
    engine.finish([outcome.completed(held, '{"paid":true}', keep=1e9)])
    clock.advance(300 * 86400)
    again = insert(engine, idempotency_key="k")
    assert (again.id, again.created) == (held.id, False)
    assert (again.status, again.result) == ("completed", {"paid": True})


def test_a_created_job_has_its_idempotency_key(engine: Engine) -> None:
    made = insert(engine, idempotency_key="k")
    assert (made.created, made.idempotency_key) == (True, "k")
    assert engine.get([made.id])[0].idempotency_key == "k"
    assert insert(engine).idempotency_key is None


def test_idempotency_keys_are_case_sensitive_and_unique_per_task(engine: Engine) -> None:
    for type, value in (("send", "k"), ("fetch", "k"), ("send", "K"), ("send", "k ")):
        assert insert(engine, type, idempotency_key=value).created


@pytest.mark.parametrize("size", [2, 60])
def test_the_same_value_twice_in_one_insert(engine: Engine, size: int) -> None:
    """60: enough for COPY, which cannot settle anything."""
    jobs = [new(idempotency_key="k", payload=f'{{"n":{n}}}') for n in range(size)]
    jobs += [new() for _ in range(size)]
    made = engine.insert(jobs)
    assert [job.created for job in made] == [True] + [False] * (size - 1) + [True] * size
    assert {job.id for job in made[:size]} == {jobs[0].id}
    assert all(job.payload == {"n": 0} for job in made[:size])
    assert count(engine) == size + 1


def test_a_batch_with_some_repeats_keeps_the_order_of_the_call(engine: Engine) -> None:
    old = {value: insert(engine, idempotency_key=value).id for value in ("b", "d")}
    jobs = [new(idempotency_key=value) for value in ("d", "a", "b", "c")]
    made = engine.insert(jobs)
    assert [job.created for job in made] == [False, True, False, True]
    assert [job.id for job in made] == [old["d"], jobs[1].id, old["b"], jobs[3].id]


def test_a_job_sent_again_counts_as_created(engine: Engine) -> None:
    """The same id: a lost reply, repeated by us and not by the caller."""
    job = new(idempotency_key="k")
    assert [made.created for _ in range(2) for made in engine.insert([job])] == [True, True]


def test_the_value_is_free_after_the_row_is_deleted(engine: Engine, clock: FakeClock) -> None:
    deleted = insert(engine, idempotency_key="k")
    engine_commands.delete(engine, [deleted.id])
    pruned = in_status(engine, Status.COMPLETED, idempotency_key="k")
    assert pruned.id != deleted.id
    clock.advance(61)
    assert prune(engine) == 1
    assert insert(engine, idempotency_key="k").created


def test_a_retry_keeps_the_value(engine: Engine) -> None:
    done = in_status(engine, Status.FAILED, idempotency_key="k")
    assert engine_commands.retry(engine, [done.id]) == [done.id]
    again = insert(engine, idempotency_key="k")
    assert (again.id, again.status, again.idempotency_key) == (done.id, "pending", "k")


@pytest.mark.parametrize("policy", ["existing", "replace", "debounce", "raise"])
def test_the_idempotency_key_is_checked_before_the_key(engine: Engine, policy: Any) -> None:
    """A repeat is no conflict: it is neither refused nor allowed to replace anything."""
    both = {"key": "k", "idempotency_key": "i"}
    first = insert(engine, **both, payload='{"n":1}')
    again = insert(engine, **both, payload='{"n":2}', on_conflict=policy)
    assert (again.id, again.created, again.payload) == (first.id, False, {"n": 1})
    held = claim(engine)[0]
    engine.finish([outcome.completed(held, "1", keep=60.0)])
    other = insert(engine, key="k", payload='{"n":3}')
    again = insert(engine, **both, payload='{"n":4}', on_conflict=policy)
    assert (again.id, again.status) == (first.id, "completed")
    assert engine.get([other.id])[0].payload == {"n": 3}


def test_a_new_value_with_a_live_key_follows_the_conflict_policy(engine: Engine) -> None:
    first = insert(engine, key="k", idempotency_key="one", payload='{"n":1}')
    kept = insert(engine, key="k", idempotency_key="two", payload='{"n":2}')
    assert (kept.id, kept.created, kept.payload) == (first.id, False, {"n": 1})
    for policy in ("replace", "debounce"):
        job = insert(engine, key="k", idempotency_key="two", on_conflict=policy, payload='{"n":3}')
        assert (job.id, job.payload, job.idempotency_key) == (first.id, {"n": 3}, "one")


def test_the_index_decides_between_concurrent_enqueues(engine: Engine) -> None:
    insert(engine, idempotency_key="k")
    other = insert(engine)
    with pytest.raises(Exception, match=r"(?i)unique"):
        execute(engine, "UPDATE {jobs} SET idempotency_key = 'k' WHERE id = :id", id=other.id)


def _insert(engine: Engine, value: str, _: int) -> Job:
    return insert(engine, idempotency_key=value)


def test_twenty_threads_with_one_value_create_one_job(database: Database) -> None:
    engine = database.engine()
    for value in "abcde":
        made = in_threads(20, partial(_insert, engine, value))
        assert len({job.id for job in made}) == 1
        assert sum(job.created for job in made) == 1
    assert count(engine) == 5


def test_threads_with_the_same_values_in_different_orders_do_not_deadlock(
    database: Database,
) -> None:
    engine = database.engine()
    values = [f"k{number}" for number in range(30)]

    def work(number: int) -> list[Job]:
        order = values if number % 2 else values[::-1]
        return engine.insert([new(idempotency_key=value) for value in order])

    made = [job for part in in_threads(8, work) for job in part]
    assert sum(job.created for job in made) == len({job.id for job in made}) == len(values)


def test_plain_jobs_in_the_same_group_commit_are_unaffected(database: Database) -> None:
    engine = database.engine()

    def work(number: int) -> list[Job]:
        value = None if number % 2 else f"k{number % 4}"
        return [insert(engine, idempotency_key=value) for _ in range(10)]

    made = [job for part in in_threads(16, work) for job in part]
    assert sum(job.created for job in made) == 8 * 10 + 2 == count(engine)


RACER = """
import json, sys
from holdfast import Holdfast
app = Holdfast(sys.argv[1], schema=sys.argv[2])
app.enqueue("warm", {})
print("ready", flush=True)
sys.stdin.readline()
made = [app.enqueue("send", {"n": n}, idempotency_key=f"k{n}") for n in range(50)]
print(json.dumps([[job.id, job.created] for job in made]))
app.close()
"""


def test_two_processes_with_the_same_values_create_one_job_each_value(database: Database) -> None:
    command = [sys.executable, "-c", RACER, database.url, database.schema]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    racers = [subprocess.Popen(command, env=os.environ, **pipes) for _ in range(2)]
    try:
        assert [racer.stdout.readline() for racer in racers if racer.stdout] == ["ready\n"] * 2
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        one, two = (json.loads(racer.communicate(timeout=60)[0]) for racer in racers)
    finally:
        for racer in racers:
            racer.kill()
            racer.wait()
    assert [id for id, _ in one] == [id for id, _ in two]
    assert [a + b for (_, a), (_, b) in zip(one, two, strict=True)] == [1] * 50


# the application


@pytest.fixture
def send(app: Holdfast) -> Task[[int], int]:
    @app.task
    def send(n: int) -> int:
        return n

    return send


def test_idempotency_works_by_task_and_by_name(app: Holdfast, send: Task[[int], int]) -> None:
    first = send.using(idempotency_key="order-7").enqueue(1)
    drain(app)
    again = send.using(idempotency_key="order-7").enqueue(2)
    named = app.enqueue("send", {"n": 3}, idempotency_key="order-7")
    assert [(job.id, job.created) for job in (again, named)] == [(first.id, False)] * 2
    assert (named.status, named.result) == ("completed", 1)


def test_each_of_many_jobs_has_its_own_idempotency_key(
    app: Holdfast, send: Task[[int], int]
) -> None:
    calls = [{"n": number} for number in range(3)]
    made = send.enqueue_many(calls, idempotency_keys=("a", "b", "a"))
    assert [job.created for job in made] == [True, True, False]
    assert made[2].id == made[0].id
    again = send.using(priority=3).enqueue_many(calls, idempotency_keys=iter("abc"))
    assert [job.created for job in again] == [False, False, True]
    assert again[2].priority == 3


@pytest.mark.parametrize("given", [[], ["a"], ["a", "b", "c"], "ab", ["a", ""], ["a", None]])
def test_many_keys_that_do_not_fit_are_refused(
    app: Holdfast, send: Task[[int], int], given: Any
) -> None:
    with pytest.raises(InvalidInput, match="idempotency_keys"):
        send.enqueue_many([{"n": 1}, {"n": 2}], idempotency_keys=given)
    assert count(app.engine) == 0


def test_one_value_for_several_jobs_is_refused(app: Holdfast, send: Task[[int], int]) -> None:
    using = send.using(idempotency_key="k")
    with pytest.raises(InvalidInput, match=r"idempotency_keys=\[\.\.\.\]"):
        using.enqueue_many([{"n": 1}])
    with pytest.raises(InvalidInput, match=r"schedule\(\) takes no idempotency_key="):
        using.using(key="r", every="1h").schedule(1)
    with pytest.raises(InvalidInput, match="no idempotency_key= and no tx="):
        app.workflow().add(using, 1)
    assert count(app.engine) == 0


@pytest.mark.parametrize("value", ["", "x" * 501, "a\x00b", "\ud800", 7, b"k"])
def test_values_that_are_no_text_are_refused(
    app: Holdfast, send: Task[[int], int], value: Any
) -> None:
    with pytest.raises(InvalidInput, match=r"idempotency_key=.*1 to 500 characters"):
        send.using(idempotency_key=value).enqueue(1)
    with pytest.raises(InvalidInput, match="idempotency_key="):
        app.enqueue("send", {"n": 1}, idempotency_key=value)


def test_the_longest_value_of_the_widest_characters(app: Holdfast, send: Task[[int], int]) -> None:
    value = "".join(chr(0x1F300 + number) for number in range(500))
    assert send.using(idempotency_key=value).enqueue(1).created
    assert not send.using(idempotency_key=value).enqueue(1).created


def test_a_repeat_does_not_call_listeners(app: Holdfast, send: Task[[int], int]) -> None:
    heard: list[Event] = []
    app.on("enqueued")(heard.append)
    for _ in range(3):
        send.using(idempotency_key="k").enqueue(1)
    assert len(heard) == 1


def test_a_job_enqueued_with_a_completion_is_added_once(
    app: Holdfast, send: Task[[int], int]
) -> None:
    """By ctx.enqueue and by then=, of two jobs that run."""

    @app.task(then=send.using(idempotency_key="then"))
    def parent(ctx: Context, n: int) -> dict[str, int]:
        ctx.enqueue(send.using(idempotency_key="ctx"), n=n)
        return {"n": n}

    parent.enqueue_many([{"n": 1}, {"n": 2}])
    drain(app)
    made = list(app.jobs.search(type="send"))
    assert sorted(str(job.idempotency_key) for job in made) == ["ctx", "then"]
    assert {job.status for job in made} == {"completed"}


def test_inline_jobs_report_repeats(app: Holdfast, send: Task[[int], int]) -> None:
    with Inline(app):
        assert send.using(idempotency_key="k").enqueue(1).idempotency_key == "k"


# the caller's transaction


def over(kinds: list[Kind]) -> Any:
    return pytest.mark.parametrize(
        ("database", "kind"),
        [pytest.param(kind.engine, kind, id=str(kind)) for kind in kinds],
        indirect=["database"],
    )


@over(KINDS)
def test_idempotency_works_in_the_callers_transaction(
    database: Database, app: Holdfast, send: Task[[int], int], kind: Kind
) -> None:
    old = send.using(idempotency_key="old").enqueue(0)
    drain(app)

    async def body() -> None:
        async with kind.opened(database) as caller:
            using = send.using(tx=caller.tx, idempotency_key="k")
            await caller.begin()
            lost = await kind.call(using, "enqueue", 1)
            same = await kind.call(using, "enqueue", 2)
            assert (lost.created, same.created, same.id) == (True, False, lost.id)
            await caller.rollback()

            await caller.begin()
            kept = await kind.call(using, "enqueue", 3)
            assert kept.created
            assert kept.id != lost.id
            found = await kind.call(using.using(idempotency_key="old"), "enqueue", 4)
            assert (found.id, found.created, found.result) == (old.id, False, 0)
            calls = [{"n": number} for number in range(3)]
            many = send.using(tx=caller.tx)
            keys = ["new", "old", "k"]
            made = await kind.call(many, "enqueue_many", calls, idempotency_keys=keys)
            assert [job.created for job in made] == [True, False, False]
            assert [job.id for job in made[1:]] == [old.id, kept.id]
            await caller.commit()

    kind.drive(body())
    assert sorted(str(job.idempotency_key) for job in app.jobs.search()) == ["k", "new", "old"]
    assert not send.using(idempotency_key="k").enqueue(5).created


@contextmanager
def value_held(database: Database, send: Task[[int], int]) -> Iterator[psycopg.Connection]:
    """Another transaction has enqueued the value 'k' and not committed yet."""
    with psycopg.connect(database.url) as other:
        send.using(tx=other, idempotency_key="k").enqueue(1)
        yield other


def until_blocked(database: Database, *threads: threading.Thread) -> None:
    """Wait until as many sessions wait for a lock, or a thread has ended."""
    blocked = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    with psycopg.connect(database.url, autocommit=True) as watching:
        while all(thread.is_alive() for thread in threads):
            if watching.execute(blocked).fetchone() == (len(threads),):
                return


@on_postgres
def test_concurrent_transactions_with_the_same_values_do_not_deadlock(
    database: Database, app: Holdfast, send: Task[[int], int]
) -> None:
    made: list[Job] = []

    def work(values: list[str]) -> None:
        calls = [{"n": number} for number in range(3)]
        made.extend(send.enqueue_many(calls, idempotency_keys=values))

    with value_held(database, send) as other:
        orders = ["a", "k", "z"], ["z", "k", "a"]
        threads = [threading.Thread(target=work, args=[values]) for values in orders]
        for thread in threads:
            thread.start()
        until_blocked(database, *threads)
        other.rollback()
        for thread in threads:
            thread.join(60)
    assert sum(job.created for job in made) == len({job.id for job in made}) == 3


@on_postgres
def test_no_plain_job_waits_for_an_uncommitted_value(
    database: Database, app: Holdfast, send: Task[[int], int]
) -> None:
    def wait() -> None:
        with pytest.raises(DatabaseBusy):
            send.using(idempotency_key="k").enqueue(2)

    with value_held(database, send):
        for _ in range(5):  # the machine may stall for as long as the wait lasts
            waiting = threading.Thread(target=wait)
            waiting.start()
            until_blocked(database, waiting)
            send.enqueue(3)
            in_time = waiting.is_alive()
            waiting.join(60)
            if in_time:
                return
    raise AssertionError("a plain job waited for the value")


@on_postgres
def test_the_wait_for_an_uncommitted_value_is_bounded(
    database: Database, app: Holdfast, send: Task[[int], int]
) -> None:
    with value_held(database, send):
        with pytest.raises(DatabaseBusy, match="try again"):
            send.using(idempotency_key="k").enqueue(2)
        with psycopg.connect(database.url) as mine:
            with pytest.raises(DatabaseBusy, match="try again"):
                send.using(tx=mine, idempotency_key="k").enqueue(2)
            assert send.using(tx=mine, idempotency_key="free").enqueue(3).created


@on_postgres
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_wait_for_an_uncommitted_value_returns_its_outcome(
    database: Database, app: Holdfast, send: Task[[int], int], end: str
) -> None:
    with value_held(database, send) as other:
        first: list[Job] = []
        using = send.using(idempotency_key="k")
        waiting = threading.Thread(target=lambda: first.append(using.enqueue(2)))
        waiting.start()
        until_blocked(database, waiting)
        getattr(other, end)()
        waiting.join(60)
    assert [job.created for job in first] == [end == "rollback"]
    assert app.jobs.get(first[0].id).payload == {"n": 2 if end == "rollback" else 1}


@on_postgres
def test_a_value_invisible_to_an_old_snapshot_is_an_error(
    database: Database, app: Holdfast, send: Task[[int], int]
) -> None:
    with psycopg.connect(database.url) as mine:
        mine.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        mine.execute("SELECT 1")
        first = send.using(idempotency_key="k").enqueue(1)
        with pytest.raises(DatabaseBusy, match="roll the transaction back"):
            send.using(tx=mine, idempotency_key="k").enqueue(2)
        mine.rollback()
        assert send.using(tx=mine, idempotency_key="k").enqueue(2).id == first.id
