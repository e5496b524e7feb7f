"""Who is compared as a worker: its commands, its settings, and how its tables tell what is done."""

import sys
from dataclasses import dataclass
from typing import NamedTuple

from bench import environments
from bench.places import PostgresPlace, SqlitePlace

WorkerPlace = SqlitePlace | PostgresPlace


class Words(NamedTuple):
    """Queries that return a row, or none."""

    waits: str  #: while this job is not finished
    left: str  #: while any is not
    done: str | None  #: how many are; None: no trace is left of them


OURS = {
    "sqlite": Words(
        "SELECT 1 FROM holdfast_jobs WHERE id = ? AND status <> 'completed'",
        "SELECT 1 FROM holdfast_jobs WHERE status IN ('pending', 'running') LIMIT 1",
        "SELECT COUNT(*) FROM holdfast_jobs WHERE status = 'completed'",
    ),
    "postgres": Words(
        "SELECT 1 FROM holdfast.jobs WHERE id = %s AND status <> 'completed'",
        "SELECT 1 FROM holdfast.jobs WHERE status IN ('pending', 'running') LIMIT 1",
        "SELECT count(*) FROM holdfast.jobs WHERE status = 'completed'",
    ),
}
HUEY = Words(
    "SELECT 1 FROM task WHERE id = ?", "SELECT 1 FROM task WHERE queue = 'bench' LIMIT 1", None
)
PGQUEUER = Words(
    "SELECT 1 FROM pgqueuer WHERE id = %s",
    "SELECT 1 FROM pgqueuer LIMIT 1",
    "SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'",
)
PROCRASTINATE = Words(
    "SELECT 1 FROM procrastinate_jobs WHERE id = %s AND status <> 'succeeded'",
    "SELECT 1 FROM procrastinate_jobs WHERE status IN ('todo', 'doing') LIMIT 1",
    "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'",
)


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    words: Words
    module: str  #: its script, see bench/peers/script.py
    queues: str | None = None  #: ours only: the queues and slots of the worker
    share: float = 1.0  #: of the jobs of a long run: the slow ones get fewer

    @property
    def ours(self) -> bool:
        return self.name not in environments.REQUIREMENTS

    def script(self, *words: object) -> list[str]:
        python = sys.executable if self.ours else environments.interpreter(self.name)
        return [python, "-m", self.module, *map(str, words)]

    def worker(self) -> list[str]:
        if not self.ours:
            return self.script("work")
        queues = [] if self.queues is None else ["--queues", self.queues]
        return [sys.executable, "-m", "holdfast", "worker", "bench.worker_app:app", *queues]


def ours(place: WorkerPlace, slots: int | None = None) -> Contender:
    """Our worker; without a number of slots, as it is by default."""
    queues = None if slots is None else f"default={slots}"
    return Contender("Holdfast", OURS[place.name], "bench.worker_app", queues)


def peers(place: WorkerPlace) -> list[Contender]:
    """The first is the one to beat."""
    if place.name == "sqlite":
        return [Contender("Huey", HUEY, "bench.peers.with_huey")]
    return [
        Contender("PgQueuer", PGQUEUER, "bench.peers.with_pgqueuer"),
        Contender("Procrastinate", PROCRASTINATE, "bench.peers.with_procrastinate", share=0.1),
    ]
