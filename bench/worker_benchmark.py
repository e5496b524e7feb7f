"""Throughput and latency of a contender's worker, on a database of its own."""

import os
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import psycopg

from bench.contenders import Contender, WorkerDatabases
from bench.databases import PostgresDatabases, disk_folder
from bench.processes import ROOT, Process, guarded, tail

POLL_INTERVAL = 0.01  # seconds
TIMEOUT = 600.0


class Tables(Protocol):
    def execute(self, query: Any, parameters: Any = ..., /) -> Any: ...

    def close(self) -> None: ...


class WorkerBenchmark:
    """Runs the scripts and the worker of a contender on a database of its own."""

    def __init__(self, contender: Contender, url: str, folder: Path) -> None:
        self.contender = contender
        self._queries = contender.queries
        self._log = folder / f"{contender.name}-{time.monotonic_ns()}.log"
        self._notes = self._log.with_suffix(".notes")
        self._url = url
        # Settings in the caller's environment must not apply.
        self._env = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
        self._env |= {
            "BENCH_URL": url,
            "BENCH_NOTES": str(self._notes),
            "HOLDFAST_URL": url,
            "HOLDFAST_WORKDIR": str(folder / "work"),
        }
        self._done = 0
        with self._script("setup"):
            pass

    @contextmanager
    def worker(self) -> Iterator[Process]:
        """Start the worker and wait until it is idle."""
        with guarded(self.contender.worker(), self._env, self._log) as process:
            self.drain(1, process)
            yield process

    def drain(self, count: int, worker: Process) -> float:
        """Return the seconds from the commit of `count` jobs until the tables show all of them as
        finished."""
        with closing(self._connect()) as tables, self._script("fill", count) as filling:
            assert filling.stdin is not None
            assert filling.stdout is not None
            last = filling.stdout.readline().strip()
            if not last:
                raise RuntimeError(f"no jobs could be added\n{tail(self._log)}")
            begin = time.perf_counter()
            filling.stdin.write("go\n")
            filling.stdin.flush()
            filling.stdout.readline()  # before, contenders that commit now have empty tables
            for query, parameters in ((self._queries.waits, [last]), (self._queries.left, [])):
                while tables.execute(query, parameters).fetchone() is not None:
                    self._pause(begin, worker)
            median_ms = time.perf_counter() - begin
            self._done += count
            self._check(tables)
            return median_ms

    def recur(self, count: int) -> None:
        """Insert recurring jobs that are not due."""
        with self._script("recur", count):
            pass

    def lateness(self, count: int, seed: int, worker: Process) -> list[tuple[float, float]]:
        """Enqueue single jobs; returns their delays in milliseconds, since the enqueue returned and
        since it was called."""
        begin = time.perf_counter()
        with self._script("send", count, seed):
            pass
        while len(late := self._delays()) < count:
            self._pause(begin, worker)
        return late

    def _delays(self) -> list[tuple[float, float]]:
        if not self._notes.exists():
            return []
        facts = [line.split() for line in self._notes.read_text().splitlines()]
        acked = {sent: int(at) for what, sent, at in facts if what == "acked"}
        return [
            (max(0, int(at) - acked[sent]) / 1e6, (int(at) - int(sent)) / 1e6)
            for what, sent, at in facts
            if what == "begun" and sent in acked
        ]

    def _pause(self, begin: float, worker: Process) -> None:
        worker.check()
        if time.perf_counter() - begin > TIMEOUT:
            raise RuntimeError(f"{self.contender.name} does not end\n{tail(self._log)}")
        time.sleep(POLL_INTERVAL)

    def _check(self, tables: Tables) -> None:
        """Check that all jobs are completed, or the rate would not count."""
        if self._queries.done is None:
            return
        done = tables.execute(self._queries.done).fetchone()[0]
        if done != self._done:
            raise RuntimeError(f"{done} of {self._done} jobs are completed\n{tail(self._log)}")

    @contextmanager
    def _script(self, *queries: object) -> Iterator["subprocess.Popen[str]"]:
        """Run one of the contender's scripts; it must succeed by the end of the `with`."""
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                self.contender.script(*queries),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=self._env,
            )
        try:
            yield process
            process.communicate(timeout=TIMEOUT)
            if process.returncode:
                raise RuntimeError(f"{self.contender.name} {queries[0]} failed\n{tail(self._log)}")
        finally:
            process.kill()
            process.wait()

    def _connect(self) -> Tables:
        parts = urlsplit(self._url)
        if parts.scheme == "sqlite":
            return sqlite3.connect(parts.path[1:], isolation_level=None)
        return psycopg.connect(self._url, autocommit=True)


@contextmanager
def worker_benchmark(contender: Contender, databases: WorkerDatabases) -> Iterator[WorkerBenchmark]:
    """Prepare a benchmark of a contender; raises Missing if it cannot be installed."""
    url = (
        databases.url()
        if isinstance(databases, PostgresDatabases)
        else nullcontext(databases.url())
    )
    folder = tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=disk_folder())
    with folder as path, url as address:
        yield WorkerBenchmark(contender, address, Path(path))
