"""The requests of the dashboard, beside a million jobs and a busy worker."""

import math
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.cases.monitoring import fill
from bench.databases import disk_folder
from bench.holdfast_store import HoldfastStore
from bench.job_store import Databases
from bench.measure import Case, Pace, Row, at_most
from bench.processes import Machine, guarded
from holdfast import Holdfast
from holdfast.jobs.job import FINISHED, Status
from tests.plans.dataset import Dataset, Section
from tests.support.web import Caller, Site

JOBS = 1_000_000
ASKED = 100  # times each
COARSE = 100.0  # milliseconds; shorter times are too close to a tick of Linux (10 ms)
RESPONSIVE = at_most(250.0, of="holdfast")  # milliseconds


def cases() -> list[Case[Databases]]:
    return [Case("web", web)]


@dataclass(frozen=True)
class BusyDataset(Dataset):
    """As many waiting jobs as finished ones."""

    @property
    def sections(self) -> list[Section]:
        made, start = list[Section](), 0
        for one in super().sections:
            waits = Status(one.status) not in FINISHED and not one.flows
            count = one.count * 3 if waits and one.status != "running" else one.count
            made.append(replace(one, start=start, count=count))
            start += count
        return made


def queries(world: Dataset) -> dict[str, str]:
    """Return the requests of the dashboard's pages, by what they show."""
    job, flow = world.ids("failed", 1)[0], world.flows("completed", 1)[0]
    return {
        "jobs": "/jobs",
        "failed jobs": "/jobs?status=failed",
        "jobs of a task": "/jobs?type=t1&status=completed",
        "jobs of a queue": "/jobs?queue=mail&status=pending",
        "jobs by words that few have": "/jobs?q=nowhere",
        "jobs by a part of the payload": "/jobs?q=payload.user.id%3A7",
        "a job": f"/jobs/{job}",
        "its attempts": f"/jobs/{job}/attempts",
        "why it waits": f"/jobs/{world.ids('pending', 1)[0]}/why",
        "queues": "/queues",
        "limits": "/limits",
        "schedules": "/schedules",
        "workers": "/workers",
        "workflows": "/workflows",
        "a workflow": f"/workflows/{flow}",
        "tasks": "/tasks",
        "a task": "/tasks/t1",
        "errors": "/errors",
        "stats": "/stats",
        "stats of a day": "/stats?window=24h",
        "series": "/series?window=24h",
        "system": "/system",
        "audit": "/audit",
        "health": "//health",
        "metrics": "//metrics",
    }


def web(databases: Databases, pace: Pace) -> list[Row]:
    share, times = (1, ASKED) if pace.pairs > 5 else (10, ASKED // 3)
    world = BusyDataset(JOBS // 2 // share)
    with databases.holdfast() as store:
        assert isinstance(store, HoldfastStore)
        store.close()  # the rows are inserted directly
        fill(store.app.url, world)
        with Holdfast(store.app.url) as app, working(app):
            site = Site(app)
            try:
                caller = site.somebody("admin")
                return [row(caller, name, path, times) for name, path in queries(world).items()]
            finally:
                site.close()


def row(caller: Caller, name: str, path: str, times: int) -> Row:
    """Measure a request. The goal applies to the time without what the host of this virtual machine
    gave to others, since a busy host doubles every time. The note has the times by the clock."""
    clock, adjusted = list[float](), list[float]()
    for _ in range(times):
        before, begin = Machine.now(), time.perf_counter()
        answer = caller.ask("GET", path)
        milliseconds, part = 1000 * (time.perf_counter() - begin), before.own_share(Machine.now())
        clock.append(milliseconds)
        adjusted.append(milliseconds * part if milliseconds > COARSE else milliseconds)
        if answer.status_code not in (200, 503 if path == "//health" else 200):
            raise RuntimeError(f"{path}: {answer.status_code} {answer.text[:300]}")
    note = f"by the clock {statistics.median(clock):.0f}, p99 {slowest(clock):.0f}"
    return Row(f"{name}: p99 in ms", None, slowest(adjusted), None, RESPONSIVE, note)


def slowest(milliseconds: list[float]) -> float:
    """Return the 99th percentile."""
    return sorted(milliseconds)[math.ceil(0.99 * len(milliseconds)) - 1]


@contextmanager
def working(app: Holdfast) -> Iterator[None]:
    """Run a worker process and enqueue a hundred jobs a second for it."""
    command = [sys.executable, "-m", "holdfast", "worker", "bench.worker_app:app", "-q", "web"]
    noop = app.task(name="noop")(lambda: None).using(queue="web")
    stop = threading.Event()

    def feed() -> None:
        while not stop.wait(0.1):
            noop.enqueue_many([{}] * 10)

    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=disk_folder()) as folder:
        env = {**os.environ, "HOLDFAST_URL": app.url, "HOLDFAST_WORKDIR": f"{folder}/work"}
        env["BENCH_PRUNE_WHILE"] = f"{folder}/never"
        with guarded(command, env, Path(folder) / "worker.log"):
            first = noop.enqueue()
            app.jobs.wait_for(first.id, timeout=60)
            thread = threading.Thread(target=feed)
            thread.start()
            try:
                yield
            finally:
                stop.set()
                thread.join()
