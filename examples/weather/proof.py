"""Try it out: a centre over HTTP, real worker processes on one file, one of them killed."""

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

from examples.remote import Remote
from examples.stage import Stage
from examples.weather import tiles
from examples.weather.centre import Centre, Runs, field_of
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
    """What was seen; the tests look at it when everything has ended."""

    in_order: list[Job] = field(default_factory=list)  #: as one slot began them
    journal_mode: str = ""
    while_held: list[Worker] = field(
        default_factory=list
    )  #: the workers' table, with downloads held
    shown: str = ""  #: as a person reads it
    running: list[Job] = field(default_factory=list)  #: of the workers, while held
    victim: Worker = field(default_factory=dict)
    at_the_end: list[Worker] = field(default_factory=list)
    orphans: list[Job] = field(default_factory=list)  #: what the victim ran, at the end
    failed: list[Job] = field(default_factory=list)
    failures: list[Attempt] = field(default_factory=list)
    dropped: list[Job] = field(default_factory=list)  #: what waited for the one that failed
    status_with_failure: str = ""
    mended: int = 0  #: jobs that the retry of the workflow did again
    statuses: list[str] = field(default_factory=list)  #: of all workflows, at the end
    jobs: list[Job] = field(default_factory=list)
    edges: dict[str, str] = field(default_factory=dict)  #: id of a tile's job: its parent's
    tiles: dict[str, bool] = field(default_factory=dict)  #: path: is it what it should be
    litter: list[str] = field(default_factory=list)  #: half-written files
    before_second_scan: int = 0  #: jobs
    second_scans: list[Job] = field(default_factory=list)
    downloads: dict[str, int] = field(default_factory=dict)


class Scene:
    """The centre, the application's folder and somebody who looks into the database."""

    def __init__(self, stage: Stage, centre: Centre, remote: Remote, app: Holdfast) -> None:
        self.stage = stage
        self.centre = centre
        self.remote = remote
        self.app = app
        self.facts = Facts()
        self.environment = {
            "WEATHER_DB": str(stage.folder / "weather.db"),
            "WEATHER_FOLDER": str(stage.folder / "data"),
            "WEATHER_SOURCE": remote.url,
            "HOLDFAST_WORKDIR": str(stage.folder / "scratch"),
            "HOLDFAST_HEARTBEAT": "0.5",
            "HOLDFAST_BACKOFF_DELAY": "0.2",
        }

    def scan(self, *models: str) -> list[str]:
        """The ids of the workflows."""
        return self.stage.run("examples.weather.scan", *models, **self.environment).split()

    @contextmanager
    def workers(self, slots: int, processes: int = 1) -> Iterator[None]:
        words = ("-q", f"default={slots}", "--processes", str(processes))
        process = self.stage.start("holdfast", "worker", APP, *words, **self.environment)
        yield
        assert self.stage.stop(process) == 0

    def table(self, *options: str) -> str:
        """The workers, as the command prints them."""
        return self.stage.run("holdfast", "workers", *options, "--url", self.app.url)

    def rows(self, *options: str) -> list[Worker]:
        found: list[Worker] = json.loads(self.table("--json", *options))
        return found

    def all_end(self) -> None:
        jobs = self.app.jobs
        self.stage.until(
            "all jobs end", lambda: not list(jobs.search(status=UNFINISHED, limit=1)), patience=90
        )


def play(stage: Stage) -> Facts:
    with curtain(stage) as scene:
        the_newest_run_comes_first(scene)
        with scene.workers(SLOTS, PROCESSES):
            flows = three_workers_share_a_file(scene)
            one_is_killed(scene)
            a_file_fails(scene, flows)
            a_second_scan_adds_nothing(scene)
        everything_is_there(scene)
        return scene.facts


@contextmanager
def curtain(stage: Stage) -> Iterator[Scene]:
    centre = Centre(MODELS)
    centre.broken.add(BROKEN)
    app = Holdfast(f"sqlite:///{stage.folder / 'weather.db'}")
    with Remote(centre.site) as remote, app:
        yield Scene(stage, centre, remote, app)


def the_newest_run_comes_first(scene: Scene) -> None:
    """One slot, so that there is an order."""
    stage, facts = scene.stage, scene.facts
    [flow] = scene.scan("hrrr")
    with scene.workers(slots=1):
        stage.until(
            "the scan's workflow completes",
            lambda: over(scene.app, flow) == "completed",
        )
    jobs = scene.app.workflows.jobs(flow)
    facts.in_order = sorted(jobs, key=lambda job: (job.started_at, job.id))
    newest = [job for job in jobs if (job.node or "").startswith(NEW)]
    stage.prove(
        f"{len(jobs)} jobs of two runs: all {len(newest)} of the newest run went before the other's",
        {job.id for job in facts.in_order[1 : len(newest) + 1]} == {job.id for job in newest},
    )
    connection = sqlite3.connect(stage.folder / "weather.db")
    [facts.journal_mode] = connection.execute("PRAGMA journal_mode").fetchone()
    connection.close()
    stage.prove("the file is in WAL mode", facts.journal_mode == "wal")


def three_workers_share_a_file(scene: Scene) -> list[str]:
    """The centre holds its files back, so that everybody can be seen at work."""
    stage, facts = scene.stage, scene.facts
    scene.remote.hold(ending=".grib2")
    flows = scene.scan("gfs", "gfs", "ecmwf")  # two scans of one model, at the same time
    everybody = PROCESSES * SLOTS
    stage.until("every slot downloads", lambda: scene.remote.in_flight == everybody)

    def told() -> list[Worker]:
        rows = scene.rows()
        return rows if sum(len(row["jobs"]) for row in rows) == everybody else []

    facts.while_held = stage.until("every worker has told what it does", told)
    facts.running = list(scene.app.jobs.search(status="running"))
    facts.shown = scene.table()
    print(facts.shown, end="")
    stage.prove(
        f"{PROCESSES} workers on one file tell, with every heartbeat, which job they run",
        {job["id"] for row in facts.while_held for job in row["jobs"]}
        == {job.id for job in facts.running},
    )
    stage.prove(
        "a job's worker_id begins with its worker's host and pid",
        all(is_named_after(job, facts.while_held) for job in facts.running),
    )
    return flows


def is_named_after(job: Job, workers: Sequence[Worker]) -> bool:
    [worker] = [row for row in workers if row["id"] == job.worker_id]
    return (job.worker_id or "").startswith(f"{worker['host']}-{worker['pid']}-")


def one_is_killed(scene: Scene) -> None:
    stage, facts, jobs = scene.stage, scene.facts, scene.app.jobs
    # One whose downloads can be had when it is dead: the broken file is another act.
    facts.victim = next(row for row in facts.while_held if not has_broken(scene, row))
    os.kill(facts.victim["pid"], signal.SIGKILL)
    left = (PROCESSES - 1) * SLOTS
    stage.until("its downloads are cut off", lambda: scene.remote.in_flight == left)
    scene.remote.release()
    scene.all_end()

    def beat_again() -> bool:
        facts.at_the_end = scene.rows("--all")
        return len(beaten_since(facts)) == PROCESSES - 1

    stage.until("those that live beat again", beat_again)
    facts.orphans = [jobs.get(job["id"]) for job in facts.victim["jobs"]]
    stage.prove(
        f"a worker is killed (-9); others end its {len(facts.orphans)} jobs",
        all(
            job.status == "completed" and job.worker_id != facts.victim["id"]
            for job in facts.orphans
        ),
    )


def beaten_since(facts: Facts) -> list[str]:
    """The workers whose last heartbeat is newer than what the table showed first."""
    now = {row["id"]: row["beat_at"] for row in facts.at_the_end if row["state"] == "live"}
    return [row["id"] for row in facts.while_held if now.get(row["id"], "") > row["beat_at"]]


def has_broken(scene: Scene, worker: Worker) -> bool:
    """It is about to download the file that cannot be had."""
    files = [scene.app.jobs.get(job["id"]).payload for job in worker["jobs"]]
    return BROKEN in [f"/{x['model_id']}/{x['run_id']}/f{x['hour']:03}.grib2" for x in files]


def a_file_fails(scene: Scene, flows: Sequence[str]) -> None:
    """After its last attempt it is kept with its traces, what waited for it is cancelled, the rest is
    done; when the centre is mended, the workflow goes on where it was."""
    stage, facts, app = scene.stage, scene.facts, scene.app
    flow = flows[-1]
    facts.failed = list(app.jobs.search(status="failed"))
    [failed] = facts.failed
    facts.failures = app.jobs.attempts(failed.id)
    facts.dropped = list(app.jobs.search(status="cancelled"))
    facts.status_with_failure = stage.until("the workflow is over", lambda: over(app, flow))
    stage.prove(
        f"a file that cannot be had fails with every trace kept: {failed.error}",
        len(facts.failures) == failed.attempts == 3
        and all("in ingest_grib" in (failure.trace or "") for failure in facts.failures),
    )
    stage.prove(
        f"the {len(facts.dropped)} tiles that waited for it are cancelled, the other tiles are built",
        {job.type for job in facts.dropped} == {"build_tile"},
    )
    scene.centre.broken.clear()
    facts.mended = app.workflows.retry(flow)
    scene.all_end()
    facts.statuses = [stage.until("a workflow is over", partial(over, app, one)) for one in flows]
    stage.prove(
        f"when the centre is mended, a retry does those {facts.mended} jobs and nothing else again",
        set(facts.statuses) == {"completed"} and facts.mended == 1 + len(tiles.BOUNDS),
    )


def over(app: Holdfast, flow: str) -> str:
    """How it ended; "" while it has not. It is told a moment after its last job has ended."""
    info = app.workflows.get(flow)
    return info.status if info.finished_at else ""


def a_second_scan_adds_nothing(scene: Scene) -> None:
    stage, facts, app = scene.stage, scene.facts, scene.app
    facts.before_second_scan = app.jobs.count()
    flows = scene.scan(*MODELS)
    scene.all_end()
    facts.second_scans = [app.jobs.get(app.workflows.jobs(flow)[0].id) for flow in flows]
    stage.prove(
        "a second scan of the same runs adds nothing",
        app.jobs.count() == facts.before_second_scan + len(MODELS)
        and all(scan.result["new"] == 0 for scan in facts.second_scans),
    )


def everything_is_there(scene: Scene) -> None:
    stage, facts, app = scene.stage, scene.facts, scene.app
    facts.jobs = [app.jobs.get(job.id) for job in app.jobs.search()]
    for flow in app.workflows.list():
        facts.edges |= {edge.child: edge.parent for edge in app.workflows.edges(flow.id)}
    facts.downloads = dict(scene.remote.asked)
    folder = stage.folder / "data"
    facts.litter = [str(path) for path in folder.rglob(".*")]
    facts.tiles = {
        str(path.relative_to(folder / "tiles")): is_right(path)
        for path in sorted(folder.rglob("*.npz"))
    }
    files = sum(len(hours) for runs in MODELS.values() for hours in runs.values())
    stage.prove(
        f"{len(facts.tiles)} tiles of {files} files, each with what the centre's field says",
        len(facts.tiles) == files * len(tiles.BOUNDS) and all(facts.tiles.values()),
    )


def is_right(tile: Path) -> bool:
    """It has what the centre's field says, at every level."""
    model_id, run_id, file, _ = tile.parts[-4:]
    field = field_of(model_id, run_id, int(file[1:]))
    expected = tiles.make(field, tile.stem)._asdict()
    with np.load(tile) as levels:
        return set(levels) == set(expected) and all(
            np.array_equal(levels[name], values) for name, values in expected.items()
        )
