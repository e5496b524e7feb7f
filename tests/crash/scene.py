"""Where a proof takes place, what it found, and how it waits."""

import sqlite3
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from holdfast import Holdfast, Job
from holdfast.jobs.job import FINISHED
from tests.support.server import PostgresServer
from tests.support.witness import Fact, Findings, Witness, read


def until(what: Callable[[], object], seconds: float, name: str, every: float = 0.01) -> float:
    """Wait for a named moment, and tell how long it took; it is a failure when it does not come."""
    begin = time.monotonic()
    while not what():
        if time.monotonic() - begin > seconds:
            raise AssertionError(f"not within {seconds:g} s: {name}")
        time.sleep(every)
    return time.monotonic() - begin


def pause(seconds: float) -> None:
    """A random moment or a length of load; never a wait for something."""
    time.sleep(seconds)


@dataclass(frozen=True)
class Scene:
    """An empty database, and a folder for what the processes write down."""

    kind: str  #: "sqlite" or "postgres"
    url: str
    schema: str
    folder: Path
    server: PostgresServer | None = None

    @property
    def witness(self) -> Path:
        return self.folder / "witness.log"

    def facts(self, what: str | None = None, job: str | None = None) -> list[Fact]:
        """What the processes wrote down so far."""
        if not self.witness.exists():
            return []
        return [
            fact
            for fact in read(self.witness)
            if what in (None, fact.what) and job in (None, fact.job)
        ]

    def note(self, what: str, pid: int, at: float | None = None) -> None:
        """Add to that, of a process."""
        writer = Witness(self.witness)
        writer.note(what, pid=pid, at=at)
        writer.close()

    def open_gate(self, number: int) -> None:
        """Let runs of the claim with that number go on: see `tasks.gated`."""
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
class Proof:
    """What was counted, and which promises were broken; without problems it holds."""

    figures: dict[str, object] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def expect(self, holds: object, otherwise: str) -> None:
        if not holds:
            self.problems.append(otherwise)

    def take(self, findings: Findings) -> None:
        """Of the checker."""
        for name, found in vars(findings).items():
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
