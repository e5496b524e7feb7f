"""A contender with a database of its own, and its worker: how quick it is, and how late."""

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

from bench.contenders import Contender, WorkerPlace
from bench.places import PostgresPlace, real_folder
from bench.processes import ROOT, Process, leashed, tail

LOOK = 0.01  # seconds between two looks at the tables
PATIENCE = 600.0


class Tables(Protocol):
    def execute(self, query: Any, parameters: Any = ..., /) -> Any: ...

    def close(self) -> None: ...


class Arena:
    """A contender with a database of its own."""

    def __init__(self, contender: Contender, url: str, folder: Path) -> None:
        self.contender = contender
        self._words = contender.words
        self._log = folder / f"{contender.name}-{time.monotonic_ns()}.log"
        self._notes = self._log.with_suffix(".notes")
        self._url = url
        # Settings of whoever runs the bench must not steer it.
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
        """Its worker, started, and idle."""
        with leashed(self.contender.worker(), self._env, self._log) as process:
            self.drain(1, process)
            yield process

    def drain(self, count: int, worker: Process) -> float:
        """Seconds from the moment that so many jobs can be seen until the tables say that all of them
        are finished."""
        with closing(self._connect()) as tables, self._script("fill", count) as filling:
            assert filling.stdin is not None
            assert filling.stdout is not None
            last = filling.stdout.readline().strip()
            if not last:
                raise RuntimeError(f"no jobs could be added\n{tail(self._log)}")
            begin = time.perf_counter()
            filling.stdin.write("go\n")
            filling.stdin.flush()
            filling.stdout.readline()  # before, those who commit now have nothing in their tables
            for query, parameters in ((self._words.waits, [last]), (self._words.left, [])):
                while tables.execute(query, parameters).fetchone() is not None:
                    self._go_on(begin, worker)
            took = time.perf_counter() - begin
            self._done += count
            self._check(tables)
            return took

    def recur(self, count: int) -> None:
        """So many recurring jobs that are not due."""
        with self._script("recur", count):
            pass

    def lateness(self, count: int, seed: int, worker: Process) -> list[tuple[float, float]]:
        """How late so many single jobs began, in milliseconds: after the enqueue had returned, and
        after it was called."""
        begin = time.perf_counter()
        with self._script("send", count, seed):
            pass
        while len(late := self._noted()) < count:
            self._go_on(begin, worker)
        return late

    def _noted(self) -> list[tuple[float, float]]:
        if not self._notes.exists():
            return []
        facts = [line.split() for line in self._notes.read_text().splitlines()]
        acked = {sent: int(at) for what, sent, at in facts if what == "acked"}
        return [
            (max(0, int(at) - acked[sent]) / 1e6, (int(at) - int(sent)) / 1e6)
            for what, sent, at in facts
            if what == "begun" and sent in acked
        ]

    def _go_on(self, begin: float, worker: Process) -> None:
        worker.check()
        if time.perf_counter() - begin > PATIENCE:
            raise RuntimeError(f"{self.contender.name} does not end\n{tail(self._log)}")
        time.sleep(LOOK)

    def _check(self, tables: Tables) -> None:
        """A rate counts only if the jobs did end up completed."""
        if self._words.done is None:
            return
        done = tables.execute(self._words.done).fetchone()[0]
        if done != self._done:
            raise RuntimeError(f"{done} of {self._done} jobs are completed\n{tail(self._log)}")

    @contextmanager
    def _script(self, *words: object) -> Iterator["subprocess.Popen[str]"]:
        """One of the contender's scripts; at the end of the `with` it has succeeded."""
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                self.contender.script(*words),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=self._env,
            )
        try:
            yield process
            process.communicate(timeout=PATIENCE)
            if process.returncode:
                raise RuntimeError(f"{self.contender.name} {words[0]} failed\n{tail(self._log)}")
        finally:
            process.kill()
            process.wait()

    def _connect(self) -> Tables:
        parts = urlsplit(self._url)
        if parts.scheme == "sqlite":
            return sqlite3.connect(parts.path[1:], isolation_level=None)
        return psycopg.connect(self._url, autocommit=True)


@contextmanager
def arena(contender: Contender, place: WorkerPlace) -> Iterator[Arena]:
    """Raises Missing if the contender is not to be had."""
    url = place.url() if isinstance(place, PostgresPlace) else nullcontext(place.url())
    folder = tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=real_folder())
    with folder as path, url as address:
        yield Arena(contender, address, Path(path))
