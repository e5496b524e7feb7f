"""The operations by Holdfast, as an application and a worker call them."""

from collections.abc import Sequence
from typing import Any

from bench.job_store import KEEP, QUEUE, RESULT, SMALL, TYPE, WORKER, arguments
from holdfast import Holdfast, Job, Status, Task
from holdfast.jobs import outcome


def send(number: int, address: str, text: str) -> None:
    """A handler with typical arguments; it is never run."""


def register(app: Holdfast) -> Task[..., None]:
    return app.task(name=TYPE, queue=QUEUE)(send)


class HoldfastStore:
    """Inserts go through the whole API: arguments are checked against the handler's signature and
    encoded. Claims and finishes go to the engine, as a worker's do."""

    def __init__(self, url: str) -> None:
        self._app = self.app = Holdfast(url, auto_migrate=True)
        self._task = register(self._app)
        self._engine = self._app.engine
        self._engine.beat(WORKER, "{}")

    def make(self, count: int, size: int = SMALL) -> Sequence[dict[str, Any]]:
        return [arguments(number, size) for number in range(count)]

    def insert_one(self, item: dict[str, Any]) -> None:
        self._task.enqueue(**item)

    def insert_many(self, items: Sequence[dict[str, Any]]) -> None:
        self._task.enqueue_many(items)

    def claim(self, limit: int) -> Sequence[Job]:
        return self._engine.claimer.fetch(QUEUE, limit, worker=WORKER, types=[TYPE]).jobs

    def finish(self, held: Sequence[Job]) -> None:
        self._engine.finish([outcome.completed(job, RESULT, keep=KEEP) for job in held])

    def completed(self) -> int:
        return self._engine.counts(cap=10**9)[Status.COMPLETED]

    def close(self) -> None:
        self._app.close()
