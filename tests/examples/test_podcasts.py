"""The podcast directory: real servers, a real publisher, real kills. Many tests check one run."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.harness import Harness
from examples.podcasts import app as jobs
from examples.podcasts import feeds, publisher, server, store
from examples.podcasts.checks import LIMIT, Facts, is_well, is_whole, run_checks
from examples.remote_server import RemoteServer
from holdfast import Job
from holdfast.testing import temporary


@pytest.fixture(scope="module")
def facts() -> Facts:
    with Harness("podcasts") as harness:
        return run_checks(harness)


def pid(worker_id: str | None) -> int:
    """worker_id is host-pid-random."""
    return int((worker_id or "").split("-")[-2])


# the registry, and a job's row


def test_the_registry_has_a_handler_and_a_limit_for_each_task(facts: Facts) -> None:
    assert set(jobs.app.tasks) == {"podcast_import", "analytics"}
    assert jobs.app.tasks["podcast_import"].handler.__name__ == "podcast_import"
    [limit] = facts.limits
    assert (limit.name, limit.concurrency, limit.running) == ("podcast_import", 3, 3)


def test_a_job_has_every_column_of_the_design(facts: Facts) -> None:
    job = next(job for job in facts.jobs if job.id == facts.podcasts["late-0"]["job"]["id"])
    assert job.type == "podcast_import"
    assert job.payload == {"podcast_id": facts.acknowledged["late-0"]}
    assert (job.status, job.attempts, job.error) == ("completed", 1, None)
    assert job.started_at is not None
    assert job.completed_at is not None
    assert job.created_at <= job.started_at <= job.completed_at


# the web handler


Ask = Callable[..., httpx.Response]


def ask(method: str, path: str, **options: Any) -> httpx.Response:
    """A request to the application, without a server."""

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(server.api)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(method, path, **options)

    return asyncio.run(send())


@pytest.fixture
def at_rest(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """The directory without its worker: what is enqueued stays."""
    with temporary(jobs.app):
        monkeypatch.setattr(store, "PATH", Path(jobs.app.url.removeprefix("sqlite:///")))
        jobs.app.migrate()
        store.prepare()
        yield ask


def test_an_import_is_acknowledged_before_it_runs(facts: Facts) -> None:
    """Eight were, while the publisher answered none."""
    assert len(facts.shown_while_full) == 8
    assert all(shown["title"] is None for shown in facts.shown_while_full)


def test_a_podcast_and_its_job_are_committed_together(at_rest: Ask) -> None:
    url = "http://127.0.0.1/a.xml"
    with store.transaction() as connection:
        podcast_id = store.find_or_add(connection, url)
        jobs.podcast_import.using(tx=connection).enqueue(podcast_id=podcast_id)
        connection.execute("ROLLBACK")
        connection.execute("BEGIN")
    assert (store.find(podcast_id), jobs.app.jobs.count()) == (None, 0)
    told = at_rest("POST", "/podcasts/import", json={"url": url})
    assert told.status_code == 202
    assert store.find(told.json()["id"]) is not None
    assert jobs.app.jobs.get(told.json()["job"]["id"]).status == "pending"


def test_an_import_that_cannot_be_enqueued_leaves_no_podcast(at_rest: Ask) -> None:
    """The handler itself: its row goes when the enqueue fails."""
    with store.transaction() as connection:
        connection.execute(
            "CREATE TRIGGER no_room BEFORE INSERT ON holdfast_jobs"
            " BEGIN SELECT RAISE(ABORT, 'full'); END"
        )
    with pytest.raises(Exception, match="full"):
        at_rest("POST", "/podcasts/import", json={"url": "http://127.0.0.1/a.xml"})
    with store.transaction() as connection:
        assert connection.execute("SELECT count(*) FROM podcasts").fetchone()[0] == 0


def test_a_repeated_request_gets_the_same_import(at_rest: Ask) -> None:
    body = {"url": "http://127.0.0.1/a.xml"}
    first, again = (at_rest("POST", "/podcasts/import", json=body).json() for _ in range(2))
    assert (first["id"], first["job"]["id"]) == (again["id"], again["job"]["id"])
    assert jobs.app.jobs.count() == 1


def test_an_invalid_address_is_refused(at_rest: Ask) -> None:
    assert at_rest("POST", "/podcasts/import", json={"url": "not a feed"}).status_code == 422
    assert at_rest("GET", "/podcasts/unknown").status_code == 404
    assert jobs.app.jobs.count() == 0


def test_the_dashboard_is_mounted_and_requires_a_token(at_rest: Ask) -> None:
    answer = at_rest("GET", "/admin/jobs/api/v1/jobs")
    assert answer.status_code == 401


# the worker inside the server


def test_jobs_run_inside_the_web_server(facts: Facts) -> None:
    """Every run was in a process that was started as a web server."""
    assert {pid(job.worker_id) for job in facts.jobs} <= set(facts.server_pids)
    assert len({pid(job.worker_id) for job in facts.jobs}) >= 2


def test_the_server_answers_while_its_handlers_wait(facts: Facts) -> None:
    """All three of its handlers hung on the publisher, on the server's own event loop."""
    assert len(facts.shown_while_full) == 8
    assert facts.statuses_while_full.count("running") == LIMIT


def test_a_server_uses_its_whole_limit(facts: Facts) -> None:
    """One handler does not wait for the end of another."""
    assert facts.statuses_while_full == ["pending"] * 5 + ["running"] * 3


# the limit


def test_the_limit_is_counted_over_all_servers(facts: Facts) -> None:
    """The second server was free and ran other jobs, and no import."""
    assert facts.second_ran_a_probe
    assert facts.peaks["two servers"] == LIMIT


def test_never_more_than_three_fetches_were_in_flight(facts: Facts) -> None:
    """As the publisher counted: with one server and with two, over kills and restarts."""
    assert facts.peaks == {"two servers": 3, "after the kills": 3}


def test_the_reason_for_waiting_is_shown(facts: Facts) -> None:
    assert facts.waits == ["limit podcast_import: 3 of 3 running, 5th in line"]


def test_jobs_of_a_killed_server_are_reclaimed(facts: Facts) -> None:
    """Its three runs were given to others, as the same attempts."""
    assert len(facts.orphans) == LIMIT
    for job in facts.orphans:
        assert (job.status, job.attempts) == ("completed", 1)
        assert job.claim_no >= 2
        assert pid(job.worker_id) != facts.server_pids[0]


def test_jobs_of_a_killed_server_stop_counting_against_the_limit(facts: Facts) -> None:
    """It held all three places, and after its death three fetches were in flight again."""
    assert facts.peaks["after the kills"] == LIMIT


def test_a_hanging_import_is_stopped_and_frees_its_slot(at_rest: Ask) -> None:
    """Its publisher never answers. It has five minutes, here less; then its place is free again."""
    assert at_rest("GET", "/openapi.json").is_success
    with RemoteServer(publisher.site) as remote:
        remote.hold()
        with store.transaction() as connection:
            podcast_id = store.find_or_add(connection, f"{remote.url}/hangs.xml")
        hangs = jobs.podcast_import.using(timeout="1s").enqueue(podcast_id=podcast_id)
        with Harness("hangs") as harness, jobs.app.worker():
            harness.until("it is fetched", lambda: remote.in_flight == 1)
            harness.until("it is stopped", lambda: remote.in_flight == 0)
            job = harness.until("it is written", lambda: retrying(hangs.id))
    assert job.error == "TimeoutError: timed out after 1 s"
    assert [limit.running for limit in jobs.app.limits.list()] == [0]
    assert jobs.podcast_import.conduct.timeout == 300


def retrying(id: str) -> Job | None:
    job = jobs.app.jobs.get(id)
    return job if job.status == "retrying" else None


# restarts


def test_no_import_is_lost(facts: Facts) -> None:
    """What was acknowledged is there, whole, once, after three kills."""
    assert len(facts.acknowledged) >= 8 + 4 + 6 + 3
    assert {row["id"] for row in facts.rows} == set(facts.acknowledged.values())
    assert len(facts.jobs) == len(facts.rows)
    assert {job.payload["podcast_id"] for job in facts.jobs} == set(facts.acknowledged.values())
    assert [
        name for name, x in facts.podcasts.items() if is_well(name) and not is_whole(name, x)
    ] == []


def test_requests_were_in_flight_when_the_servers_were_killed(facts: Facts) -> None:
    assert facts.refused
    assert facts.refused <= set(facts.acknowledged)


def test_a_restarted_server_finishes_interrupted_jobs_alone(facts: Facts) -> None:
    """No server was left: the next one that was started did it."""
    assert len(facts.interrupted) == LIMIT
    for job in facts.interrupted:
        assert (job.status, job.attempts) == ("completed", 1)
        assert job.claim_no >= 2
        assert pid(job.worker_id) == facts.server_pids[-1]


def test_episodes_match_the_publishers_feed(facts: Facts) -> None:
    rows = facts.episodes[facts.acknowledged["early-0"]]
    assert [row["guid"] for row in rows] == [
        f"early-0-{number}" for number in range(publisher.length("early-0"))
    ]
    assert rows[2]["title"] == "Episode <2>"
    assert rows[2]["audio"] == "https://audio.example/early-0/2.mp3"
    assert (rows[2]["published"], rows[2]["seconds"]) == ("2030-01-03T06:00:00+00:00", 720)


def test_a_stopped_server_deregisters_its_worker(facts: Facts) -> None:
    assert facts.workers_left == 0


# retries


def test_a_feed_that_fails_at_first_is_retried(facts: Facts) -> None:
    job = facts.podcasts["shaky-feed"]["job"]
    assert (job["status"], job["retries"], job["error"]) == ("completed", 2, None)


def test_a_feed_that_is_gone_is_not_retried(facts: Facts) -> None:
    job = facts.podcasts["gone-feed"]["job"]
    assert (job["status"], job["retries"]) == ("failed", 0)
    assert "answered 410" in job["error"]


def test_a_feed_that_stays_broken_fails_with_its_traces(facts: Facts) -> None:
    shown = facts.podcasts["broken-feed"]
    assert (shown["job"]["status"], shown["job"]["retries"]) == ("failed", 2)
    assert shown["job"]["error"].startswith("NotAFeed: the feed is no XML")
    assert shown["job"]["completed_at"] is not None
    assert (shown["title"], shown["episodes"]) == (None, 0)
    assert len(facts.traces) == 3
    assert all("feeds.parse" in (trace or "") for trace in facts.traces)


# status


def test_the_status_of_an_import_is_shown(facts: Facts) -> None:
    running = [x["job"] for x in facts.shown_while_full if x["job"]["status"] == "running"]
    assert all(job["started_at"] and not job["completed_at"] for job in running)
    done = facts.podcasts["late-0"]["job"]
    assert (done["status"], done["retries"], done["error"]) == ("completed", 0, None)
    moments = [
        datetime.fromisoformat(done[x]) for x in ("created_at", "started_at", "completed_at")
    ]
    assert moments == sorted(moments)


# feeds


def test_an_unusual_feed_is_parsed_as_far_as_possible() -> None:
    items = (
        "<item><title> A </title><enclosure url='u'/><pubDate>soon</pubDate></item>"
        "<item><guid>u</guid><title>A again</title></item>"
        "<item><title>B</title><pubDate>Tue, 01 Jan 2030 06:00:00 GMT</pubDate></item>"
    )
    feed = feeds.parse(f"<rss><channel>{items}</channel></rss>".encode())
    assert [(x.guid, x.title) for x in feed.episodes] == [("u", "A again"), ("B", "B")]
    assert feed.episodes[1].published == datetime(2030, 1, 1, 6, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1:02:03", 3723), ("62:03", 3723), ("3723", 3723), ("an hour", 0), ("", 0)],
)
def test_durations_of_three_formats_are_parsed(text: str, seconds: int) -> None:
    item = f"<item><duration xmlns='http://www.itunes.com/dtds/podcast-1.0.dtd'>{text}</duration></item>"
    [episode] = feeds.parse(f"<rss><channel>{item}</channel></rss>".encode()).episodes
    assert episode.seconds == seconds


def test_a_feed_with_expanding_entities_is_refused() -> None:
    doubled = "".join(f"<!ENTITY e{n} '{f'&e{n - 1};' * 10}'>" for n in range(1, 12))
    head = f"<!DOCTYPE rss [<!ENTITY e0 'ha'>{doubled}]>"
    bomb = f"{head}<rss><channel><title>&e11;</title></channel></rss>"
    with pytest.raises(feeds.NotAFeed):
        feeds.parse(bomb.encode())


def test_a_body_that_is_no_rss_is_refused() -> None:
    with pytest.raises(feeds.NotAFeed, match="is it RSS"):
        feeds.parse(b"<html/>")
