"""Only events with followers are written: of all jobs, or of some. A follower of a job misses none of
its events, whichever followers come and go; and a returning one gets EventsGone after a gap."""

import threading

import psycopg
import pytest

from holdfast import DatabaseUnavailable
from holdfast.core.clock import FakeClock
from holdfast.engine.engine import Engine
from holdfast.engine.records import Report
from holdfast.errors import EventsGone
from holdfast.events import outbox
from holdfast.events.event import JobEvent
from holdfast.events.feed import Feed
from holdfast.jobs import outcome
from holdfast.jobs.job import Job
from tests.conftest import Database
from tests.events.test_events import Follower, life, stored
from tests.support import engine_commands
from tests.support.jobs import claim, insert, new

RUN = ["started", "progress", "completed"]
BEGAN = ["started", "progress"]


def run(engine: Engine, job: Job) -> None:
    """Together with another one, in one batch."""
    engine.insert([new(job.type)])
    claimed = claim(engine, 2, types=[job.type])
    assert job.id in {one.id for one in claimed}
    engine.report([Report(*one.claim, 5.0, None) for one in claimed])
    engine.finish([outcome.completed(one, "1", keep=60.0) for one in claimed])


def test_only_events_of_followed_jobs_are_written(
    database: Database, engine: Engine, clock: FakeClock
) -> None:
    other = database.engine(clock)
    jobs = [insert(other, type=name) for name in ("a", "b", "c")]
    followers = [Follower(engine, job=job.id) for job in jobs[:2]]
    clock.advance(1)  # the other learns of it within a beat
    for job in jobs:
        run(other, job)
    life(engine)
    assert stored(engine) == 2 * len(RUN)
    for job, follower in zip(jobs, followers, strict=False):
        assert [(event.job_id, event.kind) for event in follower.events()] == [
            (job.id, kind) for kind in RUN
        ]
        follower.feed.close()
    clock.advance(31)
    life(engine)
    assert stored(engine) == 2 * len(RUN)


def test_events_of_every_job_are_written_for_a_follower_of_all(
    engine: Engine, clock: FakeClock
) -> None:
    job = insert(engine, type="a")
    own, every = Follower(engine, job=job.id), Follower(engine)
    run(engine, job)
    assert own.kinds() == RUN
    assert len(every.events()) == 2 * len(RUN) + 1
    clock.advance(29)
    own.feed.follow([job.id, insert(engine, type="b").id])
    own.events()  # it is renewed by that; the other is not
    clock.advance(2)
    before = stored(engine)
    life(engine)
    assert stored(engine) == before


def test_a_follower_of_a_job_is_not_disturbed_by_new_followers(engine: Engine) -> None:
    """Nothing of it is missing, whatever was not written of others."""
    job = insert(engine, type="a")
    own = Follower(engine, job=job.id)
    begin = own.feed.position
    life(engine)
    every = Follower(engine)
    run(engine, job)
    assert own.kinds() == RUN
    assert Follower(engine, begin, job=job.id).kinds() == RUN
    with pytest.raises(EventsGone, match=rf"\(they begin at {every.feed.since['']}\)"):
        Follower(engine, begin)


def test_a_follower_that_returns_to_a_job_resumes(engine: Engine, clock: FakeClock) -> None:
    job, other = insert(engine, type="a"), insert(engine, type="b")
    own = Follower(engine, job=job.id)
    assert Follower(engine, own.feed.position, job=job.id).kinds() == []  # at once
    begin = own.feed.position
    own.feed.close()
    run(engine, job)
    clock.advance(29)
    again = Follower(engine, begin, job=job.id)
    assert again.kinds() == RUN
    with pytest.raises(EventsGone, match=f"after position {begin} are gone"):
        Follower(engine, begin, job=other.id)
    with pytest.raises(EventsGone):  # nor the second time, after it has begun
        Follower(engine, begin, job=other.id)
    newest = again.feed.position
    again.feed.close()
    clock.advance(31)
    insert(engine, type="a")
    with pytest.raises(EventsGone):
        Follower(engine, newest, job=job.id)


def test_a_narrower_subscription_continues_an_earlier_one(engine: Engine, clock: FakeClock) -> None:
    """First a follower of all, then one of the job: no event of the job is missing."""
    job = insert(engine, type="a")
    every = Follower(engine)
    begin = every.feed.position
    engine.report([Report(*claim(engine, types=["a"])[0].claim, 5.0, None)])
    clock.advance(20)
    own = Follower(engine, begin, job=job.id)
    assert own.kinds() == BEGAN
    clock.advance(20)  # no follower of all is left
    assert Follower(engine, begin, job=job.id).kinds() == BEGAN
    with pytest.raises(EventsGone):
        Follower(engine, begin)


def test_a_feed_changes_its_topics(engine: Engine, clock: FakeClock) -> None:
    one, two = insert(engine, type="a"), insert(engine, type="b")
    feed = Feed(engine, None, None, lambda event: True, [one.id])
    first = feed.since[one.id]
    feed.follow([one.id, two.id])
    assert feed.take(0) == []
    assert (feed.since[one.id], feed.since[two.id] > first) == (first, True)
    for job in (one, two):
        run(engine, job)
    assert [event.job_id for event in feed.take(0)] == [one.id] * 3 + [two.id] * 3
    feed.follow([two.id])
    clock.advance(29)
    feed.follow([two.id, insert(engine).id])
    assert feed.take(0) == []
    clock.advance(2)
    assert len(engine_commands.retry(engine, [one.id, two.id])) == 2
    assert [event.job_id for event in feed.take(0)] == [two.id]
    feed.close()


def test_a_feed_without_a_database_subscribes_later(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = insert(engine, type="a"), insert(engine, type="b")
    feed = Feed(engine, None, None, lambda event: True, [one.id])
    feed.follow([one.id, two.id])

    def away(*_: object, **__: object) -> None:
        raise DatabaseUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "run", away)
        assert feed.take(0) == []
        assert set(feed.since) == {one.id}
    assert feed.take(0) == []
    assert set(feed.since) == {one.id, two.id}
    run(engine, two)
    assert [event.job_id for event in feed.take(0)] == [two.id] * 3
    feed.close()


def test_a_new_topic_ends_the_wait_of_a_feed(engine: Engine) -> None:
    """Otherwise a new client would wait until the next poll."""
    feed = Feed(engine, None, None, lambda event: True, [insert(engine).id])
    found: list[JobEvent] = []
    thread = threading.Thread(target=lambda: found.extend(feed.take(60)))
    thread.start()
    feed.interrupt()
    thread.join(20)
    assert (thread.is_alive(), found) == (False, [])
    feed.close()


def test_an_expired_reader_of_a_job_gets_events_gone(engine: Engine, clock: FakeClock) -> None:
    job = insert(engine, type="a")
    own = Follower(engine, job=job.id)
    clock.advance(31)
    engine.report([Report(*claim(engine, types=["a"])[0].claim, 5.0, None)])  # is not written
    Follower(engine)
    engine_commands.cancel(engine, [job.id], keep=60.0)
    engine.report([Report(job.id, 1, 6.0, None)])  # is
    with pytest.raises(EventsGone):
        own.events()


def test_an_expired_reader_still_gets_events_written_for_others(
    engine: Engine, clock: FakeClock
) -> None:
    job = insert(engine, type="a")
    own = Follower(engine, job=job.id)
    Follower(engine, name="board")
    assert own.kinds() == []
    clock.advance(31)
    run(engine, job)
    assert own.kinds() == RUN


def test_beyond_a_bound_of_topics_all_events_are_written(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "TOPICS", 2)
    jobs = [insert(engine, type="a") for _ in range(3)]
    followers = [Follower(engine, job=job.id) for job in jobs[:2]]
    life(engine)
    assert stored(engine) == 0
    followers.append(Follower(engine, job=jobs[2].id))
    life(engine)
    assert stored(engine) > 3
    assert [follower.events() for follower in followers] == [[], [], []]


def test_one_name_may_have_several_topics(engine: Engine) -> None:
    one, two = insert(engine, type="a"), insert(engine, type="b")
    followers = [Follower(engine, job=job.id, name="board") for job in (one, two)]
    for job in (one, two):
        run(engine, job)
    assert [follower.kinds() for follower in followers] == [RUN, RUN]


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_a_new_follower_does_not_delay_others(database: Database) -> None:
    """A new follower takes a position of its own, so it waits for no transaction of others."""
    app = database.app()
    every = Follower(app.engine)
    with psycopg.connect(database.url) as long:
        long.execute("SELECT txid_current()")
        for _ in range(3):
            job = app.enqueue("send", {})
            Follower(app.engine, job=job.id)
            newer = app.enqueue("send", {})
            assert [event.job_id for event in every.events()] == [job.id, newer.id]


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_events_of_a_new_topic_may_precede_the_position_of_the_feed(database: Database) -> None:
    """An open transaction delays the events behind it, also for new topics."""
    app = database.app()
    jobs = [app.enqueue("send", {}) for _ in range(3)]
    feed = Feed(app.engine, None, None, lambda event: True, [jobs[0].id])
    with psycopg.connect(database.url) as late:
        late.execute(f"SELECT txid_current(), nextval('{database.schema}.events_position_seq')")
        for count in (2, 3):
            feed.follow([job.id for job in jobs[:count]])
            assert feed.take(0) == []
        assert feed.position < feed.since[jobs[1].id] < feed.since[jobs[2].id]
    app.jobs.cancel(jobs[2].id)
    assert [event.job_id for event in feed.take(5)] == [jobs[2].id]
    feed.close()
