"""Events: written in the transaction of the change, while there are followers; read from a position."""

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any

import psycopg
import pytest

from holdfast import DatabaseUnavailable, Discard, Holdfast, InvalidInput, Limit
from holdfast.core.clock import FakeClock
from holdfast.engine.engine import Engine
from holdfast.engine.records import Edit, Report, Seen
from holdfast.errors import EventsGone
from holdfast.events import feed as feed_module
from holdfast.events import outbox
from holdfast.events.event import JobEvent
from holdfast.events.feed import Feed, make_topic, make_wanted
from holdfast.jobs import commands, outcome
from holdfast.jobs.job import Job
from holdfast.jobs.outcome import Finish, Outcome, Recur
from holdfast.testing import drain
from tests.conftest import Database
from tests.engine.test_transactions import over
from tests.limits.test_limits import fetch, rule
from tests.support import engine_commands
from tests.support.callers import KINDS, Kind
from tests.support.engine_commands import claim_as
from tests.support.jobs import WORKER, claim, claim_suspect, execute, insert, new, running
from tests.support.threads import in_threads


class Follower:
    """Reads what is there now."""

    def __init__(self, engine: Engine, after: int | None = None, **options: Any) -> None:
        name = options.pop("name", None)
        self.feed = Feed(engine, after, name, make_wanted(**options), (make_topic(**options),))

    def events(self) -> list[JobEvent]:
        """Read until two reads find nothing: the first may notice that an event is missing."""
        found: list[JobEvent] = []
        while more := self.feed.take(0) or self.feed.take(0):
            found += more
        return found

    def seen(self) -> list[tuple[str, str]]:
        return [(event.kind.value, event.status.value) for event in self.events()]

    def kinds(self) -> list[str]:
        return [event.kind.value for event in self.events()]


@pytest.fixture
def follower(engine: Engine) -> Iterator[Follower]:
    follower = Follower(engine)
    yield follower
    follower.feed.close()


def stored(engine: Engine) -> int:
    return int(execute(engine, "SELECT count(*) FROM {events} WHERE kind <> 'begin'")[0][0])


def end(engine: Engine, finish: Finish) -> None:
    assert engine.finish([finish]) == {(finish.id, finish.claim_no): "applied"}


# Which events are emitted


def test_an_enqueue_emits_an_event(engine: Engine, follower: Follower) -> None:
    one = insert(engine, entity_type="movie", entity_id="7", queue="media")
    many = engine.insert([new() for _ in range(60)])  # COPY on PostgreSQL
    later = insert(engine, delay=60.0)
    events = follower.events()
    assert [event.job_id for event in events] == [job.id for job in (one, *many, later)]
    assert {event.kind for event in events} == {"enqueued"}
    assert (events[0].entity, events[0].queue, events[0].type) == (("movie", 7), "media", "send")
    assert (events[-1].status, events[-1].run_at) == ("scheduled", later.run_at)
    engine.run(lambda: commands.edit(engine.dialect, later.id, Edit(delay=0.0)), write=True)
    assert follower.seen() == [("enqueued", "pending")]


def test_an_enqueue_with_a_live_key_emits_an_event_if_it_changes_the_job(
    engine: Engine, follower: Follower, clock: FakeClock
) -> None:
    first, other = new(key="k"), new()
    engine.insert([first, other])
    follower.events()
    clock.advance(1)
    engine.insert([new(key="k")])
    engine.insert([first])  # sent again
    assert follower.kinds() == []
    engine.insert([new(key="k", on_conflict="replace"), new()])
    assert sorted(event.job_id == first.id for event in follower.events()) == [False, True]


def test_runs_emit_events(engine: Engine, follower: Follower, clock: FakeClock) -> None:
    job = running(engine, max_attempts=5)
    for _ in range(2):  # a report that changes nothing emits no event
        engine.report([Report(*job.claim, 50.0, "half"), Report(job.id, 99, 1.0, "stale")])
    end(engine, outcome.retry_later(job, "E: no", delay=60.0))
    start, progress, retrying = follower.events()[1:]
    assert (start.kind, start.attempts, start.worker_id) == ("started", 1, WORKER)
    assert (progress.kind, progress.progress, progress.message) == ("progress", 50.0, "half")
    assert (retrying.kind, retrying.error, retrying.at) == ("retrying", "E: no", clock.now())
    assert (retrying.run_at - clock.now()).total_seconds() == 60.0
    assert engine_commands.retry(engine, [job.id]) == [job.id]
    for finish in (partial(outcome.snoozed, delay=0.0), outcome.released):
        [job] = claim(engine)
        end(engine, finish(job))
        engine.promote(10)
    [job] = claim(engine)
    end(engine, outcome.crashed(job, "killed", delay=0.0))
    assert follower.seen() == [
        ("enqueued", "pending"),
        ("started", "running"),
        ("snoozed", "scheduled"),
        ("started", "running"),
        ("released", "pending"),
        ("started", "running"),
        ("retrying", "retrying"),
    ]


def test_finishes_emit_one_event(engine: Engine, follower: Follower) -> None:
    done, bad, stopped = (running(engine) for _ in range(3))
    follower.events()
    finishes = [
        outcome.completed(done, '{"n": [1, null]}', keep=60.0, enqueue=(new(),)),
        outcome.failed(bad, "E: no", keep=60.0),
        outcome.stopped(stopped, keep=60.0),
    ]
    for _ in range(2):  # and sent again
        assert set(engine.finish(finishes).values()) == {"applied"}
    engine.finish([outcome.failed(done, "E: late", keep=60.0)])
    engine.report([Report(*done.claim, 1.0, None)])
    events = {event.job_id: event for event in follower.events()}
    assert len(events) == 4
    assert (events[done.id].kind, events[done.id].result) == ("completed", {"n": [1, None]})
    assert events[done.id].data["result"] == {"n": [1, None]}
    assert (events[bad.id].kind, events[bad.id].error) == ("failed", "E: no")
    assert events[bad.id].data["attempts"] == events[bad.id].attempts == 1
    assert events[stopped.id].kind == "cancelled"


def test_a_large_result_is_omitted_from_its_event(engine: Engine, follower: Follower) -> None:
    small, large = running(engine), running(engine)
    end(engine, outcome.completed(small, '"' + "x" * (outbox.RESULT - 2) + '"', keep=60.0))
    end(engine, outcome.completed(large, '"' + "x" * (outbox.RESULT - 1) + '"', keep=60.0))
    ends = [event for event in follower.events() if event.kind == "completed"]
    assert [event.result_left_out for event in ends] == [False, True]
    assert (len(ends[0].result), ends[1].result) == (outbox.RESULT - 2, None)


def test_events_have_values_of_the_row(engine: Engine, follower: Follower) -> None:
    """Asked to stop, it is cancelled instead of tried again; asked for again, it runs again."""
    job = running(engine)
    assert engine_commands.cancel(engine, [job.id], keep=60.0) == [job.id]
    end(engine, outcome.retry_later(job, "E: no", delay=60.0))
    assert follower.kinds() == ["enqueued", "started", "cancelled"]
    for finish, kind in ((outcome.completed, "completed"), (outcome.failed, "retrying")):
        job = running(engine, key=kind)
        insert(engine, key=kind, on_conflict="replace")
        end(engine, finish(job, "1", keep=60.0))
        assert follower.seen()[-2:] == [("enqueued", "running"), (kind, "pending")]
        engine_commands.delete(engine, [job.id])


def test_cancelling_and_rescue_emit_events(engine: Engine, follower: Follower) -> None:
    waits, runs, asked = insert(engine, queue="other"), running(engine), running(engine)
    engine_commands.cancel(engine, [waits.id, asked.id], keep=60.0)
    follower.events()
    engine_commands.cancel(engine, [waits.id, asked.id], keep=60.0)
    engine.sweep([Seen(WORKER, None)], limit=10)
    assert sorted((event.job_id, event.kind.value) for event in follower.events()) == sorted(
        [(runs.id, "rescued"), (asked.id, "cancelled")]
    )
    [alone] = claim_suspect(engine, worker="host-2-b")
    assert (alone.id, follower.kinds()) == (runs.id, ["started"])


def test_runs_under_limits_and_of_several_types_emit_events(
    engine: Engine, follower: Follower
) -> None:
    rules = {"send": rule("send", Limit(1))}
    engine.insert([new(), new(), new("free")])
    taken = fetch(engine, rules=rules, types=["send", "free"])
    assert len(taken) == 2
    assert follower.kinds()[3:] == ["started"] * 2
    engine.insert([new("a"), new("b")])
    assert len(claim(engine, 5, types=["a", "b"])) == 2
    assert follower.kinds() == ["enqueued"] * 2 + ["started"] * 2


def test_runs_of_a_recurring_job_emit_events(engine: Engine, follower: Follower) -> None:
    now = engine.clock.now()
    for error, recur, kind in (
        (None, Recur(now, now), "completed"),
        ("E: no", Recur(now, now), "retrying"),
        (None, Recur(now, now, stopped=True), "cancelled"),
    ):
        job = running(engine, schedule='{"every":60}', key=kind)
        finish = Finish(
            id=job.id,
            claim_no=job.claim_no,
            outcome=Outcome.RECURRED,
            attempt=1,
            worker_id=WORKER,
            started_at=now,
            result=None if error else "7",
            error=error,
            recur=recur,
        )
        end(engine, finish)
        event = follower.events()[-1]
        assert (event.kind, event.status) == (kind, "scheduled")
        assert event.result == (7 if kind == "completed" else None)


def test_workflows_emit_events(app: Holdfast) -> None:
    bad: list[str] = ["b"]

    @app.task(max_attempts=1)
    def step(name: str) -> None:
        if name in bad:
            raise Discard(name)

    follower = Follower(app.engine)
    with app.workflow("w") as flow:
        a = flow.add(step, "a")
        b = flow.add(step.using(after=[a]), "b")
        flow.add(step.using(after=[b]), "c")
    drain(app, raise_errors=False)
    of: dict[str, list[str]] = defaultdict(list)
    for event in follower.events():
        of[event.job_id].append(f"{event.kind} {event.status}")
    sent = [of[job.id] for job in app.workflows.jobs(flow.id)]
    assert sent == [
        ["enqueued pending", "started running", "completed completed"],
        ["enqueued blocked", "enqueued pending", "started running", "failed failed"],
        ["enqueued blocked", "cancelled cancelled"],
    ]
    bad.clear()
    app.workflows.retry(flow.id)
    drain(app)
    of.clear()
    for event in follower.events():
        of[event.job_id].append(f"{event.kind} {event.status}")
    again = ["enqueued blocked", "enqueued pending", "started running", "completed completed"]
    assert [of[job.id] for job in app.workflows.jobs(flow.id)] == [[], again, again]
    follower.feed.close()


SOME = ("sqlite3", "aiosqlite", "sqlalchemy", "psycopg", "psycopg2", "psycopg-async", "asyncpg")


@over([kind for kind in KINDS if kind.name in SOME and kind.awaited is kind.make.is_async])
def test_events_of_a_callers_transaction_are_emitted_if_it_commits(
    database: Database, kind: Kind
) -> None:
    app = database.app()
    follower = Follower(app.engine)

    async def body() -> list[str]:
        ids = []
        async with kind.opened(database) as caller:
            for commits in (False, True):
                await caller.begin()
                job = await kind.call(app, "enqueue", "send", {}, tx=caller.tx)
                await (caller.commit() if commits else caller.rollback())
                ids.append(job.id)
        return ids

    ids = kind.drive(body())
    assert [event.job_id for event in follower.events()] == ids[1:]
    follower.feed.close()


# Who follows


def life(engine: Engine) -> None:
    """A bit of everything."""
    job = running(engine)
    engine.report([Report(*job.claim, 1.0, None)])
    engine.finish([outcome.completed(job, "1", keep=60.0)])
    engine_commands.cancel(engine, [insert(engine).id], keep=60.0)


def test_no_events_are_written_without_followers(
    database: Database, engine: Engine, clock: FakeClock
) -> None:
    other = database.engine(clock)
    life(engine)
    life(other)
    assert stored(engine) == 0
    follower = Follower(other)
    life(other)  # known at once
    assert len(follower.kinds()) == 6
    clock.advance(1)  # others learn of it within a beat
    life(engine)
    assert len(follower.kinds()) == 6
    follower.feed.close()
    clock.advance(30)
    before = stored(engine)
    life(engine)
    life(other)
    assert stored(engine) == before


def test_a_subscription_remains_after_its_reader_left(engine: Engine, clock: FakeClock) -> None:
    for name, seconds in ((None, 30.0), ("board", 600.0)):
        follower = Follower(engine, name=name)
        begin = follower.feed.position
        clock.advance(seconds - 1)  # it does not read meanwhile
        insert(engine)
        assert len(Follower(engine, begin, name="other").events()) == 1
        clock.advance(700)
        insert(engine)
        for _ in range(2):  # nor after the follower has begun again
            with pytest.raises(EventsGone, match=rf"after position {begin} are gone .* after=None"):
                Follower(engine, begin, name=name)


def test_an_expired_reader_gets_events_gone(engine: Engine, clock: FakeClock) -> None:
    follower = Follower(engine, name="board")
    insert(engine)
    clock.advance(1000)
    insert(engine)  # the subscription has expired
    Follower(engine, name="other")
    with pytest.raises(EventsGone):
        follower.events()


# Reading


def test_a_reader_resumes_from_its_position(engine: Engine) -> None:
    first = Follower(engine, name="board")
    jobs = engine.insert([new() for _ in range(3)])
    events = first.events()
    first.feed.close()
    more = insert(engine)
    again = Follower(engine, events[0].position, name="board")
    assert [event.job_id for event in again.events()] == [job.id for job in (*jobs[1:], more)]
    assert Follower(engine, again.feed.position).events() == []
    assert Follower(engine, events[0].position - 1).events()[:3] == events
    newest = again.feed.position
    with pytest.raises(
        InvalidInput, match=f"after=999: the newest event of this database is {newest}"
    ):
        Follower(engine, 999)


def test_a_reader_that_resumes_at_the_last_event_gets_events_gone_after_a_gap(
    engine: Engine, clock: FakeClock
) -> None:
    first = Follower(engine)
    insert(engine)
    [event] = first.events()
    clock.advance(60)
    insert(engine)  # not written
    with pytest.raises(EventsGone):
        Follower(engine, event.position)
    with pytest.raises(EventsGone):  # nor after another follower has come
        Follower(engine, event.position)


def test_the_outbox_is_bounded(
    engine: Engine, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Follower(engine, name="slow")
    begin = slow.feed.position
    engine.insert([new() for _ in range(30)])
    engine.maintenance.prune_events()
    assert stored(engine) == 30
    monkeypatch.setattr(outbox, "KEPT", 10)
    engine.maintenance.prune_events()
    assert stored(engine) == 10
    with pytest.raises(EventsGone):
        Follower(engine, begin + 19)
    assert len(Follower(engine, begin + 20).events()) == 10
    with pytest.raises(EventsGone, match=f"after position {begin} are gone"):
        slow.events()
    for _ in range(8):
        clock.advance(500)
        engine.run(lambda: outbox.subscribe(engine.dialect, "board", [""], 600), write=True)
    engine.maintenance.prune_events()
    assert stored(engine) == 0  # an hour old
    insert(engine)
    clock.advance(601)
    engine.maintenance.prune_events()
    for table in ("events", "followers"):
        assert execute(engine, f"SELECT * FROM {{{table}}}") == []


def test_readers_filter_events(app: Holdfast) -> None:
    movie = app.enqueue("a", {}, entity=("movie", 7), queue="media")
    wanted: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["a", "b", "c"]),
        ({"type": "a"}, ["a"]),
        ({"queue": "media"}, ["a", "b"]),
        ({"entity": ("movie", 7)}, ["a"]),
        ({"entity": ("movie", "7")}, ["b"]),
        ({"kinds": "cancelled"}, []),
        ({"kinds": ["enqueued", "started"]}, ["a", "b", "c"]),
    ]
    feeds = [(app.events(timeout=0.01, **options), types) for options, types in wanted]
    app.enqueue("a", {}, entity=("movie", 7), queue="media")
    app.enqueue("b", {}, entity=("movie", "7"), queue="media")
    app.enqueue("c", {})
    for events, types in feeds:
        assert [event.type for event in events] == types
        events.close()
        assert list(events) == []
    with app.events(job=movie.id, timeout=0.01) as events:
        app.jobs.cancel(movie.id)
        app.jobs.cancel_all(type="c")
        assert [event.kind for event in events] == ["cancelled"]
    for bad in ({"kinds": "ended"}, {"name": "a b"}, {"job": "x"}, {"after": -1}, {"entity": 7}):
        with pytest.raises(InvalidInput):
            app.events(**bad)  # type: ignore[arg-type]


def test_a_waiting_reader_is_woken_by_an_event(database: Database) -> None:
    """From this process and from another, long before it would look by itself."""
    app, other = database.app(), database.app()
    with app.events() as events:
        other.engine.is_followed()
        heard: list[float] = []

        def listen() -> None:
            for _ in range(20):
                next(events)
                heard.append(time.monotonic())

        thread = threading.Thread(target=listen)
        thread.start()
        sent = []
        for number in range(20):
            sent.append(time.monotonic())
            (app if number % 2 else other).enqueue("send", {})
            deadline = time.monotonic() + 5
            while len(heard) <= number and time.monotonic() < deadline:
                time.sleep(0.001)
        thread.join(10)
    delays = sorted(b - a for a, b in zip(sent, heard, strict=True))
    assert delays[10] < 0.2, delays


def test_a_reader_waits_for_the_database(
    engine: Engine, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise DatabaseUnavailable("gone")

    job = insert(engine)
    with monkeypatch.context() as away:
        away.setattr(engine, "run", fail)
        assert follower.feed.take(0.1) == []
        away.setattr(feed_module, "LOST", 0.0)
        with pytest.raises(DatabaseUnavailable):
            follower.feed.take(0.1)
    assert [event.job_id for event in follower.events()] == [job.id]


def test_async_readers(app: Holdfast) -> None:
    async def read() -> list[str]:
        async with app.aevents(timeout=0.5, kinds="enqueued") as events:
            jobs = [await app.aenqueue("send", {}) for _ in range(3)]
            found = [(await anext(events)).job_id]
            position = events.position
            with pytest.raises(TimeoutError):
                async with app.aevents() as others, asyncio.timeout(0.05):
                    await anext(others)
            found += [event.job_id async for event in events]
            assert found == [job.id for job in jobs]
        assert [event async for event in events] == []
        again = app.aevents(position, timeout=0.01)
        assert [event.job_id async for event in again] == found[1:]
        await again.aclose()
        return found

    assert len(asyncio.run(read())) == 3


def test_events_of_a_job_are_in_order(database: Database) -> None:
    """Concurrent writers, each with its own engine; one reader reads meanwhile, one afterwards."""
    engines = [database.engine() for _ in range(4)]
    follower = Follower(engines[0], name="board")
    begin = follower.feed.position
    live: list[JobEvent] = []
    done = threading.Event()

    def work(number: int) -> None:
        if number == 4:
            while not done.is_set():
                live.extend(follower.feed.take(0.05))
            return
        engine, worker = engines[number], f"host-{number}-a"
        engine.is_followed()
        try:
            engine.beat(worker, "{}")
            for _ in range(15):
                engine.insert([new() for _ in range(5)])
                for job in claim_as(engine, "default", 6, worker=worker, types=["send"]):
                    engine.finish(
                        [
                            outcome.released(job)
                            if job.claim_no < 2
                            else outcome.completed(job, keep=60.0)
                        ]
                    )
        finally:
            if (ended := next(ends)) == 3:
                done.set()
            assert ended <= 3

    ends = iter(range(5))
    in_threads(5, work)
    live += follower.events()
    assert live == Follower(engines[1], begin).events()
    assert [event.position for event in live] == sorted({event.position for event in live})
    lives: dict[str, list[str]] = defaultdict(list)
    for event in live:
        lives[event.job_id].append(event.kind.value)
    run = ["enqueued", "started", "released", "started", "completed"]
    assert len(lives) == 300
    assert [kinds for kinds in lives.values() if kinds != run[: len(kinds)]] == []


# PostgreSQL: positions are not in the order of commits


def begin(app: Holdfast, connection: Any) -> Job:
    """Enqueue in a transaction that stays open."""
    return app.enqueue("late", {}, tx=connection)


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_a_transaction_that_commits_late_is_not_skipped(database: Database) -> None:
    app = database.app()
    follower = Follower(app.engine)
    with psycopg.connect(database.url) as late, psycopg.connect(database.url) as undone:
        first = app.enqueue("send", {})
        held = begin(app, late)
        behind = [app.enqueue("send", {}) for _ in range(3)]
        begin(app, undone)
        last = app.enqueue("send", {})
        assert [event.job_id for event in follower.events()] == [first.id]
        resumed = Follower(app.engine, follower.feed.position)
        late.commit()
        wanted = [job.id for job in (held, *behind)]
        assert [event.job_id for event in follower.events()] == wanted
        assert [event.job_id for event in resumed.events()] == wanted
        undone.rollback()  # what it took is missing for good
        assert [event.job_id for event in follower.events()] == [last.id]
        assert [event.job_id for event in resumed.events()] == [last.id]


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_a_long_foreign_transaction_does_not_delay_events(database: Database) -> None:
    app = database.app()
    follower = Follower(app.engine)
    with psycopg.connect(database.url) as other:
        other.execute("SELECT txid_current()")
        for _ in range(3):
            job = app.enqueue("send", {})
            assert [event.job_id for event in follower.events()] == [job.id]
        begin(app, other)
        assert follower.events() == []
