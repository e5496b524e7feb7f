"""End-to-end checks: a forecast server over HTTP, worker processes on one file, one of them killed."""

import json
import os
import signal
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from examples.harness import Harness
from examples.remote_server import RemoteServer
from examples.weather import tiles
from examples.weather.forecast_server import ForecastServer, Runs, field_of
from holdfast import Attempt, Holdfast, Job, Status

APP = "examples.weather.app:app"
OLD, NEW = "20230125_06", "20230125_12"
MODELS: dict[str, Runs] = {
    "hrrr": {OLD: [0, 1], NEW: [0, 1]},  # the older run first: by age alone, it would be
    "gfs": {OLD: [0, 3, 6], NEW: [0, 3, 6]},
    "ecmwf": {NEW: [0, 6, 12]},
}
BROKEN = f"/ecmwf/{NEW}/f006.grib2"
UNFINISHED = [x for x in Status if x not in ("completed", "failed", "cancelled")]
PROCESSES, SLOTS = 3, 2
Worker = dict[str, Any]


@dataclass
class Facts:
    """What was observed; the tests read it when everything has ended."""

    in_order: list[Job] = field(default_factory=list)  #: as one slot began them
    journal_mode: str = ""
    while_held: list[Worker] = field(
        default_factory=list
    )  #: the workers' table, with downloads held
    shown: str = ""  #: as a person reads it
    running: list[Job] = field(default_factory=list)  #: of the workers, while held
    killed: Worker = field(default_factory=dict)
    at_the_end: list[Worker] = field(default_factory=list)
    orphans: list[Job] = field(default_factory=list)  #: what the victim ran, at the end
    failed: list[Job] = field(default_factory=list)
    failures: list[Attempt] = field(default_factory=list)
    dropped: list[Job] = field(default_factory=list)  #: what waited for the one that failed
    status_with_failure: str = ""
    retried: int = 0  #: jobs that the retry of the workflow did again
    statuses: list[str] = field(default_factory=list)  #: of all workflows, at the end
    jobs: list[Job] = field(default_factory=list)
    edges: dict[str, str] = field(default_factory=dict)  #: id of a tile's job: its parent's
    tiles: dict[str, bool] = field(default_factory=dict)  #: path: is it what it should be
    litter: list[str] = field(default_factory=list)  #: half-written files
    before_second_scan: int = 0  #: jobs
    second_scans: list[Job] = field(default_factory=list)
    downloads: dict[str, int] = field(default_factory=dict)


class WeatherTestbed:
    """The forecast centre, the folder of the application, and a view of its database."""

    def __init__(
        self, harness: Harness, forecasts: ForecastServer, remote: RemoteServer, app: Holdfast
    ) -> None:
        self.harness = harness
        self.forecasts = forecasts
        self.remote = remote
        self.app = app
        self.facts = Facts()
        self.environment = {
            "WEATHER_DB": str(harness.folder / "weather.db"),
            "WEATHER_FOLDER": str(harness.folder / "data"),
            "WEATHER_SOURCE": remote.url,
            "HOLDFAST_WORKDIR": str(harness.folder / "scratch"),
            "HOLDFAST_HEARTBEAT": "0.5",
            "HOLDFAST_BACKOFF_DELAY": "0.2",
        }

    def scan(self, *models: str) -> list[str]:
        """Start scans; returns the ids of their workflows."""
        return self.harness.run("examples.weather.scan", *models, **self.environment).split()

    @contextmanager
    def workers(self, slots: int, processes: int = 1) -> Iterator[None]:
        words = ("-q", f"default={slots}", "--processes", str(processes))
        process = self.harness.start("holdfast", "worker", APP, *words, **self.environment)
        yield
        assert self.harness.stop(process) == 0

    def table(self, *options: str) -> str:
        """Return the workers, as the command prints them."""
        return self.harness.run("holdfast", "workers", *options, "--url", self.app.url)

    def rows(self, *options: str) -> list[Worker]:
        found: list[Worker] = json.loads(self.table("--json", *options))
        return found

    def all_end(self) -> None:
        jobs = self.app.jobs
        self.harness.until(
            "all jobs end", lambda: not list(jobs.search(status=UNFINISHED, limit=1)), timeout=90
        )


def run_checks(harness: Harness) -> Facts:
    with open_testbed(harness) as testbed:
        the_newest_run_comes_first(testbed)
        with testbed.workers(SLOTS, PROCESSES):
            flows = three_workers_share_a_file(testbed)
            one_is_killed(testbed)
            a_file_fails(testbed, flows)
            a_second_scan_adds_nothing(testbed)
        everything_is_there(testbed)
        return testbed.facts


@contextmanager
def open_testbed(harness: Harness) -> Iterator[WeatherTestbed]:
    forecasts = ForecastServer(MODELS)
    forecasts.broken.add(BROKEN)
    app = Holdfast(f"sqlite:///{harness.folder / 'weather.db'}")
    with RemoteServer(forecasts.site) as remote, app:
        yield WeatherTestbed(harness, forecasts, remote, app)


def the_newest_run_comes_first(testbed: WeatherTestbed) -> None:
    """One slot shows the order of the runs."""
    harness, facts = testbed.harness, testbed.facts
    [flow] = testbed.scan("hrrr")
    with testbed.workers(slots=1):
        harness.until(
            "the scan's workflow completes",
            lambda: over(testbed.app, flow) == "completed",
        )
    jobs = testbed.app.workflows.jobs(flow)
    facts.in_order = sorted(jobs, key=lambda job: (job.started_at, job.id))
    newest = [job for job in jobs if (job.node or "").startswith(NEW)]
    harness.check(
        f"{len(jobs)} jobs of two runs: all {len(newest)} of the newest run went before the other's",
        {job.id for job in facts.in_order[1 : len(newest) + 1]} == {job.id for job in newest},
    )
    connection = sqlite3.connect(harness.folder / "weather.db")
    [facts.journal_mode] = connection.execute("PRAGMA journal_mode").fetchone()
    connection.close()
    harness.check("the file is in WAL mode", facts.journal_mode == "wal")


def three_workers_share_a_file(testbed: WeatherTestbed) -> list[str]:
    """The server holds its files back, so that all workers are busy."""
    harness, facts = testbed.harness, testbed.facts
    testbed.remote.hold(ending=".grib2")
    flows = testbed.scan("gfs", "gfs", "ecmwf")  # two scans of one model, at the same time
    all_slots = PROCESSES * SLOTS
    harness.until("every slot downloads", lambda: testbed.remote.in_flight == all_slots)

    def busy_workers() -> list[Worker]:
        rows = testbed.rows()
        return rows if sum(len(row["jobs"]) for row in rows) == all_slots else []

    facts.while_held = harness.until("every worker has reported its jobs", busy_workers)
    facts.running = list(testbed.app.jobs.search(status="running"))
    facts.shown = testbed.table()
    print(facts.shown, end="")
    harness.check(
        f"{PROCESSES} workers on one file report, with every heartbeat, which jobs they run",
        {job["id"] for row in facts.while_held for job in row["jobs"]}
        == {job.id for job in facts.running},
    )
    harness.check(
        "a job's worker_id begins with its worker's host and pid",
        all(is_named_after(job, facts.while_held) for job in facts.running),
    )
    return flows


def is_named_after(job: Job, workers: Sequence[Worker]) -> bool:
    [worker] = [row for row in workers if row["id"] == job.worker_id]
    return (job.worker_id or "").startswith(f"{worker['host']}-{worker['pid']}-")


def one_is_killed(testbed: WeatherTestbed) -> None:
    harness, facts, jobs = testbed.harness, testbed.facts, testbed.app.jobs
    # A worker without the broken file, which is another check.
    facts.killed = next(row for row in facts.while_held if not has_broken(testbed, row))
    os.kill(facts.killed["pid"], signal.SIGKILL)
    left = (PROCESSES - 1) * SLOTS
    harness.until("its downloads are cut off", lambda: testbed.remote.in_flight == left)
    testbed.remote.release()
    testbed.all_end()

    def beat_again() -> bool:
        facts.at_the_end = testbed.rows("--all")
        return len(beaten_since(facts)) == PROCESSES - 1

    harness.until("the other workers send heartbeats again", beat_again)
    facts.orphans = [jobs.get(job["id"]) for job in facts.killed["jobs"]]
    harness.check(
        f"a worker is killed (-9); others end its {len(facts.orphans)} jobs",
        all(
            job.status == "completed" and job.worker_id != facts.killed["id"]
            for job in facts.orphans
        ),
    )


def beaten_since(facts: Facts) -> list[str]:
    """Return the workers whose last heartbeat is newer than the one that the table showed first."""
    now = {row["id"]: row["beat_at"] for row in facts.at_the_end if row["state"] == "live"}
    return [row["id"] for row in facts.while_held if now.get(row["id"], "") > row["beat_at"]]


def has_broken(testbed: WeatherTestbed, worker: Worker) -> bool:
    """Return whether this worker is about to download the broken file."""
    files = [testbed.app.jobs.get(job["id"]).payload for job in worker["jobs"]]
    return BROKEN in [f"/{x['model_id']}/{x['run_id']}/f{x['hour']:03}.grib2" for x in files]


def a_file_fails(testbed: WeatherTestbed, flows: Sequence[str]) -> None:
    """After its last attempt the job keeps its traces, its dependent jobs are cancelled, and the others
    complete; when the server is repaired, a retry of the workflow does the rest."""
    harness, facts, app = testbed.harness, testbed.facts, testbed.app
    flow = flows[-1]
    facts.failed = list(app.jobs.search(status="failed"))
    [failed] = facts.failed
    facts.failures = app.jobs.attempts(failed.id)
    facts.dropped = list(app.jobs.search(status="cancelled"))
    facts.status_with_failure = harness.until("the workflow is over", lambda: over(app, flow))
    harness.check(
        f"the job of an unavailable file fails with every trace kept: {failed.error}",
        len(facts.failures) == failed.attempts == 3
        and all("in ingest_grib" in (failure.trace or "") for failure in facts.failures),
    )
    harness.check(
        f"the {len(facts.dropped)} dependent tiles are cancelled, the other tiles are built",
        {job.type for job in facts.dropped} == {"build_tile"},
    )
    testbed.forecasts.broken.clear()
    facts.retried = app.workflows.retry(flow)
    testbed.all_end()
    facts.statuses = [harness.until("a workflow is over", partial(over, app, one)) for one in flows]
    harness.check(
        f"when the server is repaired, a retry runs those {facts.retried} jobs and no others",
        set(facts.statuses) == {"completed"} and facts.retried == 1 + len(tiles.BOUNDS),
    )


def over(app: Holdfast, flow: str) -> str:
    """Return the final status of a workflow, or "" before it has ended, shortly after its last job."""
    info = app.workflows.get(flow)
    return info.status if info.finished_at else ""


def a_second_scan_adds_nothing(testbed: WeatherTestbed) -> None:
    harness, facts, app = testbed.harness, testbed.facts, testbed.app
    facts.before_second_scan = app.jobs.count()
    flows = testbed.scan(*MODELS)
    testbed.all_end()
    facts.second_scans = [app.jobs.get(app.workflows.jobs(flow)[0].id) for flow in flows]
    harness.check(
        "a second scan of the same runs adds nothing",
        app.jobs.count() == facts.before_second_scan + len(MODELS)
        and all(scan.result["new"] == 0 for scan in facts.second_scans),
    )


def everything_is_there(testbed: WeatherTestbed) -> None:
    harness, facts, app = testbed.harness, testbed.facts, testbed.app
    facts.jobs = [app.jobs.get(job.id) for job in app.jobs.search()]
    for flow in app.workflows.list():
        facts.edges |= {edge.child: edge.parent for edge in app.workflows.edges(flow.id)}
    facts.downloads = dict(testbed.remote.request_counts)
    folder = harness.folder / "data"
    facts.litter = [str(path) for path in folder.rglob(".*")]
    facts.tiles = {
        str(path.relative_to(folder / "tiles")): is_right(path)
        for path in sorted(folder.rglob("*.npz"))
    }
    files = sum(len(hours) for runs in MODELS.values() for hours in runs.values())
    harness.check(
        f"{len(facts.tiles)} tiles of {files} files, each equal to the server's field",
        len(facts.tiles) == files * len(tiles.BOUNDS) and all(facts.tiles.values()),
    )


def is_right(tile: Path) -> bool:
    """Return whether a tile equals the server's field, at every level."""
    model_id, run_id, file, _ = tile.parts[-4:]
    field = field_of(model_id, run_id, int(file[1:]))
    expected = tiles.make(field, tile.stem)._asdict()
    with np.load(tile) as levels:
        return set(levels) == set(expected) and all(
            np.array_equal(levels[name], values) for name, values in expected.items()
        )
