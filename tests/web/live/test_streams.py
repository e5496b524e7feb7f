"""Live events, over real sockets: what is told, to whom, from where on."""

import threading
import time
from contextlib import ExitStack
from typing import Any

import pytest

from holdfast import Context, Holdfast
from holdfast.events import outbox
from tests.support.waiting import finished, until
from tests.web.serving import PATIENCE, Site, serving


def fields(told: dict[str, Any]) -> set[str]:
    return set(told["data"])


def test_the_life_of_a_job_in_the_shape_that_pages_expect(site: Site, carrier: Any) -> None:
    app = site.app
    told = threading.Event()

    @app.task(name="enrich")
    def enrich(ctx: Context, n: int) -> dict[str, Any]:
        if ctx.attempt == 1:
            raise ValueError("once")
        ctx.progress(25, "a quarter")
        assert told.wait(PATIENCE)
        return {"n": n, "api_key": "K"}

    with carrier(site) as subscriber:
        hello = subscriber.take()
        assert (hello["event"], hello["data"]) == ("hello", {})
        job = enrich.using(entity=("movie", 7)).enqueue(n=2**60)
        with app.worker():
            frames = subscriber.until("job:progress")
            told.set()
            frames += subscriber.until("job:complete")
    assert [frame["event"] for frame in frames] == [
        "job:enqueued",
        "job:started",
        "job:retrying",
        "job:started",
        "job:progress",
        "job:complete",
    ]
    positions = [frame["position"] for frame in frames]
    assert positions == sorted(set(positions))
    assert positions[0] > hello["position"]
    enqueued, started, retrying, _, progress, complete = (frame["data"] for frame in frames)
    assert progress == {
        "job_id": job.id,
        "type": "enrich",
        "status": "running",
        "progress": 25.0,
        "message": "a quarter",
    }
    assert complete == {
        "job_id": job.id,
        "type": "enrich",
        "result": {"n": 2**60, "api_key": "[redacted]"},
    }
    assert {"error": "ValueError: once", "attempts": 1, "max_attempts": 2}.items() <= (
        retrying.items()
    )
    assert set(retrying) == {
        *("job_id", "type", "status", "error", "attempts", "max_attempts", "run_at"),
    }
    assert retrying["run_at"].endswith("Z")
    assert (enqueued["status"], enqueued["entity_type"], enqueued["entity_id"]) == (
        *("pending", "movie"),
        7,
    )
    assert (started["status"], started["queue"]) == ("running", "default")
    assert started["worker_id"]


def test_a_failure_is_told_when_it_is_final(site: Site, carrier: Any) -> None:
    @site.app.task(max_attempts=1)
    def fails() -> None:
        raise ValueError("no")

    with carrier(site) as subscriber:
        subscriber.take()
        job = fails.enqueue()
        with site.app.worker():
            failed = subscriber.until("job:failed")[-1]
    assert failed["data"] == {
        "job_id": job.id,
        "type": "fails",
        "error": "ValueError: no",
        "attempts": 1,
        "max_attempts": 1,
    }


def test_filters(site: Site, carrier: Any) -> None:
    app = site.app

    @app.task(name="one")
    def one() -> None: ...

    @app.task(name="two", queue="media")
    def two() -> None: ...

    queries = {
        "?type=two": ("job:enqueued", 1),
        "?queue=media": ("job:enqueued", 1),
        "?entity=movie:7": ("job:enqueued", 2),
        "?job={held}": ("job:cancelled", 0),
        "?kinds=cancelled": ("job:cancelled", 0),
        "?kinds=job:cancelled,job:complete": ("job:cancelled", 0),
    }
    for query, (name, which) in queries.items():
        held = one.using(delay="1h").enqueue()
        with carrier(site, query.format(held=held.id)) as subscriber:
            begin = subscriber.take()["position"]
            made = [held.id, two.enqueue().id, one.using(entity=("movie", 7)).enqueue().id]
            one.using(entity=("movie", "7")).enqueue()
            app.jobs.cancel(held.id)
            found = subscriber.until(name)  # of a job of its own also that it was made, if just now
            assert {told["data"]["job_id"] for told in found} == {made[which]}, query
            assert found[0]["position"] > begin
            until(lambda: site.hub.position == newest(app), "all that was told")


def newest(app: Holdfast) -> int:
    return app.engine.run(outbox.bounds, write=False).newest


def enqueue(app: Holdfast, count: int) -> list[str]:
    return [app.enqueue("nobody").id for _ in range(count)]


def ids(frames: list[dict[str, Any]]) -> list[str]:
    return [frame["data"]["job_id"] for frame in frames if frame["event"] == "job:enqueued"]


def take(subscriber: Any, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + 2 * PATIENCE  # pings go on
    while len(found) < count:
        told = subscriber.take()
        assert told is not None
        assert time.monotonic() < deadline, f"{len(found)} of {count} came"
        if told["event"] == "job:enqueued":
            found.append(told)
    return found


@pytest.mark.parametrize("kept", [10_000, 3], ids=["from-the-ring", "from-the-database"])
def test_who_comes_back_misses_nothing_and_gets_nothing_twice(
    site: Site, carrier: Any, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.web.live.hub.KEPT", kept)
    monkeypatch.setattr("holdfast.web.live.hub.BATCH", 4)
    with site.socket() as other, carrier(site) as subscriber:  # the other one keeps the ring warm
        other.take()
        subscriber.take()
        made = enqueue(site.app, 3)
        seen = take(subscriber, 3)
        take(other, 3)
        position = seen[-1]["position"]
    made += enqueue(site.app, 20)
    with site.socket(f"?after={position}") as other, carrier(site, f"?after={position}") as again:
        made += enqueue(site.app, 5)
        seen += take(again, 25)
        assert ids(seen) == made
        assert ids(take(other, 25)) == made[3:]


def test_an_event_stream_resumes_by_its_last_id(site: Site) -> None:
    with site.sse() as subscriber:
        subscriber.take()
        made = enqueue(site.app, 2)
        take(subscriber, 2)
        last = subscriber.id
    made += enqueue(site.app, 3)
    with site.sse("?after=0", last=last) as subscriber:
        assert ids(take(subscriber, 3)) == made[2:]


def test_a_cold_server_resumes_from_the_database(app: Holdfast, carrier: Any) -> None:
    """As after a restart: another process knows nothing of what was told."""
    with serving(app) as site, carrier(site) as subscriber:
        subscriber.take()
        made = enqueue(app, 2)
        position = take(subscriber, 2)[-1]["position"]
    made += enqueue(app, 7)
    with serving(app) as site, carrier(site, f"?after={position}") as subscriber:
        assert ids(take(subscriber, 7)) == made[2:]


def test_what_is_gone_is_said_to_be(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with site.socket() as subscriber:
        begin = subscriber.take()["position"]
        enqueue(site.app, 3)
        take(subscriber, 3)
        monkeypatch.setattr("holdfast.web.live.hub.KEPT", 1)
        enqueue(site.app, 2)
        take(subscriber, 2)
        monkeypatch.setattr("holdfast.events.outbox.KEPT", 2)
        until(lambda: site.app.engine.maintenance.prune_events() == 0)
        with site.socket(f"?after={begin}") as late:
            assert late.code() == 4410
        with site.sse(f"?after={begin}") as late:
            told = late.take()
            assert told is not None
            assert told["event"] == "gone"
            assert late.id == str(site.hub.position)  # who comes back begins here
            assert late.take() is None
        with site.socket(f"?after={10**15}") as wrong:  # of another database
            assert wrong.code() == 4410


def test_who_was_away_while_nobody_followed_is_told_so(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.events.feed.UNNAMED", 0.5)
    with serving(app) as site, site.socket() as subscriber:
        subscriber.take()
        enqueue(app, 1)
        position = take(subscriber, 1)[-1]["position"]
    until(lambda: not app.engine.run(lambda: outbox.read_followers(app.engine.dialect), write=True))
    enqueue(app, 1)  # is not written
    with serving(app) as site, site.socket() as other:  # from here on it is
        other.take()
        with site.socket(f"?after={position}") as late:
            assert late.code() == 4410


def test_nothing_is_written_when_nobody_follows_any_more(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.events.feed.UNNAMED", 3.0)
    monkeypatch.setattr("holdfast.web.live.hub.LINGER", 0.1)
    dialect = app.engine.dialect
    with serving(app) as site:
        assert not threads()  # nor is there a thread before the first
        with site.socket() as one, site.sse() as other:
            one.take()
            other.take()
            enqueue(app, 1)
            assert threads() == ["holdfast-live"]
            take(one, 1)
            take(other, 1)
        until(lambda: not threads(), "the end of the thread")
        until(
            lambda: not app.engine.run(lambda: outbox.read_followers(dialect), write=True),
            "the end",
        )
        before = newest(app)
        enqueue(app, 3)
        assert newest(app) == before
        with site.socket() as again:  # and it begins anew
            again.take()
            made = enqueue(app, 1)
            assert ids(take(again, 1)) == made


def threads() -> list[str]:
    found = [thread.name for thread in threading.enumerate()]
    return [name for name in found if name == "holdfast-live"]


def test_a_first_follower_is_greeted_again_once_all_writers_know(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.web.live.hub.SETTLED", 0.2)
    with site.socket() as subscriber:
        assert subscriber.take()["event"] == "hello"
        assert subscriber.take()["event"] == "hello"


def test_a_ping_keeps_the_position_of_who_wants_little(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.web.live.stream.TICK", 0.2)
    with site.sse("?kinds=failed") as subscriber, site.socket("?kinds=failed") as other:
        first = subscriber.take()
        assert first is not None
        other.take()
        enqueue(site.app, 3)
        until(lambda: site.hub.position > first["position"] + 2)
        while (ping := other.take())["event"] == "ping":
            if ping["position"] == site.hub.position:
                break
        position = site.hub.position
        site.web.close()
        assert subscriber.rest() == []
        assert int(subscriber.id) == position
        assert "ping" in subscriber.comments
        assert other.code() == 1012  # before we close it ourselves


def test_an_event_stream_ends_by_itself_and_says_where(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.web.api.events.LIFE", 0.3)
    with site.sse() as subscriber:
        headers = subscriber.response.headers
        assert headers["content-type"] == "text/event-stream; charset=utf-8"
        assert headers["x-accel-buffering"] == "no"
        assert "access-control-allow-origin" not in headers
        assert [told["event"] for told in subscriber.rest()] == ["hello"]
        assert int(subscriber.id) == site.hub.position


def test_200_followers_are_told_the_same_500_events(site: Site) -> None:
    with ExitStack() as stack:
        subscribers = [stack.enter_context(site.socket()) for _ in range(200)]
        for subscriber in subscribers:
            subscriber.take()
        made = enqueue_many(site.app, 500)
        for subscriber in subscribers:
            assert ids(take(subscriber, 500)) == made


def enqueue_many(app: Holdfast, count: int) -> list[str]:
    @app.task(name="many")
    def many() -> None: ...

    return [job.id for job in many.enqueue_many([{}] * count)]


def test_a_job_ends_for_all_carriers_at_once(site: Site) -> None:
    @site.app.task
    def big() -> str:
        return "x" * 70_000

    viewer = site.token_of("viewer")
    with site.socket() as one, site.sse(token=viewer) as other:
        one.take()
        other.take()
        job = big.enqueue()
        with site.app.worker():
            finished(site.app, job)
        expected = {"job_id": job.id, "type": "big", "result": None, "result_left_out": True}
        assert one.until("job:complete")[-1]["data"] == expected
        assert other.until("job:complete")[-1]["data"] == expected
