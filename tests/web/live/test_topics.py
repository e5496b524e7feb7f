"""What is written for those who follow through a server: their jobs, or everything."""

import asyncio
from contextlib import ExitStack
from typing import Any

import pytest
from starlette.concurrency import run_in_threadpool

from holdfast import Holdfast, Job
from holdfast.web.live.stream import Stream
from tests.events.test_events import stored
from tests.support.jobs import execute
from tests.support.waiting import until
from tests.web.live.test_access import link_of
from tests.web.live.test_streams import enqueue, ids, take
from tests.web.serving import Site


def held(app: Holdfast) -> Job:
    return app.enqueue("nobody", {}, delay="1h")


def topics(app: Holdfast) -> set[str]:
    return {row[0] for row in execute(app.engine, "SELECT topic FROM {followers}")}


def test_of_who_follow_a_job_each_only_these_are_written(site: Site) -> None:
    app = site.app
    jobs = [held(app) for _ in range(20)]
    with ExitStack() as stack:
        sockets = [stack.enter_context(site.socket(f"?job={job.id}")) for job in jobs]
        linked = stack.enter_context(site.socket(link_of(site, jobs[0]), headers={}))
        for socket in (*sockets, linked):
            socket.take()
        assert topics(app) == {job.id for job in jobs}
        enqueue(app, 30)
        for job in jobs:
            app.jobs.cancel(job.id)
        for job, socket in zip(jobs, sockets, strict=True):
            [told] = socket.until("job:cancelled")
            assert told["data"]["job_id"] == job.id
        assert linked.until("job:cancelled")
        assert stored(app.engine) == len(jobs)


def test_a_board_may_come_and_go_beside_them(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.events.feed.UNNAMED", 1.5)
    app = site.app
    one, two = held(app), held(app)
    with site.socket(f"?job={one.id}") as own:
        own.take()
        with site.socket() as board:
            board.take()
            made = enqueue(app, 3)
            assert ids(take(board, 3)) == made
        until(lambda: not app.engine.is_followed([two.id]), "the end of the board")
        before = stored(app.engine)
        enqueue(app, 3)
        assert stored(app.engine) == before
        app.jobs.cancel(one.id)
        assert len(own.until("job:cancelled")) == 1
        with site.socket() as again:
            again.take()
            made = enqueue(app, 1)
            assert ids(take(again, 1)) == made


def test_who_comes_back_to_a_job_at_once_is_let_in(site: Site, carrier: Any) -> None:
    """The feed lingers, and follows it still."""
    app = site.app
    job = held(app)
    for _ in range(3):
        with carrier(site, f"?job={job.id}") as subscriber:
            position = subscriber.take()["position"]
        app.jobs.cancel(job.id)
        with carrier(site, f"?job={job.id}&after={position}") as subscriber:
            assert len(subscriber.until("job:cancelled")) == 1
            app.jobs.retry(job.id)
            assert len(subscriber.until("job:enqueued")) == 1


def test_who_comes_back_to_a_job_misses_nothing_of_it(site: Site, carrier: Any) -> None:
    app = site.app
    one, two = held(app), held(app)
    with site.socket(f"?job={two.id}") as beside:
        beside.take()
        with carrier(site, f"?job={one.id}") as subscriber:
            position = subscriber.take()["position"]
        app.jobs.cancel(one.id)
        with carrier(site, f"?job={one.id}&after={position}") as subscriber:
            assert len(subscriber.until("job:cancelled")) == 1


def test_who_asks_for_what_was_not_written_is_told_where_it_begins(site: Site) -> None:
    app = site.app
    one, two = held(app), held(app)
    with site.socket(f"?job={one.id}") as own:
        position = own.take()["position"]
        app.jobs.cancel(two.id)  # is not written
        with site.socket(f"?job={two.id}&after={position}") as late:
            assert late.code() == 4410
        with site.sse(f"?job={two.id}&after={position}") as gone:
            assert [told["event"] for told in gone.rest()] == ["gone"]
        with site.sse(f"?job={two.id}&after={position}", last=gone.id) as again:
            app.jobs.retry(two.id)
            assert again.until("job:enqueued")[0]["data"]["job_id"] == two.id


def test_who_begins_later_is_greeted_again_too(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = held(site.app), held(site.app)
    with site.socket(f"?job={one.id}") as first:
        first.take()
        monkeypatch.setattr("holdfast.web.live.hub.SETTLED", 0.2)
        with site.socket(f"?job={two.id}") as subscriber:
            assert subscriber.take()["event"] == "hello"
            assert subscriber.take()["event"] == "hello"


def test_a_guest_whose_job_ends_while_it_is_let_in_is_told_so_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is followed already, and how it stands is looked up after that."""
    job = held(site.app)
    look = Stream.present

    async def late(stream: Stream) -> Any:
        if stream.at == stream.present_position:
            await run_in_threadpool(site.app.jobs.cancel, job.id)
            while stream.at == stream.present_position:
                await asyncio.sleep(0.01)
        return await look(stream)

    monkeypatch.setattr(Stream, "present", late)
    with site.sse(link_of(site, job), headers={}) as guest:
        assert [told["event"] for told in guest.rest()] == ["job:cancelled"]
