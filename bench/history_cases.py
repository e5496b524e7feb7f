"""Millions of finished jobs in the same table: what they cost those that run, and those who ask; and
pruning a million of them, by a worker's own housekeeping, while jobs run."""

import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.cases import Case
from bench.figure_cases import QUICKLY, fill, took
from bench.limit_cases import Crowd
from bench.measure import Pace, Row, at_least, at_most, compare
from bench.ours import Ours
from bench.places import real_folder
from bench.processes import leashed, tail
from bench.store import WORKER, Place
from holdfast import Holdfast
from tests.plans.world import Section, World

FINISHED = {"sqlite": 3_000_000, "postgres": 10_000_000}
PRUNED = 1_000_000
PATIENCE = 120.0


def of_history() -> list[Case[Place]]:
    return [Case("history", history)]


@dataclass(frozen=True)
class History(World):
    """Finished jobs: a part of them is to be pruned."""

    pruned: int = 0

    @property
    def base(self) -> int:
        return super().base - 60 * 86_400_000  # milliseconds: all of them are old

    @property
    def sections(self) -> list[Section]:
        return [
            Section("completed", 0, self.pruned, key="NULL", claims=1, keep="-1"),
            Section(
                *("completed", self.pruned, self.size - self.pruned),
                key="NULL",
                claims=1,
                keep="86400000000000",
            ),
        ]


def history(place: Place, pace: Pace) -> list[Row]:
    share = 1 if pace.pairs > 5 else 20
    size, pruned = FINISHED[place.name] // share, PRUNED // share
    with place.ours() as empty, place.ours() as full:
        assert isinstance(empty, Ours)
        assert isinstance(full, Ours)
        full.close()  # filled past it
        fill(full.app.url, History(size, pruned=pruned))
        alone = Crowd(empty, free={})
        with Holdfast(full.app.url) as app:
            app.engine.beat(WORKER, "{}")
            full.app = app
            among = Crowd(full, free={})
            sides = alone.work("free"), among.work("free")
            before = compare(
                f"claim and finish beside {size:,} finished", *sides, pace, at_least(0.90)
            )
            return [before, *asked(app, size), *while_pruned(place, pace, alone, among, before)]


def asked(app: Holdfast, size: int) -> list[Row]:
    asks: dict[str, Callable[[], object]] = {
        "stats": app.stats,
        "health": app.health,
        "the first page of a search": lambda: list(app.jobs.search(limit=100)),
        "the first page of completed jobs": lambda: list(
            app.jobs.search(status="completed", limit=100)
        ),
    }
    return [
        Row(f"{name} in ms, {size:,} finished", None, took(ask), None, QUICKLY)
        for name, ask in asks.items()
    ]


def while_pruned(place: Place, pace: Pace, alone: Crowd, among: Crowd, before: Row) -> list[Row]:
    """Against the rate without pruning, each as a part of the empty table's in the same moments."""
    waits: list[float] = []
    work = among.work("free")

    def watched(seconds: float) -> float:
        among.waits = waits
        try:
            return work(seconds)
        finally:
            among.waits = None

    left = finished(among.app)
    with housekeeper(among.app.url) as log, beating(among.app):
        begin = time.monotonic()
        while finished(among.app) > left - 2000:
            if time.monotonic() - begin > PATIENCE:
                raise RuntimeError(f"nothing is pruned\n{tail(log)}")
            time.sleep(0.1)
        row = compare("", alone.work("free"), watched, pace)
    part = (row.ratio or 0.0) / (before.ratio or 1.0)
    title = "claim and finish while jobs are pruned"
    return [
        Row(title, before.ours, row.ours, part, at_least(0.8)),
        Row(
            "the longest claim meanwhile, in ms", None, max(waits), None, at_most(100.0, of="ours")
        ),
        Row("half of the claims meanwhile, in ms", None, statistics.median(waits), None),
    ]


def finished(app: Holdfast) -> int:
    return app.jobs.count(status="completed", cap=10**9)


@contextmanager
def beating(app: Holdfast) -> Iterator[None]:
    """As a worker does, lest the other one takes it for dead."""
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(1.0):
            app.engine.beat(WORKER, "{}")

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def housekeeper(url: str) -> Iterator[Path]:
    """A worker of another queue, with nothing to do but to tidy up."""
    command = [sys.executable, "-m", "holdfast", "worker", "bench.worker_app:app", "-q", "none"]
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=real_folder()) as folder:
        log = Path(folder) / "worker.log"
        env = {**os.environ, "HOLDFAST_URL": url, "HOLDFAST_WORKDIR": f"{folder}/work"}
        with leashed(command, env, log):
            yield log
