"""The cost of millions of finished jobs in the same table, for running jobs and for queries; and of
pruning a million of them by a worker's own housekeeping while jobs run."""

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

from bench.cases.limits import LimitedQueue
from bench.cases.monitoring import FAST, fill, median_ms
from bench.databases import disk_folder
from bench.holdfast_store import HoldfastStore
from bench.job_store import WORKER, Databases
from bench.measure import Case, Pace, Row, at_least, at_most, compare
from bench.processes import guarded, tail
from holdfast import Holdfast
from tests.plans.dataset import Dataset, Section

FINISHED = {"sqlite": 3_000_000, "postgres": 10_000_000}
PRUNED = 1_000_000
TIMEOUT = 120.0


def cases() -> list[Case[Databases]]:
    return [Case("history", history)]


@dataclass(frozen=True)
class History(Dataset):
    """Finished jobs, part of which are to be pruned."""

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


def history(databases: Databases, pace: Pace) -> list[Row]:
    share = 1 if pace.pairs > 5 else 20
    size, pruned = FINISHED[databases.name] // share, PRUNED // share
    with databases.holdfast() as empty, databases.holdfast() as full:
        assert isinstance(empty, HoldfastStore)
        assert isinstance(full, HoldfastStore)
        full.close()  # the rows are inserted directly
        fill(full.app.url, History(size, pruned=pruned))
        alone = LimitedQueue(empty, free={})
        with Holdfast(full.app.url) as app:
            app.engine.beat(WORKER, "{}")
            full.app = app
            among = LimitedQueue(full, free={})
            sides = alone.work("free"), among.work("free")
            before = compare(
                f"claim and finish beside {size:,} finished", *sides, pace, at_least(0.90)
            )
            return [before, *query_times(app, size), *while_pruned(pace, among)]


def query_times(app: Holdfast, size: int) -> list[Row]:
    queries: dict[str, Callable[[], object]] = {
        "stats": app.stats,
        "health": app.health,
        "the first page of a search": lambda: list(app.jobs.search(limit=100)),
        "the first page of completed jobs": lambda: list(
            app.jobs.search(status="completed", limit=100)
        ),
    }
    return [
        Row(f"{name} in ms, {size:,} finished", None, median_ms(query), None, FAST)
        for name, query in queries.items()
    ]


def while_pruned(pace: Pace, among: LimitedQueue) -> list[Row]:
    """Compare, in turns, beside a worker that prunes and does not prune."""
    waits: list[float] = []
    work = among.work("free")

    with housekeeper(among.app.url) as (switch, log), sending_heartbeats(among.app):

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
        wait_for_pruning(log)  # check that pruning had not run out of jobs
    return [
        row,
        Row(
            "the longest claim meanwhile, in ms",
            None,
            max(waits),
            None,
            at_most(100.0, of="holdfast"),
        ),
        Row("half of the claims meanwhile, in ms", None, statistics.median(waits), None),
    ]


def wait_for_pruning(log: Path) -> None:
    """Wait until the worker's log has one more pruned batch."""
    begin, before = time.monotonic(), pruned_batches(log)
    while pruned_batches(log) <= before:
        if time.monotonic() - begin > TIMEOUT:
            raise RuntimeError(f"nothing is pruned\n{tail(log)}")
        time.sleep(0.01)


def pruned_batches(log: Path) -> int:
    return log.read_text().count("finished jobs pruned")


@contextmanager
def sending_heartbeats(app: Holdfast) -> Iterator[None]:
    """Send heartbeats, so that the other worker does not declare this one dead."""
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
    """Run a worker of an empty queue that prunes while a file exists; yields that file and the worker's
    log."""
    command = [sys.executable, "-m", "holdfast", "worker", "bench.worker_app:app", "-q", "none"]
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=disk_folder()) as folder:
        log, switch = Path(folder) / "worker.log", Path(folder) / "prune"
        env = {**os.environ, "HOLDFAST_URL": url, "HOLDFAST_WORKDIR": f"{folder}/work"}
        env["BENCH_PRUNE_WHILE"] = str(switch)
        with guarded(command, env, log):
            yield switch, log
