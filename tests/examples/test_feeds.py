"""The feed reader, on both engines: its end-to-end checks, each as a test, and its pure functions.

The checks share a testbed for each engine: databases, servers, and two worker processes.
"""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import format_datetime
from tempfile import TemporaryDirectory
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from examples.feeds import checks, concurrency_checks, fetching, hints, hubs, reader
from examples.feeds.app import app, transaction
from examples.feeds.reader import subscribe, unsubscribe
from examples.feeds.store import feeds, tables, websub
from examples.feeds.testbed import FeedsTestbed, open_testbed, open_testbed_with_workers, read
from examples.harness import Harness
from holdfast.testing import FakeClock

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
START = FakeClock().now()
HOUR = timedelta(hours=1)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def engine_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def urls(engine_name: str, request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Two databases."""
    if engine_name == "postgres":
        server = request.getfixturevalue("server")
        yield server.create_database(), server.create_database()
        return
    with TemporaryDirectory() as folder:
        yield f"sqlite:///{folder}/still.db", f"sqlite:///{folder}/live.db"


@pytest.fixture(scope="module")
def live(engine_name: str, urls: tuple[str, str]) -> Iterator[FeedsTestbed]:
    with (
        Harness(f"feeds on {engine_name}") as harness,
        open_testbed_with_workers(harness, urls[1]) as testbed,
    ):
        yield testbed


@pytest.fixture
def still(live: FeedsTestbed, urls: tuple[str, str]) -> Iterator[FeedsTestbed]:
    """A testbed with a fake clock. Its database is shared, since each further database delays the end
    of the PostgreSQL server."""
    with open_testbed(live.harness, urls[0], FakeClock()) as testbed:
        yield testbed
        for job in app.schedules.list():
            app.schedules.delete(job.type, str(job.key))
        with transaction() as tx:
            for table in reversed(tables.sorted_tables):
                tx.execute(table.delete())


# --- with a fake clock ----------------------------------------------------------


def test_a_new_feed(still: FeedsTestbed) -> None:
    checks.new_feed(still)


def test_the_feed_that_has_waited_longest_is_fetched_first(still: FeedsTestbed) -> None:
    checks.oldest_first(still)


def test_caching_headers_and_ttl_decide_the_next_fetch(still: FeedsTestbed) -> None:
    checks.hints(still)


def test_failures_are_counted_and_delayed_by_the_backoff(still: FeedsTestbed) -> None:
    checks.failures(still)


def test_the_last_unsubscribe_disables_the_job(still: FeedsTestbed) -> None:
    checks.unsubscribing(still)


def test_resubscribing_enables_the_job_and_keeps_its_next_run(still: FeedsTestbed) -> None:
    checks.resubscribing(still)


def test_a_feed_has_one_job_for_all_subscribers(still: FeedsTestbed) -> None:
    checks.one_row_per_feed(still)


# --- with worker processes -----------------------------------------------------------


def test_the_daily_job_is_made_at_start_up(live: FeedsTestbed) -> None:
    concurrency_checks.daily_job(live)


def test_no_feed_is_fetched_concurrently(live: FeedsTestbed) -> None:
    concurrency_checks.no_concurrent_fetches(live)


def test_a_job_disabled_while_it_runs_completes_its_run(live: FeedsTestbed) -> None:
    concurrency_checks.disabled_while_it_runs(live)


def test_leases_that_end_within_a_day_are_renewed(live: FeedsTestbed) -> None:
    concurrency_checks.hub_leases(live)


def test_two_processes_make_one_row(live: FeedsTestbed) -> None:
    concurrency_checks.two_processes(live)


def test_the_last_unsubscribe_is_decided_correctly_in_a_race(live: FeedsTestbed) -> None:
    concurrency_checks.subscribing_and_unsubscribing(live)


def test_the_run_of_a_killed_worker_is_taken_over(live: FeedsTestbed) -> None:
    """The last test, since it kills a worker of the testbed."""
    concurrency_checks.killed_worker(live)


# --- pure functions -----------------------------------------------------------------------


def headers(**words: str) -> Message:
    said = Message()
    for name, value in words.items():
        said[name.replace("_", "-")] = value
    return said


SOON = format_datetime(NOW + HOUR, usegmt=True)


@pytest.mark.parametrize(
    ("said", "wait"),
    [
        ({"cache_control": "max-age=3600"}, HOUR),
        ({"cache_control": "public, MAX-AGE=3600, s-maxage=9"}, HOUR),
        ({"cache_control": 'max-age="3600"'}, HOUR),
        ({"expires": SOON}, HOUR),
        ({"expires": SOON, "cache_control": "max-age=60"}, timedelta(minutes=1)),
        ({"expires": SOON, "cache_control": "no-cache"}, HOUR),
        ({"expires": "0"}, None),
        ({"expires": "next week, perhaps"}, None),
        ({"cache_control": "max-age=soon"}, None),
        ({}, None),
    ],
)
def test_the_freshness_of_an_answer(said: dict[str, str], wait: timedelta | None) -> None:
    assert hints.freshness(headers(**said), NOW) == wait


@pytest.mark.parametrize(
    ("said", "ttl", "minutes"),
    [
        ({"cache_control": "max-age=1800"}, None, 30),
        ({"cache_control": "max-age=1800"}, 45, 45),
        ({"cache_control": "max-age=1800"}, 15, 30),
        ({"expires": format_datetime(NOW - HOUR, usegmt=True)}, None, 1),
        ({"cache_control": "max-age=999999999"}, None, 24 * 60),
        ({}, 0, 1),
        ({}, None, 60),
    ],
)
def test_the_wait_is_the_longer_of_both_hints_within_bounds(
    said: dict[str, str], ttl: int | None, minutes: int
) -> None:
    assert "FEEDS_SHORTEST" not in os.environ
    assert hints.wait(headers(**said), ttl, NOW) == timedelta(minutes=minutes)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("90", 90), (SOON, 3600), ("-5", None), ("later", None), ("", None), ("99999999", 86400)],
)
def test_retry_after_is_parsed(said: str, seconds: int | None) -> None:
    wanted = None if seconds is None else timedelta(seconds=seconds)
    assert hints.retry_after(headers(retry_after=said), NOW) == wanted


def test_a_hub_is_found_in_the_feed_or_its_headers() -> None:
    body = b"<rss><channel><title>t</title></channel></rss>"
    link = '<https://a.example/>; rel="self", <https://hub.example/>; rel="hub"'
    assert fetching.read(body, link).hub == "https://hub.example/"
    assert fetching.read(body).hub is None
    linked = b'<rss xmlns:a="http://www.w3.org/2005/Atom"><channel><a:link rel="hub" href="h"/>'
    assert fetching.read(linked + b"</channel></rss>").hub == "h"


def test_only_http_addresses_are_fetched(still: FeedsTestbed) -> None:
    with pytest.raises(ValueError, match=r"'file:///etc/passwd' is no address of the web"):
        subscribe("ann", "file:///etc/passwd")
    assert read(feeds) == []
    with pytest.raises(ValueError, match="no address of the web"):
        fetching.fetch("file:///etc/passwd", None, None)
    assert "no address of the web" in str(hubs.request_lease("file:///etc/passwd", "topic", "id"))


@pytest.mark.parametrize("wrong", ["topic", "feed", "mode", "term"])
def test_an_unrequested_confirmation_of_a_hub_is_refused(still: FeedsTestbed, wrong: str) -> None:
    url = still.web.feed("asked", hub=still.web.hub)
    subscribe("ann", url)
    still.advance(timedelta())
    said = {"hub.mode": "subscribe", "hub.topic": url, "hub.lease_seconds": "60"}
    feed_id = read(feeds)[0].id
    if wrong == "feed":
        feed_id = "another"
    else:
        said[{"term": "hub.lease_seconds"}.get(wrong, f"hub.{wrong}")] = "else"
    with pytest.raises(HTTPError, match="404") as refusal:
        urlopen(f"{hubs.callback(feed_id)}?{urlencode(said)}")
    refusal.value.close()
    assert [row.expires_at for row in read(websub)] == [None]


def test_the_command_line_subscribes_lists_and_unsubscribes(
    still: FeedsTestbed, capsys: pytest.CaptureFixture[str]
) -> None:
    url = still.web.feed("by-hand")
    reader.main("create")
    reader.main("subscribe", "ann", url)
    reader.main("list", "ann")
    still.advance(timedelta())
    reader.main("list", "ann")
    reader.main("unsubscribe", "ann", url)
    reader.main("list", "ann")
    assert capsys.readouterr().out.splitlines() == [
        f"{url}: next at {START}",
        f"{url}: None, next at {START}",
        f"{url}: A feed, next at {START + HOUR}",
        f"{url}: disabled",
    ]
    with pytest.raises(SystemExit, match="subscribe and unsubscribe"):
        reader.main("help")


def test_unsubscribing_from_an_unknown_feed_is_refused(still: FeedsTestbed) -> None:
    with pytest.raises(LookupError, match="subscribe first"):
        unsubscribe("ann", "http://127.0.0.1:9/")


def test_a_body_that_is_no_feed_is_refused() -> None:
    with pytest.raises(ValueError, match="no <channel>"):
        fetching.read(b"<html></html>")
