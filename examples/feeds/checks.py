"""Checks of the reader: a function for each promise, called by `python -m examples.feeds` and by
tests/examples/test_feeds.py, on both engines, with a fake clock. concurrency_checks.py runs processes.
"""

from datetime import timedelta
from email.utils import format_datetime
from typing import Any
from uuid import UUID

from examples.feeds.app import transaction
from examples.feeds.reader import subscribe, unsubscribe
from examples.feeds.store import entries, feeds, subscriptions
from examples.feeds.testbed import HOUR, MINUTE, FeedsTestbed, feed_and_job, jobs_of_feed, read
from holdfast import Job


def new_feed(testbed: FeedsTestbed) -> None:
    url = testbed.web.feed("new", titles=["one", "two"], headers={"Cache-Control": "max-age=1800"})
    made = subscribe("ann", url)
    feed, job = feed_and_job(url)
    testbed.check(
        "a new feed has a row, a subscription and one enabled job that is due now",
        (job.enabled, job.run_at, len(jobs_of_feed(url))) == (True, testbed.now, 1)
        and [row.unsubscribed_at for row in read(subscriptions, feed_id=feed.id)] == [None],
    )
    testbed.check(
        "the job has the feed's id as its only argument", job.payload == {"feed_id": feed.id}
    )
    testbed.advance(timedelta())
    feed, job = feed_and_job(url)
    testbed.check(
        "the run has stored the entries",
        {row.guid for row in read(entries, feed_id=feed.id)} == {"one", "two"},
    )
    testbed.check(
        "the same row waits for the time that the feed's max-age says, and the feed shows it",
        (job.id, job.status, job.run_at) == (made.id, "scheduled", testbed.now + 30 * MINUTE)
        and feed.next_fetch_at == job.run_at,
    )
    testbed.check(
        "the row shows its last run, without an error",
        (job.last_run_at, job.last_error, job.consecutive_failures) == (testbed.now, None, 0)
        and job.started_at is None,
    )
    testbed.check("it does not run before that time", testbed.advance(29 * MINUTE) == [])
    testbed.check("it runs at that time", [ran.id for ran in testbed.advance(MINUTE)] == [job.id])
    again = feed_and_job(url)[1]
    testbed.check(
        "the row has the times at which it was made and changed",
        (again.created_at, again.updated_at) == (made.created_at, testbed.now)
        and testbed.now - again.created_at == 30 * MINUTE
        and str(UUID(again.id)) == made.id,
    )


def oldest_first(testbed: FeedsTestbed) -> None:
    urls = [testbed.web.feed(f"due-{minutes}", ttl=minutes) for minutes in (30, 10, 20)]
    for url in urls:
        subscribe("ann", url)
    testbed.advance(timedelta())
    testbed.web.requests.clear()
    testbed.advance(HOUR)
    came = [visit.name for visit in testbed.web.requests if visit.name.startswith("due-")]
    testbed.check(
        "the feed that has waited longest is fetched first", came == ["due-10", "due-20", "due-30"]
    )


def hints(testbed: FeedsTestbed) -> None:
    date = format_datetime(testbed.now + 3 * HOUR, usegmt=True)
    wanted: dict[str, tuple[dict[str, Any], timedelta]] = {
        "max-age": ({"headers": {"cache-control": "public, max-age=7200"}}, 2 * HOUR),
        "expires": ({"headers": {"Expires": date}}, 3 * HOUR),
        "both": ({"headers": {"Expires": date, "Cache-Control": "max-age=600"}}, 10 * MINUTE),
        "ttl": ({"ttl": 45}, 45 * MINUTE),
        "longer": ({"ttl": 45, "headers": {"Cache-Control": "max-age=60"}}, 45 * MINUTE),
        "hasty": ({"headers": {"Cache-Control": "max-age=0"}}, MINUTE),
        "lazy": ({"ttl": 60 * 24 * 30}, timedelta(days=1)),
        "silent": ({}, HOUR),
    }
    urls = {name: testbed.web.feed(f"hint-{name}", **words) for name, (words, _) in wanted.items()}
    for url in urls.values():
        subscribe("ann", url)
    testbed.advance(timedelta())
    got = {name: feed_and_job(url)[1].run_at - testbed.now for name, url in urls.items()}
    testbed.check(
        "the next fetch is decided by max-age, Expires and ttl, within our bounds",
        got == {name: wait for name, (_, wait) in wanted.items()},
    )
    testbed.advance(45 * MINUTE)
    feed, job = feed_and_job(urls["ttl"])
    testbed.check(
        "a feed that has not changed answers 304 to its ETag, and its ttl is remembered",
        (testbed.web.count("hint-ttl", 304), job.result) == (1, {"status": 304})
        and job.run_at == testbed.now + 45 * MINUTE
        and len(read(entries, feed_id=feed.id)) == 1,
    )


def failures(testbed: FeedsTestbed) -> None:
    url = testbed.web.feed("failing", status=500, headers={"Cache-Control": "max-age=600"})
    subscribe("ann", url)
    waits: list[timedelta] = []
    for number in range(1, 4):
        testbed.advance(waits[-1] if waits else timedelta())
        feed, job = feed_and_job(url)
        assert job.consecutive_failures == feed.consecutive_failures == number
        waits.append(job.run_at - testbed.now)
    testbed.check(
        "each failure doubles the time to the next run, which the feed shows, with their number",
        waits == [MINUTE, 2 * MINUTE, 4 * MINUTE],
    )
    testbed.check(
        "the row has the error of the last run, and when that was",
        "answered 500" in (job.last_error or "") and job.last_run_at == testbed.now,
    )
    testbed.web.feeds["failing"].status = 503
    testbed.web.feeds["failing"].headers = {"Retry-After": "5400"}
    testbed.advance(waits[-1])
    testbed.check(
        "Retry-After of a server is obeyed",
        feed_and_job(url)[1].run_at == testbed.now + 90 * MINUTE,
    )
    testbed.web.feeds["failing"].status = 200
    testbed.advance(90 * MINUTE)
    feed, job = feed_and_job(url)
    testbed.check(
        "a success clears the error and the number, on the row and on the feed",
        (job.last_error, job.consecutive_failures, feed.consecutive_failures) == (None, 0, 0),
    )
    testbed.web.feeds["failing"] = type(testbed.web.feeds["failing"])(titles=["\x00"])  # no XML
    testbed.advance(HOUR)
    testbed.check(
        "a body that is no feed is a failure",
        "ParseError" in (feed_and_job(url)[1].last_error or ""),
    )
    unsubscribe("ann", url)


def unsubscribing(testbed: FeedsTestbed) -> None:
    url = testbed.web.feed("left")
    for name in ("ann", "ben"):
        subscribe(name, url)
    testbed.advance(timedelta())
    before = feed_and_job(url)[1]
    testbed.check(
        "while one subscriber is left, the job is enabled", unsubscribe("ann", url).enabled
    )
    unsubscribe("ben", url)
    feed, job = feed_and_job(url)
    testbed.check(
        "the last unsubscribe disables it, and the feed shows no next fetch",
        (job.enabled, feed.next_fetch_at) == (False, None),
    )
    testbed.check(
        "the row is not deleted, and keeps its next run",
        (job.id, job.run_at) == (before.id, before.run_at),
    )
    gone = [row.unsubscribed_at for row in read(subscriptions, feed_id=feed.id)]
    testbed.check("subscriptions are kept, with their end", gone == [testbed.now, testbed.now])
    testbed.check(
        "a disabled job is not claimed when its time comes",
        url not in fetched(testbed.advance(2 * HOUR)),
    )
    unsubscribe("ben", url)
    testbed.check("unsubscribing twice changes nothing", feed_and_job(url)[1].enabled is False)


def resubscribing(testbed: FeedsTestbed) -> None:
    early, late = testbed.web.feed("early"), testbed.web.feed("late")
    for url in (early, late):
        subscribe("ann", url)
    testbed.advance(timedelta())
    due = feed_and_job(early)[1].run_at
    for url in (early, late):
        unsubscribe("ann", url)
    testbed.advance(30 * MINUTE)
    subscribe("ann", early)
    feed, job = feed_and_job(early)
    testbed.check(
        "a subscriber who returns before the next run does not change its time, and the feed shows it",
        (job.enabled, job.run_at, feed.next_fetch_at) == (True, due, due),
    )
    testbed.check(
        "it does not run before that time", early not in fetched(testbed.advance(29 * MINUTE))
    )
    testbed.check("it runs at that time", early in fetched(testbed.advance(MINUTE)))
    job = subscribe("ben", late)
    testbed.check(
        "if that time has passed, it runs immediately",
        job.run_at <= testbed.now and late in fetched(testbed.advance(timedelta())),
    )
    testbed.check(
        "resubscribing makes no second row",
        len(jobs_of_feed(early)) == len(jobs_of_feed(late)) == 1,
    )


def one_row_per_feed(testbed: FeedsTestbed) -> None:
    url = testbed.web.feed("once")
    first = subscribe("ann", url)
    testbed.check(
        "every further subscription finds the same row",
        {subscribe(name, url).id for name in ("ann", "ann", "ben")} == {first.id}
        and len(jobs_of_feed(url)) == 1,
    )
    for name in ("ann", "ben"):
        unsubscribe(name, url)
    again = subscribe("cid", url)
    testbed.check(
        "a disabled job is enabled instead of made again",
        (again.id, again.enabled, len(jobs_of_feed(url))) == (first.id, True, 1),
    )


def fetched(ran: list[Job]) -> set[str]:
    with transaction() as tx:
        urls = {row.id: row.url for row in tx.execute(feeds.select())}
    return {urls[job.payload["feed_id"]] for job in ran if job.type == "fetch_feed"}


CLOCK_CHECKS = (
    new_feed,
    oldest_first,
    hints,
    failures,
    unsubscribing,
    resubscribing,
    one_row_per_feed,
)
