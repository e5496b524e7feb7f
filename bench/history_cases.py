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
from tests.plans.dataset import Dataset, Section

FINISHED = {"sqlite": 3_000_000, "postgres": 10_000_000}
PRUNED = 1_000_000
PATIENCE = 120.0


def of_history() -> list[Case[Place]]:
    return [Case("history", history)]


@dataclass(frozen=True)
class History(Dataset):
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
            return [before, *asked(app, size), *while_pruned(pace, among)]


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


def while_pruned(pace: Pace, among: Crowd) -> list[Row]:
    """Beside the same worker, in turns: it prunes, or it does not."""
    waits: list[float] = []
    work = among.work("free")

    with housekeeper(among.app.url) as (switch, log), beating(among.app):

        def kept(seconds: float) -> float:
            switch.unlink(missing_ok=True)
            return work(seconds)

        def pruned(seconds: float) -> float:
            switch.touch()
            wait_for_pruning(log)
            among.waits = waits
            try:
                return work(seconds)
            finally:
                among.waits = None

        title = "claim and finish while jobs are pruned"
        row = compare(title, kept, pruned, pace, at_least(0.8))
        switch.touch()
        wait_for_pruning(log)  # else the last of it was not beside any
    return [
        row,
        Row(
            "the longest claim meanwhile, in ms", None, max(waits), None, at_most(100.0, of="ours")
        ),
        Row("half of the claims meanwhile, in ms", None, statistics.median(waits), None),
    ]


def wait_for_pruning(log: Path) -> None:
    """Its log tells of every batch."""
    begin, before = time.monotonic(), told(log)
    while told(log) <= before:
        if time.monotonic() - begin > PATIENCE:
            raise RuntimeError(f"nothing is pruned\n{tail(log)}")
        time.sleep(0.01)


def told(log: Path) -> int:
    return log.read_text().count("finished jobs pruned")


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
def housekeeper(url: str) -> Iterator[tuple[Path, Path]]:
    """A worker of another queue, with nothing to do but to tidy up while a file is there; that file,
    and its log."""
    command = [sys.executable, "-m", "holdfast", "worker", "bench.worker_app:app", "-q", "none"]
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=real_folder()) as folder:
        log, switch = Path(folder) / "worker.log", Path(folder) / "prune"
        env = {**os.environ, "HOLDFAST_URL": url, "HOLDFAST_WORKDIR": f"{folder}/work"}
        env["BENCH_PRUNE_WHILE"] = str(switch)
        with leashed(command, env, log):
            yield switch, log
