"""The compared workers: their commands, their settings, and queries for the state of their jobs."""

import sys
from dataclasses import dataclass
from typing import NamedTuple

from bench import environments
from bench.databases import PostgresDatabases, SqliteDatabases

WorkerDatabases = SqliteDatabases | PostgresDatabases


class CompletionQueries(NamedTuple):
    """Queries for unfinished and completed jobs."""

    waits: str  #: a row while this job is not finished
    left: str  #: a row while any job is not finished
    done: str | None  #: the number of completed jobs; None: they are deleted


HOLDFAST = {
    "sqlite": CompletionQueries(
        "SELECT 1 FROM holdfast_jobs WHERE id = ? AND status <> 'completed'",
        "SELECT 1 FROM holdfast_jobs WHERE status IN ('pending', 'running') LIMIT 1",
        "SELECT COUNT(*) FROM holdfast_jobs WHERE status = 'completed'",
    ),
    "postgres": CompletionQueries(
        "SELECT 1 FROM holdfast.jobs WHERE id = %s AND status <> 'completed'",
        "SELECT 1 FROM holdfast.jobs WHERE status IN ('pending', 'running') LIMIT 1",
        "SELECT count(*) FROM holdfast.jobs WHERE status = 'completed'",
    ),
}
HUEY = CompletionQueries(
    "SELECT 1 FROM task WHERE id = ?", "SELECT 1 FROM task WHERE queue = 'bench' LIMIT 1", None
)
PGQUEUER = CompletionQueries(
    "SELECT 1 FROM pgqueuer WHERE id = %s",
    "SELECT 1 FROM pgqueuer LIMIT 1",
    "SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'",
)
PROCRASTINATE = CompletionQueries(
    "SELECT 1 FROM procrastinate_jobs WHERE id = %s AND status <> 'succeeded'",
    "SELECT 1 FROM procrastinate_jobs WHERE status IN ('todo', 'doing') LIMIT 1",
    "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'",
)


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    queries: CompletionQueries
    module: str  #: its script, see bench/peers/script.py
    queues: str | None = None  #: only of Holdfast: the queues and slots of the worker
    share: float = 1.0  #: fraction of the backlog: slow workers get fewer jobs

    @property
    def is_holdfast(self) -> bool:
        return self.name not in environments.REQUIREMENTS

    def script(self, *arguments: object) -> list[str]:
        python = sys.executable if self.is_holdfast else environments.interpreter(self.name)
        return [python, "-m", self.module, *map(str, arguments)]

    def worker(self) -> list[str]:
        if not self.is_holdfast:
            return self.script("work")
        queues = [] if self.queues is None else ["--queues", self.queues]
        return [sys.executable, "-m", "holdfast", "worker", "bench.worker_app:app", *queues]


def holdfast_worker(databases: WorkerDatabases, slots: int | None = None) -> Contender:
    """Holdfast's worker, by default with its default slots."""
    queues = None if slots is None else f"default={slots}"
    return Contender("Holdfast", HOLDFAST[databases.name], "bench.worker_app", queues)


def peers(databases: WorkerDatabases) -> list[Contender]:
    """The workers of other libraries; the goals compare with the first."""
    if databases.name == "sqlite":
        return [Contender("Huey", HUEY, "bench.peers.with_huey")]
    return [
        Contender("PgQueuer", PGQUEUER, "bench.peers.with_pgqueuer"),
        Contender("Procrastinate", PROCRASTINATE, "bench.peers.with_procrastinate", share=0.1),
    ]
