"""What the reader promises, shown: a function for each, called by `python -m examples.feeds` and by
tests/examples/test_feeds.py, on both engines. Here the clock stands still; crowd.py has processes.
"""

from datetime import timedelta
from email.utils import format_datetime
from typing import Any
from uuid import UUID

from examples.feeds.app import transaction
from examples.feeds.reader import subscribe, unsubscribe
from examples.feeds.scene import HOUR, MINUTE, Scene, agree, read, rows
from examples.feeds.store import entries, feeds, subscriptions
from holdfast import Job


def a_new_feed(it: Scene) -> None:
    url = it.web.feed("new", titles=["one", "two"], headers={"Cache-Control": "max-age=1800"})
    made = subscribe("ann", url)
    feed, job = agree(url)
    it.prove(
        "a new feed has a row, a subscription and one enabled job that is due now",
        (job.enabled, job.run_at, len(rows(url))) == (True, it.now, 1)
        and [row.unsubscribed_at for row in read(subscriptions, feed_id=feed.id)] == [None],
    )
    it.prove("the job has the feed's id as its only argument", job.payload == {"feed_id": feed.id})
    it.pass_time(timedelta())
    feed, job = agree(url)
    it.prove(
        "the run has stored the entries",
        {row.guid for row in read(entries, feed_id=feed.id)} == {"one", "two"},
    )
    it.prove(
        "the same row waits for the time that the feed's max-age says, and the feed shows it",
        (job.id, job.status, job.run_at) == (made.id, "scheduled", it.now + 30 * MINUTE)
        and feed.next_fetch_at == job.run_at,
    )
    it.prove(
        "the row tells of its last run, which was good",
        (job.last_run_at, job.last_error, job.consecutive_failures) == (it.now, None, 0)
        and job.started_at is None,
    )
    it.prove("it does not run before that", it.pass_time(29 * MINUTE) == [])
    it.prove("it runs at that time", [ran.id for ran in it.pass_time(MINUTE)] == [job.id])
    again = agree(url)[1]
    it.prove(
        "the row knows when it was made, and when it was changed",
        (again.created_at, again.updated_at) == (made.created_at, it.now)
        and it.now - again.created_at == 30 * MINUTE
        and str(UUID(again.id)) == made.id,
    )


def oldest_first(it: Scene) -> None:
    urls = [it.web.feed(f"due-{minutes}", ttl=minutes) for minutes in (30, 10, 20)]
    for url in urls:
        subscribe("ann", url)
    it.pass_time(timedelta())
    it.web.visits.clear()
    it.pass_time(HOUR)
    came = [visit.name for visit in it.web.visits if visit.name.startswith("due-")]
    it.prove("who has waited longest runs first", came == ["due-10", "due-20", "due-30"])


def hints(it: Scene) -> None:
    date = format_datetime(it.now + 3 * HOUR, usegmt=True)
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
    urls = {name: it.web.feed(f"hint-{name}", **words) for name, (words, _) in wanted.items()}
    for url in urls.values():
        subscribe("ann", url)
    it.pass_time(timedelta())
    got = {name: agree(url)[1].run_at - it.now for name, url in urls.items()}
    it.prove(
        "the next fetch is decided by max-age, Expires and ttl, within our bounds",
        got == {name: wait for name, (_, wait) in wanted.items()},
    )
    it.pass_time(45 * MINUTE)
    feed, job = agree(urls["ttl"])
    it.prove(
        "a feed that has not changed answers 304 to its ETag, and its ttl is remembered",
        (it.web.count("hint-ttl", 304), job.result) == (1, {"status": 304})
        and job.run_at == it.now + 45 * MINUTE
        and len(read(entries, feed_id=feed.id)) == 1,
    )


def failures(it: Scene) -> None:
    url = it.web.feed("failing", status=500, headers={"Cache-Control": "max-age=600"})
    subscribe("ann", url)
    waits: list[timedelta] = []
    for number in range(1, 4):
        it.pass_time(waits[-1] if waits else timedelta())
        feed, job = agree(url)
        assert job.consecutive_failures == feed.consecutive_failures == number
        waits.append(job.run_at - it.now)
    it.prove(
        "each failure doubles the time to the next run, which the feed shows, with their number",
        waits == [MINUTE, 2 * MINUTE, 4 * MINUTE],
    )
    it.prove(
        "the row has the error of the last run, and when that was",
        "answered 500" in (job.last_error or "") and job.last_run_at == it.now,
    )
    it.web.feeds["failing"].status = 503
    it.web.feeds["failing"].headers = {"Retry-After": "5400"}
    it.pass_time(waits[-1])
    it.prove(
        "a server that says when to come back is obeyed",
        agree(url)[1].run_at == it.now + 90 * MINUTE,
    )
    it.web.feeds["failing"].status = 200
    it.pass_time(90 * MINUTE)
    feed, job = agree(url)
    it.prove(
        "a success clears the error and the number, on the row and on the feed",
        (job.last_error, job.consecutive_failures, feed.consecutive_failures) == (None, 0, 0),
    )
    it.web.feeds["failing"] = type(it.web.feeds["failing"])(titles=["\x00"])  # no XML
    it.pass_time(HOUR)
    it.prove("what is no feed is a failure, too", "ParseError" in (agree(url)[1].last_error or ""))
    unsubscribe("ann", url)


def leaving(it: Scene) -> None:
    url = it.web.feed("left")
    for name in ("ann", "ben"):
        subscribe(name, url)
    it.pass_time(timedelta())
    before = agree(url)[1]
    it.prove("while one reader stays, the job is enabled", unsubscribe("ann", url).enabled)
    unsubscribe("ben", url)
    feed, job = agree(url)
    it.prove(
        "the last one to leave disables it, and the feed shows no next fetch",
        (job.enabled, feed.next_fetch_at) == (False, None),
    )
    it.prove(
        "the row is not deleted, and keeps its next run",
        (job.id, job.run_at) == (before.id, before.run_at),
    )
    gone = [row.unsubscribed_at for row in read(subscriptions, feed_id=feed.id)]
    it.prove("subscriptions are kept, with their end", gone == [it.now, it.now])
    it.prove(
        "a disabled job is not claimed when its time comes",
        url not in fetched(it.pass_time(2 * HOUR)),
    )
    unsubscribe("ben", url)
    it.prove("leaving twice changes nothing", agree(url)[1].enabled is False)


def coming_back(it: Scene) -> None:
    early, late = it.web.feed("early"), it.web.feed("late")
    for url in (early, late):
        subscribe("ann", url)
    it.pass_time(timedelta())
    due = agree(early)[1].run_at
    for url in (early, late):
        unsubscribe("ann", url)
    it.pass_time(30 * MINUTE)
    subscribe("ann", early)
    feed, job = agree(early)
    it.prove(
        "who comes back in time finds the next run where it was, and the feed shows it",
        (job.enabled, job.run_at, feed.next_fetch_at) == (True, due, due),
    )
    it.prove("it does not run before that", early not in fetched(it.pass_time(29 * MINUTE)))
    it.prove("it runs then", early in fetched(it.pass_time(MINUTE)))
    job = subscribe("ben", late)
    it.prove(
        "where that time has passed it runs at once",
        job.run_at <= it.now and late in fetched(it.pass_time(timedelta())),
    )
    it.prove("nobody who comes back makes a second row", len(rows(early)) == len(rows(late)) == 1)


def once_only(it: Scene) -> None:
    url = it.web.feed("once")
    first = subscribe("ann", url)
    it.prove(
        "subscribing again, or somebody else, finds the same row",
        {subscribe(name, url).id for name in ("ann", "ann", "ben")} == {first.id}
        and len(rows(url)) == 1,
    )
    for name in ("ann", "ben"):
        unsubscribe(name, url)
    again = subscribe("cid", url)
    it.prove(
        "a disabled one is enabled instead of made again",
        (again.id, again.enabled, len(rows(url))) == (first.id, True, 1),
    )


def fetched(ran: list[Job]) -> set[str]:
    with transaction() as tx:
        urls = {row.id: row.url for row in tx.execute(feeds.select())}
    return {urls[job.payload["feed_id"]] for job in ran if job.type == "fetch_feed"}


STILL = (a_new_feed, oldest_first, hints, failures, leaving, coming_back, once_only)
