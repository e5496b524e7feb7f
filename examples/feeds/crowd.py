"""What the reader promises while many work at once, shown: worker processes, readers in other processes
and threads, and kill -9. A function for each, as in proof.py.
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
from examples.feeds.scene import HOUR, MINUTE, Scene, agree, read, rows
from examples.feeds.store import entries, subscriptions, websub
from holdfast import Job


def start_up(it: Scene) -> None:
    job = it.stage.until("renew_websub has run", renewed)
    it.prove(
        "a worker that starts makes the daily job, and it runs",
        (job.enabled, job.payload, job.consecutive_failures) == (True, {}, 0)
        and job.run_at - (job.last_run_at or job.run_at) > 23 * HOUR,
    )
    it.prove("two workers made one of them", app.jobs.count(type="renew_websub") == 1)


def renewed() -> Job | None:
    found = [job for job in app.schedules.list() if job.type == "renew_websub"]
    return app.jobs.get(found[0].id) if found and found[0].last_run_at else None


def none_twice(it: Scene) -> None:
    """Eight feeds that want to be fetched all the time, by two workers at once."""
    busy = {"headers": {"Cache-Control": "max-age=0"}, "latency": 0.02}
    urls = {name: it.web.feed(name, **busy) for name in (f"busy-{n}" for n in range(8))}
    for url in urls.values():
        subscribe("ann", url)

    looks = 0

    def done() -> bool:
        nonlocal looks
        for url in urls.values():
            agree(url)  # at every look, in the middle of all this
            looks += 1
        return min(it.web.arrived[name] for name in urls) >= 6 and len(hands(urls.values())) > 1

    it.stage.until("each was fetched six times, by two workers", done)
    for url in urls.values():
        unsubscribe("ann", url)
    it.prove(
        "no feed is fetched twice at once, while several are",
        {it.web.most[name] for name in urls} == {1} and it.web.most[""] > 1,
    )
    it.prove(
        "feeds and jobs agree at any moment, while workers and readers change them",
        looks >= len(urls),
    )
    it.prove(
        "after all these runs there is one row of each, and nothing to clean up",
        {len(rows(url)) for url in urls.values()} == {1},
    )


def hands(urls: Iterable[str]) -> set[str | None]:
    """The workers that had runs of these."""
    return {run.worker_id for url in urls for run in app.jobs.attempts(agree(url)[1].id)}


def disabled_while_it_runs(it: Scene) -> None:
    url = it.web.feed("slow", titles=["late news"], headers={"Cache-Control": "max-age=0"})
    with it.web.held("slow"):
        subscribe("ann", url)
        it.stage.until("the fetch has begun", lambda: it.web.inside["slow"])
        unsubscribe("ann", url)
        feed, job = agree(url)
        it.prove(
            "a job can be disabled while it runs, and runs on",
            (job.enabled, job.status, feed.next_fetch_at) == (False, "running", None)
            and job.started_at is not None,
        )
    it.stage.until("the run has ended", lambda: agree(url)[1].last_run_at)
    feed, job = agree(url)
    it.prove(
        "that run completes as it would",
        (job.last_error, job.status, job.result) == (None, "scheduled", {"status": 200})
        and [row.guid for row in read(entries, feed_id=feed.id)] == ["late news"],
    )
    marker = it.web.feed("after-slow", headers={"Cache-Control": "max-age=0"})
    subscribe("ann", marker)
    it.stage.until("others were run meanwhile", lambda: it.web.arrived["after-slow"] >= 5)
    unsubscribe("ann", marker)
    it.prove(
        "and the job is not claimed again, though its time has come",
        it.web.arrived["slow"] == 1 and agree(url)[1].run_at < it.now,
    )


def hub_terms(it: Scene) -> None:
    """Three feeds with a hub: one term ends tomorrow, one later, one was never confirmed."""
    names = ("hub-soon", "hub-later", "hub-new")
    urls = {name: it.web.feed(name, hub=it.web.hub) for name in names}
    for url in urls.values():
        subscribe("ann", url)
    it.stage.until("the hubs are known", lambda: len(read(websub)) == 3)
    ids = {name: agree(url)[0].id for name, url in urls.items()}
    it.prove("a feed's hub is found in the feed", {row.hub for row in read(websub)} == {it.web.hub})
    ends = {"hub-soon": it.now + 23 * HOUR, "hub-later": it.now + 25 * HOUR}
    with transaction() as tx:
        for name, moment in ends.items():
            mine = websub.update().where(websub.c.feed_id == ids[name])
            tx.execute(mine.values(expires_at=moment))
    it.web.hub_status = 503
    app.schedules.run_now("renew_websub")
    job = it.stage.until("it has failed", lambda: failing(renewed()))
    it.prove(
        "a hub that is down is a failure on the job, with its error and a next try",
        it.web.hub in (job.last_error or "") and job.run_at - it.now < MINUTE,
    )
    it.web.hub_status, it.web.asked = 202, []
    app.schedules.run_now("renew_websub")
    it.stage.until("it has run", lambda: not failing(renewed()))
    it.prove(
        "what ends within 24 hours is renewed, and nothing else",
        {form["hub.topic"] for form in it.web.asked} == {urls["hub-soon"], urls["hub-new"]},
    )

    def left() -> dict[str, timedelta]:
        known = {row.feed_id: row.expires_at for row in read(websub)}
        return {name: (known[ids[name]] or it.now) - it.now for name in names}

    it.stage.until("the hub has confirmed", lambda: min(left().values()) > 24 * HOUR)
    it.prove(
        "the hub confirms with the reader's server, and the term is moved",
        left()["hub-soon"] > 9 * 24 * HOUR > left()["hub-later"],
    )
    for url in urls.values():
        unsubscribe("ann", url)
    job = app.schedules.get("renew_websub")
    it.prove(
        "the daily job is enabled always, and has no failures any more",
        (job.enabled, job.consecutive_failures, job.last_error) == (True, 0, None),
    )


def failing(job: Job | None) -> Job | None:
    return job if job and job.consecutive_failures else None


def two_processes(it: Scene) -> None:
    """Two of them subscribe to the same twenty new feeds, at the same moment."""
    names, folder = ("xan", "yan"), it.stage.folder
    urls = [it.web.feed(f"shared-{n}") for n in range(20)]
    it.stage.until("both are there", lambda: all((folder / f"{n}-ready").exists() for n in names))
    (folder / "wanted").write_text("\n".join(urls))
    (folder / "wanted").rename(folder / "go")
    codes = [process.wait(60) for process in it.processes[2:4]]
    found = [(len(rows(url)), len(read(subscriptions, feed_id=agree(url)[0].id))) for url in urls]
    it.prove(
        "two processes that subscribe to new feeds at once make one row of each, and neither fails",
        codes == [0, 0] and set(found) == {(1, 2)},
    )
    for url in urls:
        for name in names:
            unsubscribe(name, url)


def one_of_two(folder: Path, name: str) -> None:
    subscribe(name, "http://127.0.0.1:9/")  # all is opened then
    unsubscribe(name, "http://127.0.0.1:9/")
    (folder / f"{name}-ready").touch()
    while not (folder / "go").exists():
        time.sleep(0.001)
    for url in (folder / "go").read_text().split():
        subscribe(name, url)


def coming_and_going(it: Scene, readers: int = 6, rounds: int = 6) -> None:
    """Readers come and go, each twice at once, while the feeds are being fetched."""
    urls = [it.web.feed(f"crowd-{n}", headers={"Cache-Control": "max-age=0"}) for n in range(2)]
    start = threading.Barrier(2 * readers)

    def come_and_go(number: int) -> None:
        name = f"reader {number // 2}"  # two windows of one reader
        start.wait()
        for turn in range(rounds):
            url = urls[(number + turn) % 2]
            subscribe(name, url)
            unsubscribe(name, url)

    in_threads(2 * readers, come_and_go)
    it.prove(
        "whoever is the last to leave, every feed is disabled then",
        not any(agree(url)[1].enabled for url in urls),
    )

    def go_or_come(number: int) -> None:
        start.wait()
        (unsubscribe if number % 2 else subscribe)(f"reader {number}", urls[0])

    for number in range(1, 2 * readers, 2):
        subscribe(f"reader {number}", urls[0])
    in_threads(2 * readers, go_or_come)
    it.prove("where all leave and others come at once, it is enabled", agree(urls[0])[1].enabled)
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


def killed(it: Scene) -> None:
    """kill -9 of a worker and of its supervisor, in the middle of a fetch."""
    url = it.web.feed("stale", titles=["after all"])
    with it.web.held("stale"):
        subscribe("ann", url)
        it.stage.until("the fetch has begun", lambda: it.web.inside["stale"])
        job = agree(url)[1]
        pid = int(str(job.worker_id).rsplit("-", 2)[1])
        parent = int(subprocess.check_output(["ps", "-o", "ppid=", "-p", str(pid)]))
        [supervisor] = [worker for worker in it.processes if worker.pid == parent]
        it.stage.kill(supervisor)
        os.kill(pid, 9)
        it.stage.until("another worker has taken it", lambda: it.web.arrived["stale"] == 2)
    it.stage.until("that run has ended", lambda: agree(url)[1].last_run_at)
    feed, after = agree(url)
    it.prove(
        "the run of a worker that was killed is taken over by another",
        after.claim_no > job.claim_no
        and after.consecutive_failures == 0
        and [row.guid for row in read(entries, feed_id=feed.id)] == ["after all"],
    )


LIVE = (
    start_up,
    none_twice,
    disabled_while_it_runs,
    hub_terms,
    two_processes,
    coming_and_going,
    killed,
)

if __name__ == "__main__":
    one_of_two(Path(sys.argv[1]), sys.argv[2])
