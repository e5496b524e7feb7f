"""End-to-end checks of the directory: several real servers, feeds over HTTP, and `kill -9`.

The limit is measured at the publisher, which counts the fetches in flight.
"""

import itertools
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from examples.harness import Harness, free_port
from examples.podcasts import publisher
from examples.remote_server import RemoteServer
from holdfast import Holdfast, Job, LimitInfo, Status

FINAL = ("completed", "failed", "cancelled")
UNFINISHED = [status for status in Status if status not in FINAL]
LIMIT = 3
Row = dict[str, Any]


@dataclass
class Facts:
    """What was observed; the tests read it when everything has ended."""

    limits: list[LimitInfo] = field(default_factory=list)
    server_pids: list[int] = field(default_factory=list)  #: in the order of their start
    second_ran_a_probe: bool = False
    statuses_while_full: list[str] = field(default_factory=list)
    shown_while_full: list[Row] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)  #: why the last job waits, while three run
    peaks: dict[str, int] = field(default_factory=dict)  #: most fetches in flight, by check
    orphans: list[Job] = field(default_factory=list)  #: jobs that the killed server ran, afterwards
    acknowledged: dict[str, str] = field(default_factory=dict)  #: name of a feed: id of its podcast
    refused: set[str] = field(default_factory=set)  #: names of feeds whose server did not answer
    interrupted: list[Job] = field(default_factory=list)  #: jobs that ran when all were killed
    podcasts: dict[str, Row] = field(default_factory=dict)  #: by name, as GET shows them at the end
    rows: list[Row] = field(default_factory=list)  #: of the table `podcasts`
    episodes: dict[str, list[Row]] = field(default_factory=dict)  #: of the table, by podcast
    jobs: list[Job] = field(default_factory=list)
    traces: list[str | None] = field(default_factory=list)  #: of the feed that is broken
    workers_left: int = -1  #: that the database knows of, after the last server was asked to stop


class PodcastTestbed:
    """The servers, the publisher, and a view of the database."""

    def __init__(self, harness: Harness, remote: RemoteServer, app: Holdfast) -> None:
        self.harness = harness
        self.remote = remote
        self.app = app
        self.facts = Facts()
        self.client = httpx.Client(timeout=30)

    def serve(self) -> "Server":
        port = free_port()
        process = self.harness.start(
            *("uvicorn", "examples.podcasts.server:api", "--port", str(port)),
            PODCASTS_DB=str(self.harness.folder / "podcasts.db"),
            HOLDFAST_HEARTBEAT="1",  # a dead worker is noticed within four seconds, not twenty
            HOLDFAST_BACKOFF_DELAY="0.2",
        )
        self.facts.server_pids.append(process.pid)
        return Server(process, f"http://127.0.0.1:{port}")

    def is_up(self, server: "Server") -> bool:
        assert server.process.poll() is None, "the server has ended"
        try:
            return self.client.get(f"{server.url}/admin/jobs/ready").is_success
        except httpx.TransportError:
            return False

    def post(self, server: "Server", name: str) -> Row:
        """Request an import; records it when it is acknowledged."""
        body = {"url": f"{self.remote.url}/{name}.xml"}
        answer = self.client.post(f"{server.url}/podcasts/import", json=body)
        assert answer.status_code == 202, answer.text
        shown: Row = answer.json()
        self.facts.acknowledged[name] = shown["id"]
        return shown

    def show(self, server: "Server", podcast_id: str) -> Row:
        answer = self.client.get(f"{server.url}/podcasts/{podcast_id}")
        assert answer.status_code == 200, answer.text
        shown: Row = answer.json()
        return shown

    def runs_jobs(self, server: "Server") -> bool:
        """Return whether this server's worker runs a probe job, so it has free slots."""
        probe = self.app.enqueue("analytics", {"podcast_id": "probe"})
        self.harness.until("a probe runs", lambda: self.app.jobs.get(probe.id).status in FINAL)
        pid = int((self.app.jobs.get(probe.id).worker_id or "").split("-")[-2])
        return pid == server.process.pid


@dataclass
class Server:
    process: subprocess.Popen[bytes]
    url: str


def run_checks(harness: Harness) -> Facts:
    with open_testbed(harness) as testbed:
        first = one_server_is_full(testbed)
        second = another_server_may_not_exceed_it(testbed)
        third = the_first_is_killed(testbed, first, second)
        last = all_are_killed_while_imports_arrive(testbed, second, third)
        some_feeds_fail(testbed, last)
        everything_is_there(testbed, last)
        harness.stop(last.process)
        testbed.facts.workers_left = testbed.app.stats().workers
        harness.check("a stopped server deregisters its worker", not testbed.facts.workers_left)
        return testbed.facts


@contextmanager
def open_testbed(harness: Harness) -> Iterator[PodcastTestbed]:
    app = Holdfast(f"sqlite:///{harness.folder / 'podcasts.db'}")
    with RemoteServer(publisher.site) as remote, app:
        testbed = PodcastTestbed(harness, remote, app)
        with testbed.client:
            yield testbed


def one_server_is_full(testbed: PodcastTestbed) -> Server:
    """The publisher holds its answers back: three imports run, five wait."""
    harness, facts = testbed.harness, testbed.facts
    testbed.remote.hold()
    server = testbed.serve()
    harness.until("the server is up", lambda: testbed.is_up(server))
    imports = [testbed.post(server, f"early-{number}") for number in range(8)]
    harness.until("three are fetched", lambda: testbed.remote.in_flight == LIMIT)
    facts.shown_while_full = [testbed.show(server, one["id"]) for one in imports]
    facts.statuses_while_full = sorted(one["job"]["status"] for one in facts.shown_while_full)
    facts.limits = testbed.app.limits.list()
    facts.waits = testbed.app.jobs.why(imports[-1]["job"]["id"])
    harness.check(
        "the server answers while three imports run, and shows the status of each",
        facts.statuses_while_full == ["pending"] * 5 + ["running"] * LIMIT,
    )
    harness.check(
        f"the reason for waiting is shown: {facts.waits[0]}", "3 of 3 running" in facts.waits[0]
    )
    return server


def another_server_may_not_exceed_it(testbed: PodcastTestbed) -> Server:
    harness = testbed.harness
    server = testbed.serve()
    harness.until("the second server is up", lambda: testbed.is_up(server))
    for number in range(4):
        testbed.post(server, f"late-{number}")
    # Its worker runs other jobs, so it would run imports if the limit allowed it.
    runs = harness.until("the second server runs jobs", lambda: testbed.runs_jobs(server))
    testbed.facts.second_ran_a_probe = runs
    testbed.facts.peaks["two servers"] = testbed.remote.peak
    harness.check(
        "a second server with free slots starts no fourth import",
        testbed.remote.peak == testbed.remote.in_flight == LIMIT,
    )
    return server


def the_first_is_killed(testbed: PodcastTestbed, first: Server, second: Server) -> Server:
    """The killed server runs all three imports. They run again when its worker is declared dead."""
    harness, app = testbed.harness, testbed.app
    held = [job.id for job in app.jobs.search(type="podcast_import", status="running")]
    harness.kill(first.process)
    harness.until("its fetches are cut off", lambda: testbed.remote.in_flight == 0)
    testbed.remote.reset_peak()
    testbed.remote.pace = 0.15
    testbed.remote.release()
    third = testbed.serve()  # restarted, as by a service manager
    harness.until(
        "its imports are done", lambda: all(app.jobs.get(id).status in FINAL for id in held)
    )
    testbed.facts.orphans = [app.jobs.get(id) for id in held]
    pids = {(job.worker_id or "").split("-")[-2] for job in testbed.facts.orphans}
    harness.check(
        "the three imports of a server that was killed (-9) run again on live servers",
        len(held) == LIMIT and str(first.process.pid) not in pids,
    )
    harness.until("the third server is up", lambda: testbed.is_up(third))
    return third


def all_are_killed_while_imports_arrive(testbed: PodcastTestbed, *servers: Server) -> Server:
    """All servers are killed while requests are in flight. Clients without answers repeat theirs until
    the service manager has started another server, which runs alone."""
    harness, facts, jobs = testbed.harness, testbed.facts, testbed.app.jobs
    live, known = list(servers), len(facts.acknowledged)
    testbed.remote.hold()
    with ThreadPoolExecutor(4) as clients:
        numbers = itertools.count()
        asking = [clients.submit(ask_until_refused, testbed, live, numbers) for _ in range(4)]
        harness.until("three are fetched", lambda: testbed.remote.in_flight == LIMIT)
        harness.until("some are acknowledged", lambda: len(facts.acknowledged) >= known + 6)
        for server in servers:
            harness.kill(server.process)
        running = [job.id for job in jobs.search(type="podcast_import", status="running")]
        testbed.remote.release()
        live[:] = [testbed.serve()]
        for one in asking:
            one.result()
    harness.until("what ran is done", lambda: all(jobs.get(id).status in FINAL for id in running))
    facts.interrupted = [jobs.get(id) for id in running]
    harness.check(
        f"all servers are killed (-9) during many imports: {len(facts.refused)} clients get no answer "
        f"and repeat their request; {len(running)} interrupted imports run again on the next server",
        facts.refused and len(running) == LIMIT,
    )
    return live[0]


def ask_until_refused(
    testbed: PodcastTestbed, servers: Sequence[Server], numbers: Iterator[int]
) -> None:
    """Request one import after the other, until a client gets no answer; repeat that request."""
    facts = testbed.facts

    def is_acknowledged() -> bool:
        try:
            return bool(testbed.post(servers[number % len(servers)], name))
        except httpx.TransportError:
            facts.refused.add(name)
            return False

    while not facts.refused:
        number = next(numbers)
        name = f"storm-{number}"
        testbed.harness.until(f"{name} is acknowledged", is_acknowledged)


def some_feeds_fail(testbed: PodcastTestbed, server: Server) -> None:
    for name in ("shaky-feed", "gone-feed", "broken-feed"):
        testbed.post(server, name)
    harness, jobs = testbed.harness, testbed.app.jobs
    harness.until("all jobs end", lambda: not list(jobs.search(status=UNFINISHED, limit=1)))
    testbed.facts.peaks["after the kills"] = testbed.remote.peak
    harness.check(
        f"in all that time never more than {LIMIT} fetches were in flight, and {LIMIT} were",
        testbed.remote.peak == LIMIT,
    )


def everything_is_there(testbed: PodcastTestbed, server: Server) -> None:
    facts, harness, jobs = testbed.facts, testbed.harness, testbed.app.jobs
    facts.podcasts = {name: testbed.show(server, id) for name, id in facts.acknowledged.items()}
    facts.jobs = [jobs.get(job.id) for job in jobs.search(type="podcast_import")]
    read_tables(testbed)
    well = {name: one for name, one in facts.podcasts.items() if is_well(name)}
    harness.check(
        f"nothing is lost: {len(well)} podcasts are complete, each from one job",
        all(is_whole(name, one) for name, one in well.items())
        and len(facts.jobs) == len(facts.rows) == len(facts.acknowledged),
    )
    shaky, gone, broken = (facts.podcasts[f"{x}-feed"]["job"] for x in ("shaky", "gone", "broken"))
    harness.check(
        f"a feed that fails twice is imported at the {shaky['retries'] + 1}rd attempt",
        (shaky["status"], shaky["retries"]) == ("completed", 2),
    )
    harness.check(f"a feed that is gone is not retried: {gone['error']}", gone["retries"] == 0)
    facts.traces = [attempt.trace for attempt in jobs.attempts(broken["id"])]
    harness.check(
        f"a broken feed fails after three attempts: {broken['error']}",
        (broken["status"], broken["retries"], len(facts.traces)) == ("failed", 2, 3),
    )


def read_tables(testbed: PodcastTestbed) -> None:
    connection = sqlite3.connect(testbed.harness.folder / "podcasts.db")
    connection.row_factory = sqlite3.Row
    testbed.facts.rows = [dict(row) for row in connection.execute("SELECT * FROM podcasts")]
    for row in connection.execute("SELECT * FROM episodes ORDER BY published"):
        testbed.facts.episodes.setdefault(row["podcast_id"], []).append(dict(row))
    connection.close()


def is_well(name: str) -> bool:
    return not name.startswith(("gone", "broken"))


def is_whole(name: str, shown: Row) -> bool:
    """Return whether the podcast has everything that its publisher serves."""
    return (shown["title"], shown["episodes"], shown["minutes"], shown["job"]["status"]) == (
        publisher.title(name),
        publisher.length(name),
        publisher.minutes(name),
        "completed",
    )
