"""Sampled events, a few of each kind a second, so that an open dashboard costs little. The others are
not written, unless there is a follower of all events or of that job."""

import pytest

from holdfast.core.clock import FakeClock
from holdfast.engine.engine import Engine
from holdfast.events.event import JobEvent
from holdfast.events.feed import Feed
from holdfast.events.sampling import GLANCE, MOST
from holdfast.jobs import outcome
from holdfast.jobs.job import EventKind, Job
from tests.conftest import Database
from tests.events.test_events import Follower, stored
from tests.support.jobs import claim, insert, new

MANY = 4 * MOST


@pytest.fixture
def sampled(engine: Engine) -> Feed:
    return Feed(engine, None, None, lambda event: True, [GLANCE])


def taken(feed: Feed) -> list[JobEvent]:
    found: list[JobEvent] = []
    while some := feed.take(0):
        found += some
    return found


def kinds(feed: Feed) -> list[str]:
    return [event.kind for event in taken(feed)]


def fill(engine: Engine, number: int = MANY) -> list[Job]:
    return engine.insert([new() for _ in range(number)])


def finish(engine: Engine, jobs: list[Job]) -> None:
    engine.finish([outcome.completed(job, keep=60.0) for job in jobs])


def test_all_events_of_a_low_rate_are_delivered(engine: Engine, sampled: Feed) -> None:
    fill(engine, 3)
    finish(engine, claim(engine, 3))
    assert kinds(sampled) == ["enqueued"] * 3 + ["started"] * 3 + ["completed"] * 3


def test_of_a_high_rate_a_sample_of_each_kind_is_written(
    engine: Engine, clock: FakeClock, sampled: Feed
) -> None:
    fill(engine)
    fill(engine)
    jobs = claim(engine, MANY)
    finish(engine, jobs[: MANY // 2])
    finish(engine, jobs[MANY // 2 :])
    assert kinds(sampled) == ["enqueued"] * MOST + ["started"] * MOST + ["completed"] * MOST
    assert stored(engine) == 3 * MOST
    clock.advance(1)
    fill(engine)
    assert kinds(sampled) == ["enqueued"] * MOST


def test_rare_events_are_delivered_with_frequent_ones(engine: Engine, sampled: Feed) -> None:
    fill(engine)
    jobs = claim(engine, MANY)
    failed = outcome.failed(jobs[-1], "broken", keep=60.0)
    engine.finish([*(outcome.completed(job, keep=60.0) for job in jobs[:-1]), failed])
    [broken] = [event for event in taken(sampled) if event.kind is EventKind.FAILED]
    assert broken.job_id == jobs[-1].id


def test_a_follower_of_all_beside_a_sampling_one_misses_nothing(
    engine: Engine, sampled: Feed
) -> None:
    every = Follower(engine)
    fill(engine)
    finish(engine, claim(engine, MANY))
    assert len(every.events()) == 3 * MANY


def test_a_follower_of_a_job_beside_a_sampling_one_misses_nothing(
    engine: Engine, sampled: Feed
) -> None:
    fill(engine)
    last = insert(engine)
    own = Follower(engine, job=last.id)
    finish(engine, claim(engine, MANY + 1))
    assert own.kinds() == ["started", "completed"]
    assert stored(engine) == 3 * MOST + 2


def test_a_sampling_follower_does_not_count_as_a_follower_of_all(
    engine: Engine, sampled: Feed
) -> None:
    fill(engine)
    every = Follower(engine)
    assert every.feed.since[""] > sampled.since[GLANCE]


def test_another_process_samples_for_the_follower(
    database: Database, engine: Engine, clock: FakeClock, sampled: Feed
) -> None:
    other = database.engine(clock)
    clock.advance(1)
    fill(other)
    finish(other, claim(other, MANY))
    assert stored(engine) == 3 * MOST


def test_a_spent_sampling_budget_costs_writers_nothing(engine: Engine, sampled: Feed) -> None:
    ids = [job.id for job in fill(engine)]
    assert not engine.is_followed(ids, [EventKind.ENQUEUED])
    assert not engine.is_followed(None, [EventKind.ENQUEUED])
    assert engine.is_followed(ids, [EventKind.ENQUEUED, EventKind.STARTED])
    assert engine.is_followed()
