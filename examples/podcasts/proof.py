"""Try the directory out: several real servers, feeds over HTTP, `kill -9` in the middle.

The limit is not asked of the directory: the publisher counts how many fetches are in flight.
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

from examples.podcasts import publisher
from examples.remote import Remote
from examples.stage import Stage, free_port
from holdfast import Holdfast, Job, LimitInfo, Status

FINAL = ("completed", "failed", "cancelled")
UNFINISHED = [status for status in Status if status not in FINAL]
LIMIT = 3
ROW = dict[str, Any]


@dataclass
class Facts:
    """What was seen; the tests look at it when everything has ended."""

    limits: list[LimitInfo] = field(default_factory=list)
    server_pids: list[int] = field(default_factory=list)  #: in the order of their start
    second_ran_a_probe: bool = False
    statuses_while_full: list[str] = field(default_factory=list)
    shown_while_full: list[ROW] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)  #: why the last one waits, while three run
    peaks: dict[str, int] = field(default_factory=dict)  #: fetches in flight at most, by act
    orphans: list[Job] = field(default_factory=list)  #: jobs that the killed server ran, afterwards
    acknowledged: dict[str, str] = field(default_factory=dict)  #: name of a feed: id of its podcast
    refused: set[str] = field(default_factory=set)  #: names of feeds whose server did not answer
    interrupted: list[Job] = field(default_factory=list)  #: jobs that ran when all were killed
    podcasts: dict[str, ROW] = field(default_factory=dict)  #: by name, as GET shows them at the end
    rows: list[ROW] = field(default_factory=list)  #: of the table `podcasts`
    episodes: dict[str, list[ROW]] = field(default_factory=dict)  #: of the table, by podcast
    jobs: list[Job] = field(default_factory=list)
    traces: list[str | None] = field(default_factory=list)  #: of the feed that is broken
    workers_left: int = -1  #: that the database knows of, after the last server was asked to stop


class Scene:
    """The servers, the publisher and somebody who looks into the database."""

    def __init__(self, stage: Stage, remote: Remote, app: Holdfast) -> None:
        self.stage = stage
        self.remote = remote
        self.app = app
        self.facts = Facts()
        self.client = httpx.Client(timeout=30)

    def serve(self) -> "Server":
        port = free_port()
        process = self.stage.start(
            *("uvicorn", "examples.podcasts.server:api", "--port", str(port)),
            PODCASTS_DB=str(self.stage.folder / "podcasts.db"),
            HOLDFAST_HEARTBEAT="1",  # a dead one is noticed within four seconds, not twenty
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

    def post(self, server: "Server", name: str) -> ROW:
        """An import; what was acknowledged is written down."""
        wish = {"url": f"{self.remote.url}/{name}.xml"}
        answer = self.client.post(f"{server.url}/podcasts/import", json=wish)
        assert answer.status_code == 202, answer.text
        told: ROW = answer.json()
        self.facts.acknowledged[name] = told["id"]
        return told

    def show(self, server: "Server", podcast_id: str) -> ROW:
        answer = self.client.get(f"{server.url}/podcasts/{podcast_id}")
        assert answer.status_code == 200, answer.text
        shown: ROW = answer.json()
        return shown

    def runs_jobs(self, server: "Server") -> bool:
        """Its worker has run one of ours: it looks for work, and is free to take it."""
        probe = self.app.enqueue("analytics", {"podcast_id": "probe"})
        self.stage.until("a probe runs", lambda: self.app.jobs.get(probe.id).status in FINAL)
        pid = int((self.app.jobs.get(probe.id).worker_id or "").split("-")[-2])
        return pid == server.process.pid


@dataclass
class Server:
    process: subprocess.Popen[bytes]
    url: str


def play(stage: Stage) -> Facts:
    with curtain(stage) as scene:
        first = one_server_is_full(scene)
        second = another_server_may_not_exceed_it(scene)
        third = the_first_is_killed(scene, first, second)
        last = all_are_killed_while_imports_arrive(scene, second, third)
        some_feeds_fail(scene, last)
        everything_is_there(scene, last)
        stage.stop(last.process)
        scene.facts.workers_left = scene.app.stats().workers
        stage.prove("a server that is asked to stop takes its leave", not scene.facts.workers_left)
        return scene.facts


@contextmanager
def curtain(stage: Stage) -> Iterator[Scene]:
    app = Holdfast(f"sqlite:///{stage.folder / 'podcasts.db'}")
    with Remote(publisher.site) as remote, app:
        scene = Scene(stage, remote, app)
        with scene.client:
            yield scene


def one_server_is_full(scene: Scene) -> Server:
    """The publisher holds its answers back: three imports run, five wait."""
    stage, facts = scene.stage, scene.facts
    scene.remote.hold()
    server = scene.serve()
    stage.until("the server is up", lambda: scene.is_up(server))
    told = [scene.post(server, f"early-{number}") for number in range(8)]
    stage.until("three are fetched", lambda: scene.remote.in_flight == LIMIT)
    facts.shown_while_full = [scene.show(server, one["id"]) for one in told]
    facts.statuses_while_full = sorted(one["job"]["status"] for one in facts.shown_while_full)
    facts.limits = scene.app.limits.list()
    facts.waits = scene.app.jobs.why(told[-1]["job"]["id"])
    stage.prove(
        "the server answers while its three imports wait for the publisher, and shows how each stands",
        facts.statuses_while_full == ["pending"] * 5 + ["running"] * LIMIT,
    )
    stage.prove(f"why one waits is told: {facts.waits[0]}", "3 of 3 running" in facts.waits[0])
    return server


def another_server_may_not_exceed_it(scene: Scene) -> Server:
    stage = scene.stage
    server = scene.serve()
    stage.until("the second server is up", lambda: scene.is_up(server))
    for number in range(4):
        scene.post(server, f"late-{number}")
    # Its worker runs other jobs: it would run imports as well, if it might.
    runs = stage.until("the second server runs jobs", lambda: scene.runs_jobs(server))
    scene.facts.second_ran_a_probe = runs
    scene.facts.peaks["two servers"] = scene.remote.peak
    stage.prove(
        "a second server with free slots starts no fourth import",
        scene.remote.peak == scene.remote.in_flight == LIMIT,
    )
    return server


def the_first_is_killed(scene: Scene, first: Server, second: Server) -> Server:
    """It holds all three places. They are free again when it is known to be dead."""
    stage, app = scene.stage, scene.app
    held = [job.id for job in app.jobs.search(type="podcast_import", status="running")]
    stage.kill(first.process)
    stage.until("its fetches are cut off", lambda: scene.remote.in_flight == 0)
    scene.remote.forget_peak()
    scene.remote.pace = 0.15
    scene.remote.release()
    third = scene.serve()  # restarted, as by a service manager
    stage.until(
        "its imports are done", lambda: all(app.jobs.get(id).status in FINAL for id in held)
    )
    scene.facts.orphans = [app.jobs.get(id) for id in held]
    pids = {(job.worker_id or "").split("-")[-2] for job in scene.facts.orphans}
    stage.prove(
        "the three imports of a server that was killed (-9) are run again by those that live",
        len(held) == LIMIT and str(first.process.pid) not in pids,
    )
    stage.until("the third server is up", lambda: scene.is_up(third))
    return third


def all_are_killed_while_imports_arrive(scene: Scene, *servers: Server) -> Server:
    """Requests are on their way at the moment of the kill. Who got no answer asks again, until the
    service manager has started another server, which has nobody to help it."""
    stage, facts, jobs = scene.stage, scene.facts, scene.app.jobs
    doors, known = list(servers), len(facts.acknowledged)
    scene.remote.hold()
    with ThreadPoolExecutor(4) as people:
        numbers = itertools.count()
        asking = [people.submit(ask_until_refused, scene, doors, numbers) for _ in range(4)]
        stage.until("three are fetched", lambda: scene.remote.in_flight == LIMIT)
        stage.until("some are acknowledged", lambda: len(facts.acknowledged) >= known + 6)
        for server in servers:
            stage.kill(server.process)
        running = [job.id for job in jobs.search(type="podcast_import", status="running")]
        scene.remote.release()
        doors[:] = [scene.serve()]
        for one in asking:
            one.result()
    stage.until("what ran is done", lambda: all(jobs.get(id).status in FINAL for id in running))
    facts.interrupted = [jobs.get(id) for id in running]
    stage.prove(
        f"all servers are killed (-9) in a storm of imports: {len(facts.refused)} get no answer and "
        f"ask again; {len(running)} that ran are run again by the one that is started then",
        facts.refused and len(running) == LIMIT,
    )
    return doors[0]


def ask_until_refused(scene: Scene, doors: Sequence[Server], numbers: Iterator[int]) -> None:
    """One import after the other, until somebody got no answer; that one is asked for again."""
    facts = scene.facts

    def is_acknowledged() -> bool:
        try:
            return bool(scene.post(doors[number % len(doors)], name))
        except httpx.TransportError:
            facts.refused.add(name)
            return False

    while not facts.refused:
        number = next(numbers)
        name = f"storm-{number}"
        scene.stage.until(f"{name} is acknowledged", is_acknowledged)


def some_feeds_fail(scene: Scene, server: Server) -> None:
    for name in ("shaky-feed", "gone-feed", "broken-feed"):
        scene.post(server, name)
    stage, jobs = scene.stage, scene.app.jobs
    stage.until("all jobs end", lambda: not list(jobs.search(status=UNFINISHED, limit=1)))
    scene.facts.peaks["after the kills"] = scene.remote.peak
    stage.prove(
        f"in all that time never more than {LIMIT} fetches were in flight, and {LIMIT} were",
        scene.remote.peak == LIMIT,
    )


def everything_is_there(scene: Scene, server: Server) -> None:
    facts, stage, jobs = scene.facts, scene.stage, scene.app.jobs
    facts.podcasts = {name: scene.show(server, id) for name, id in facts.acknowledged.items()}
    facts.jobs = [jobs.get(job.id) for job in jobs.search(type="podcast_import")]
    read_tables(scene)
    well = {name: one for name, one in facts.podcasts.items() if is_well(name)}
    stage.prove(
        f"nothing is lost: {len(well)} podcasts are there, whole, each from one job",
        all(is_whole(name, one) for name, one in well.items())
        and len(facts.jobs) == len(facts.rows) == len(facts.acknowledged),
    )
    shaky, gone, broken = (facts.podcasts[f"{x}-feed"]["job"] for x in ("shaky", "gone", "broken"))
    stage.prove(
        f"a feed that fails twice is there at the {shaky['retries'] + 1}rd try",
        (shaky["status"], shaky["retries"]) == ("completed", 2),
    )
    stage.prove(f"one that is gone is not tried again: {gone['error']}", gone["retries"] == 0)
    facts.traces = [attempt.trace for attempt in jobs.attempts(broken["id"])]
    stage.prove(
        f"one that is broken fails after three tries: {broken['error']}",
        (broken["status"], broken["retries"], len(facts.traces)) == ("failed", 2, 3),
    )


def read_tables(scene: Scene) -> None:
    connection = sqlite3.connect(scene.stage.folder / "podcasts.db")
    connection.row_factory = sqlite3.Row
    scene.facts.rows = [dict(row) for row in connection.execute("SELECT * FROM podcasts")]
    for row in connection.execute("SELECT * FROM episodes ORDER BY published"):
        scene.facts.episodes.setdefault(row["podcast_id"], []).append(dict(row))
    connection.close()


def is_well(name: str) -> bool:
    return not name.startswith(("gone", "broken"))


def is_whole(name: str, shown: ROW) -> bool:
    """It says what its publisher says."""
    return (shown["title"], shown["episodes"], shown["minutes"], shown["job"]["status"]) == (
        publisher.title(name),
        publisher.length(name),
        publisher.minutes(name),
        "completed",
    )
