"""The testbed of a crash test, its report, and helpers that wait."""

import sqlite3
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from holdfast import Holdfast, Job
from holdfast.jobs.job import FINISHED
from tests.support.history import HistoryEntry, HistoryWriter, Violations, read
from tests.support.server import PostgresServer


def until(what: Callable[[], object], seconds: float, name: str, every: float = 0.01) -> float:
    """Wait for a condition and return how long that took; raises after `seconds`."""
    begin = time.monotonic()
    while not what():
        if time.monotonic() - begin > seconds:
            raise AssertionError(f"not within {seconds:g} s: {name}")
        time.sleep(every)
    return time.monotonic() - begin


def pause(seconds: float) -> None:
    """Sleep, to choose a random time or a length of load; never to wait for a condition."""
    time.sleep(seconds)


@dataclass(frozen=True)
class CrashTestbed:
    """An empty database, and a folder for the history that processes write."""

    kind: str  #: "sqlite" or "postgres"
    url: str
    schema: str
    folder: Path
    server: PostgresServer | None = None

    @property
    def history(self) -> Path:
        return self.folder / "history.log"

    def entries(self, kind: str | None = None, job: str | None = None) -> list[HistoryEntry]:
        """Return what the processes wrote so far."""
        if not self.history.exists():
            return []
        return [
            entry
            for entry in read(self.history)
            if kind in (None, entry.kind) and job in (None, entry.job)
        ]

    def note(self, kind: str, pid: int, at: float | None = None) -> None:
        """Append an entry about a process."""
        writer = HistoryWriter(self.history)
        writer.note(kind, pid=pid, at=at)
        writer.close()

    def open_gate(self, number: int) -> None:
        """Let runs of the claim with that number continue: see `tasks.gated`."""
        (self.folder / f"gate-{number}").touch()

    def close_gates(self) -> None:
        for gate in self.folder.glob("gate-*"):
            gate.unlink()

    def app(self, **options: Any) -> Holdfast:
        app = Holdfast(self.url, schema=self.schema, auto_migrate=True, **options)
        app.migrate()
        return app

    def connect(self) -> Any:
        """A connection of the application's own."""
        if self.kind == "sqlite":
            path = self.url.removeprefix("sqlite:///").partition("?")[0]
            return sqlite3.connect(path, timeout=30, isolation_level=None)
        return psycopg.connect(self.url, autocommit=True)


@dataclass
class Report:
    """The figures of a run and the violated invariants, if any."""

    figures: dict[str, object] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def expect(self, holds: object, otherwise: str) -> None:
        if not holds:
            self.problems.append(otherwise)

    def take(self, violations: Violations) -> None:
        """Add the violations that the checker found."""
        for name, found in vars(violations).items():
            self.figures[name] = len(found)
            if found:
                self.problems.append(f"{name}: {len(found)}, e.g. {found[0]}")


def statuses(app: Holdfast) -> dict[str, str]:
    return {job.id: job.status.value for job in app.jobs.search()}


def unfinished(app: Holdfast) -> int:
    counts = app.stats().jobs
    return sum(count for status, count in counts.items() if status not in FINISHED)


def jobs_of(app: Holdfast, ids: Iterable[str]) -> list[Job]:
    return [app.jobs.get(id) for id in ids]
