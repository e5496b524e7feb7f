"""What the dashboard asks for, beside a million jobs and a worker that has something to do."""

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

from bench.cases import Case
from bench.figure_cases import fill
from bench.measure import Pace, Row, at_most
from bench.ours import Ours
from bench.places import real_folder
from bench.processes import Machine, leashed
from bench.store import Place
from holdfast import Holdfast
from holdfast.jobs.job import FINISHED, Status
from tests.plans.dataset import Dataset, Section
from tests.support.web import Caller, Site

JOBS = 1_000_000
ASKED = 100  # times each
COARSE = 100.0  # milliseconds: in less, a tick of Linux (10 ms) says too little
PROMPTLY = at_most(250.0, of="ours")  # milliseconds


def of_web() -> list[Case[Place]]:
    return [Case("web", web)]


@dataclass(frozen=True)
class Busy(Dataset):
    """As many jobs that wait as jobs that ended."""

    @property
    def sections(self) -> list[Section]:
        made, start = list[Section](), 0
        for one in super().sections:
            waits = Status(one.status) not in FINISHED and not one.flows
            count = one.count * 3 if waits and one.status != "running" else one.count
            made.append(replace(one, start=start, count=count))
            start += count
        return made


def asks(world: Dataset) -> dict[str, str]:
    """As the dashboard's pages do, by what they show."""
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


def web(place: Place, pace: Pace) -> list[Row]:
    share, times = (1, ASKED) if pace.pairs > 5 else (10, ASKED // 3)
    world = Busy(JOBS // 2 // share)
    with place.ours() as store:
        assert isinstance(store, Ours)
        store.close()  # filled past it
        fill(store.app.url, world)
        with Holdfast(store.app.url) as app, working(app):
            site = Site(app)
            try:
                caller = site.somebody("admin")
                return [row(caller, name, path, times) for name, path in asks(world).items()]
            finally:
                site.close()


def row(caller: Caller, name: str, path: str, times: int) -> Row:
    """Judged is what an answer took of the time in which the machine was ours: where a host serves
    others half of the time, everything takes twice as long. What the clock showed is told beside it."""
    clock, ours = list[float](), list[float]()
    for _ in range(times):
        before, begin = Machine.now(), time.perf_counter()
        answer = caller.ask("GET", path)
        took, part = 1000 * (time.perf_counter() - begin), before.ours(Machine.now())
        clock.append(took)
        ours.append(took * part if took > COARSE else took)
        if answer.status_code not in (200, 503 if path == "//health" else 200):
            raise RuntimeError(f"{path}: {answer.status_code} {answer.text[:300]}")
    note = f"by the clock {statistics.median(clock):.0f}, p99 {slowest(clock):.0f}"
    return Row(f"{name}: p99 in ms", None, slowest(ours), None, PROMPTLY, note)


def slowest(took: list[float]) -> float:
    """Of a hundred, the second longest."""
    return sorted(took)[math.ceil(0.99 * len(took)) - 1]


@contextmanager
def working(app: Holdfast) -> Iterator[None]:
    """A worker in a process of its own, and somebody who gives it a hundred jobs a second."""
    command = [sys.executable, "-m", "holdfast", "worker", "bench.worker_app:app", "-q", "web"]
    noop = app.task(name="noop")(lambda: None).using(queue="web")
    stop = threading.Event()

    def feed() -> None:
        while not stop.wait(0.1):
            noop.enqueue_many([{}] * 10)

    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=real_folder()) as folder:
        env = {**os.environ, "HOLDFAST_URL": app.url, "HOLDFAST_WORKDIR": f"{folder}/work"}
        env["BENCH_PRUNE_WHILE"] = f"{folder}/never"
        with leashed(command, env, Path(folder) / "worker.log"):
            first = noop.enqueue()
            app.jobs.wait_for(first.id, timeout=60)
            thread = threading.Thread(target=feed)
            thread.start()
            try:
                yield
            finally:
                stop.set()
                thread.join()
