"""Checks of the reader under concurrency: worker processes, subscribers in other processes and threads,
and kill -9. A function for each promise, as in checks.py.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path

from examples.feeds.app import app, transaction
from examples.feeds.reader import subscribe, unsubscribe
from examples.feeds.store import entries, subscriptions, websub
from examples.feeds.testbed import HOUR, MINUTE, FeedsTestbed, feed_and_job, jobs_of_feed, read
from holdfast import Job


def daily_job(testbed: FeedsTestbed) -> None:
    job = testbed.harness.until("renew_websub has run", renewed)
    testbed.check(
        "a worker that starts makes the daily job, and it runs",
        (job.enabled, job.payload, job.consecutive_failures) == (True, {}, 0)
        and job.run_at - (job.last_run_at or job.run_at) > 23 * HOUR,
    )
    testbed.check("two workers made one of them", app.jobs.count(type="renew_websub") == 1)


def renewed() -> Job | None:
    found = [job for job in app.schedules.list() if job.type == "renew_websub"]
    return app.jobs.get(found[0].id) if found and found[0].last_run_at else None


def no_concurrent_fetches(testbed: FeedsTestbed) -> None:
    """Eight feeds that are always due, fetched by two workers."""
    busy = {"headers": {"Cache-Control": "max-age=0"}, "latency": 0.02}
    urls = {name: testbed.web.feed(name, **busy) for name in (f"busy-{n}" for n in range(8))}
    for url in urls.values():
        subscribe("ann", url)

    looks = 0

    def done() -> bool:
        nonlocal looks
        for url in urls.values():
            feed_and_job(url)  # in every poll, while the workers run
            looks += 1
        return (
            min(testbed.web.arrived[name] for name in urls) >= 6
            and len(workers_of(urls.values())) > 1
        )

    testbed.harness.until("each was fetched six times, by two workers", done)
    for url in urls.values():
        unsubscribe("ann", url)
    testbed.check(
        "one feed is never fetched concurrently, several feeds are",
        {testbed.web.peak[name] for name in urls} == {1} and testbed.web.peak[""] > 1,
    )
    testbed.check(
        "feeds and jobs agree at all times, while workers and readers change them",
        looks >= len(urls),
    )
    testbed.check(
        "after all these runs each feed has one row, and there is nothing to clean up",
        {len(jobs_of_feed(url)) for url in urls.values()} == {1},
    )


def workers_of(urls: Iterable[str]) -> set[str | None]:
    """Return the workers that ran the jobs of these feeds."""
    return {run.worker_id for url in urls for run in app.jobs.attempts(feed_and_job(url)[1].id)}


def disabled_while_it_runs(testbed: FeedsTestbed) -> None:
    url = testbed.web.feed("slow", titles=["late news"], headers={"Cache-Control": "max-age=0"})
    with testbed.web.held("slow"):
        subscribe("ann", url)
        testbed.harness.until("the fetch has begun", lambda: testbed.web.in_flight["slow"])
        unsubscribe("ann", url)
        feed, job = feed_and_job(url)
        testbed.check(
            "a job that is disabled while it runs keeps running",
            (job.enabled, job.status, feed.next_fetch_at) == (False, "running", None)
            and job.started_at is not None,
        )
    testbed.harness.until("the run has ended", lambda: feed_and_job(url)[1].last_run_at)
    feed, job = feed_and_job(url)
    testbed.check(
        "that run completes as usual",
        (job.last_error, job.status, job.result) == (None, "scheduled", {"status": 200})
        and [row.guid for row in read(entries, feed_id=feed.id)] == ["late news"],
    )
    marker = testbed.web.feed("after-slow", headers={"Cache-Control": "max-age=0"})
    subscribe("ann", marker)
    testbed.harness.until(
        "others were run meanwhile", lambda: testbed.web.arrived["after-slow"] >= 5
    )
    unsubscribe("ann", marker)
    testbed.check(
        "the job is not claimed again, although it is due",
        testbed.web.arrived["slow"] == 1 and feed_and_job(url)[1].run_at < testbed.now,
    )


def hub_leases(testbed: FeedsTestbed) -> None:
    """Three feeds with a hub: one lease ends tomorrow, one later, one was never confirmed."""
    names = ("hub-soon", "hub-later", "hub-new")
    urls = {name: testbed.web.feed(name, hub=testbed.web.hub) for name in names}
    for url in urls.values():
        subscribe("ann", url)
    testbed.harness.until("the hubs are known", lambda: len(read(websub)) == 3)
    ids = {name: feed_and_job(url)[0].id for name, url in urls.items()}
    testbed.check(
        "a feed's hub is found in the feed", {row.hub for row in read(websub)} == {testbed.web.hub}
    )
    ends = {"hub-soon": testbed.now + 23 * HOUR, "hub-later": testbed.now + 25 * HOUR}
    with transaction() as tx:
        for name, end in ends.items():
            mine = websub.update().where(websub.c.feed_id == ids[name])
            tx.execute(mine.values(expires_at=end))
    testbed.web.hub_status = 503
    app.schedules.run_now("renew_websub")
    job = testbed.harness.until("it has failed", lambda: failing(renewed()))
    testbed.check(
        "a hub that is down fails the job, with its error and a next attempt",
        testbed.web.hub in (job.last_error or "") and job.run_at - testbed.now < MINUTE,
    )
    testbed.web.hub_status, testbed.web.hub_forms = 202, []
    app.schedules.run_now("renew_websub")
    testbed.harness.until("it has run", lambda: not failing(renewed()))
    testbed.check(
        "leases that end within 24 hours are renewed, and no others",
        {form["hub.topic"] for form in testbed.web.hub_forms}
        == {urls["hub-soon"], urls["hub-new"]},
    )

    def remaining() -> dict[str, timedelta]:
        known = {row.feed_id: row.expires_at for row in read(websub)}
        return {name: (known[ids[name]] or testbed.now) - testbed.now for name in names}

    testbed.harness.until("the hub has confirmed", lambda: min(remaining().values()) > 24 * HOUR)
    testbed.check(
        "the hub confirms with the reader's server, and the lease is extended",
        remaining()["hub-soon"] > 9 * 24 * HOUR > remaining()["hub-later"],
    )
    for url in urls.values():
        unsubscribe("ann", url)
    job = app.schedules.get("renew_websub")
    testbed.check(
        "the daily job is always enabled, and its failures are cleared",
        (job.enabled, job.consecutive_failures, job.last_error) == (True, 0, None),
    )


def failing(job: Job | None) -> Job | None:
    return job if job and job.consecutive_failures else None


def two_processes(testbed: FeedsTestbed) -> None:
    """Two processes subscribe to the same twenty new feeds, at the same time."""
    names, folder = ("xan", "yan"), testbed.harness.folder
    urls = [testbed.web.feed(f"shared-{n}") for n in range(20)]
    testbed.harness.until(
        "both are there", lambda: all((folder / f"{n}-ready").exists() for n in names)
    )
    (folder / "wanted").write_text("\n".join(urls))
    (folder / "wanted").rename(folder / "go")
    codes = [process.wait(60) for process in testbed.processes[2:4]]
    found = [
        (len(jobs_of_feed(url)), len(read(subscriptions, feed_id=feed_and_job(url)[0].id)))
        for url in urls
    ]
    testbed.check(
        "two processes that subscribe to the same new feeds make one row of each, and neither fails",
        codes == [0, 0] and set(found) == {(1, 2)},
    )
    for url in urls:
        for name in names:
            unsubscribe(name, url)


def subscriber_process(folder: Path, name: str) -> None:
    subscribe(name, "http://127.0.0.1:9/")  # opens the connections
    unsubscribe(name, "http://127.0.0.1:9/")
    (folder / f"{name}-ready").touch()
    while not (folder / "go").exists():
        time.sleep(0.001)
    for url in (folder / "go").read_text().split():
        subscribe(name, url)


def subscribing_and_unsubscribing(testbed: FeedsTestbed, readers: int = 6, rounds: int = 6) -> None:
    """Readers subscribe and unsubscribe, each in two threads, while the feeds are being fetched."""
    urls = [
        testbed.web.feed(f"shared-by-threads-{n}", headers={"Cache-Control": "max-age=0"})
        for n in range(2)
    ]
    start = threading.Barrier(2 * readers)

    def subscribe_and_unsubscribe(number: int) -> None:
        name = f"reader {number // 2}"  # two browser windows of one reader
        start.wait()
        for turn in range(rounds):
            url = urls[(number + turn) % 2]
            subscribe(name, url)
            unsubscribe(name, url)

    in_threads(2 * readers, subscribe_and_unsubscribe)
    testbed.check(
        "whichever reader unsubscribes last, every feed is disabled afterwards",
        not any(feed_and_job(url)[1].enabled for url in urls),
    )

    def subscribe_or_unsubscribe(number: int) -> None:
        start.wait()
        (unsubscribe if number % 2 else subscribe)(f"reader {number}", urls[0])

    for number in range(1, 2 * readers, 2):
        subscribe(f"reader {number}", urls[0])
    in_threads(2 * readers, subscribe_or_unsubscribe)
    testbed.check(
        "if all unsubscribe while others subscribe, the feed is enabled",
        feed_and_job(urls[0])[1].enabled,
    )
    for number in range(2 * readers):
        subscribe(f"reader {number}", urls[0])
        unsubscribe(f"reader {number}", urls[0])


def in_threads(count: int, work: Callable[[int], None]) -> None:
    problems: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


def killed_worker(testbed: FeedsTestbed) -> None:
    """kill -9 of a worker and of its supervisor, in the middle of a fetch."""
    url = testbed.web.feed("stale", titles=["after all"])
    with testbed.web.held("stale"):
        subscribe("ann", url)
        testbed.harness.until("the fetch has begun", lambda: testbed.web.in_flight["stale"])
        job = feed_and_job(url)[1]
        pid = int(str(job.worker_id).rsplit("-", 2)[1])
        parent = int(subprocess.check_output(["ps", "-o", "ppid=", "-p", str(pid)]))
        [supervisor] = [worker for worker in testbed.processes if worker.pid == parent]
        testbed.harness.kill(supervisor)
        os.kill(pid, 9)
        testbed.harness.until(
            "another worker has taken it", lambda: testbed.web.arrived["stale"] == 2
        )
    testbed.harness.until("that run has ended", lambda: feed_and_job(url)[1].last_run_at)
    feed, after = feed_and_job(url)
    testbed.check(
        "another worker takes over the run of a killed worker",
        after.claim_no > job.claim_no
        and after.consecutive_failures == 0
        and [row.guid for row in read(entries, feed_id=feed.id)] == ["after all"],
    )


PROCESS_CHECKS = (
    daily_job,
    no_concurrent_fetches,
    disabled_while_it_runs,
    hub_leases,
    two_processes,
    subscribing_and_unsubscribing,
    killed_worker,
)

if __name__ == "__main__":
    subscriber_process(Path(sys.argv[1]), sys.argv[2])
