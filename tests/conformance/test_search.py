"""Searching: newest first, page by page, filters that combine, and pages that stay bounded."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast import BodyNotLoaded, Status
from holdfast.engine import Engine, Filter
from holdfast.job import Job
from tests.support.jobs import claim, in_status, insert, new


def pages(engine: Engine, filter: Filter, limit: int) -> list[Job]:
    found: list[Job] = []
    after = None
    for _ in range(1000):
        page = engine.search(filter, after=after, limit=limit)
        assert len(page.jobs) <= limit
        found += page.jobs
        if page.next is None:
            return found
        assert after is None or page.next < after
        after = page.next
    raise AssertionError("the pages do not end")


def statuses(*names: str) -> frozenset[Status]:
    return frozenset(Status(name) for name in names)


@pytest.fixture
def mixed(engine: Engine) -> list[Job]:
    """Sixty jobs in all statuses, two types, two queues; newest last."""
    for number in range(60):
        status = list(Status)[number % 8]
        in_status(
            engine,
            status,
            type="fetch" if number % 3 else "send-mail",
            queue=f"q{number % 2}-{number}" if status is Status.RUNNING else f"q{number % 2}",
            entity_type="movie" if number % 5 == 0 else None,
            entity_id=str(number % 10) if number % 5 == 0 else None,
            key=f"k{number}",
        )
    return engine.search(Filter(), limit=100).jobs


FILTERS = [
    (Filter(), lambda job: True),
    *((Filter(status=statuses(s)), lambda job, s=s: job.status == s) for s in Status),
    (
        Filter(status=statuses("failed", "running", "pending")),
        lambda job: job.status in ("failed", "running", "pending"),
    ),
    (Filter(status=frozenset(Status)), lambda job: True),
    (Filter(type="fetch"), lambda job: job.type == "fetch"),
    (Filter(prefix="send"), lambda job: job.type == "send-mail"),
    (Filter(prefix="nothing"), lambda job: False),
    (Filter(queue="q0"), lambda job: job.queue == "q0"),
    (Filter(entity=("movie", "0")), lambda job: job.entity == ("movie", 0)),
    (
        Filter(entity=("movie", "5"), status=statuses("failed", "scheduled")),
        lambda job: job.entity == ("movie", 5) and job.status in ("failed", "scheduled"),
    ),
    (
        Filter(status=statuses("pending", "failed"), type="fetch", queue="q1"),
        lambda job: (
            job.status in ("pending", "failed") and job.type == "fetch" and job.queue == "q1"
        ),
    ),
    (Filter(key="k17"), lambda job: job.key == "k17"),
]


def test_every_filter_finds_what_it_says_whatever_the_page(
    engine: Engine, mixed: list[Job]
) -> None:
    assert [job.id for job in mixed] == sorted((job.id for job in mixed), reverse=True)
    for filter, holds in FILTERS:
        expected = [job.id for job in mixed if holds(job)]
        for limit in (1, 2, 3, 7, 60, 61):
            assert [job.id for job in pages(engine, filter, limit)] == expected, (filter, limit)


def test_a_rare_match_costs_bounded_pages(engine: Engine) -> None:
    """A filter without an index looks at a bounded number of rows a page: pages come back short,
    with a cursor to go on from, instead of one page that reads the table."""
    rare = insert(engine, "rare")
    engine.insert([new() for _ in range(100)])
    first = engine.search(Filter(type="rare"), limit=2)
    assert first.jobs == []
    assert first.next is not None
    assert [job.id for job in pages(engine, Filter(type="rare"), 2)] == [rare.id]


def test_by_time_of_creation(engine: Engine) -> None:
    insert(engine)
    now = datetime.now(UTC)
    assert pages(engine, Filter(since=now - timedelta(hours=1)), 10) != []
    assert pages(engine, Filter(since=now + timedelta(hours=1)), 10) == []
    assert pages(engine, Filter(until=now - timedelta(hours=1)), 10) == []
    assert pages(engine, Filter(until=now + timedelta(hours=1)), 10) != []


def test_by_worker(engine: Engine) -> None:
    engine.insert([new() for _ in range(4)])
    claim(engine, 2, worker="a")
    claim(engine, 1, worker="b")
    assert len(pages(engine, Filter(worker_id="a"), 10)) == 2
    assert len(pages(engine, Filter(worker_id="b", status=statuses("running")), 10)) == 1


def test_lists_do_not_read_bodies(engine: Engine) -> None:
    job = insert(engine)
    [listed] = engine.search(Filter()).jobs
    with pytest.raises(BodyNotLoaded, match=f"app.jobs.get.*|{job.id}"):
        _ = listed.payload


def test_get_keeps_the_order_and_leaves_out_the_unknown(engine: Engine) -> None:
    made = engine.insert([new() for _ in range(3)])
    ids = [made[2].id, new().id, made[0].id, made[2].id]
    assert [job.id for job in engine.get(ids)] == [made[2].id, made[0].id]
    assert engine.get([]) == []


def test_entity_ids_keep_their_type(engine: Engine) -> None:
    number = insert(engine, entity_type="movie", entity_id="7")
    text = insert(engine, entity_type="movie", entity_id='"7"')
    assert [job.id for job in pages(engine, Filter(entity=("movie", "7")), 5)] == [number.id]
    assert [job.id for job in pages(engine, Filter(entity=("movie", '"7"')), 5)] == [text.id]
    assert (number.entity, text.entity) == (("movie", 7), ("movie", "7"))
