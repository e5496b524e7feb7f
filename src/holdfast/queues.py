"""`app.queues` and `app.stats()`: the lanes, and the numbers of the whole."""

from dataclasses import dataclass
from typing import Any

from holdfast import names
from holdfast.aio import Runner, Step, Steps
from holdfast.engine import Engine, QueueInfo, inspection, verbs
from holdfast.job import Status

CAP = 10_000
Listed = list[QueueInfo]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Numbers that are cheap at any size: each is counted up to `cap`."""

    jobs: dict[Status, int]
    queues: list[QueueInfo]
    workers: int  #: not declared dead
    cap: int = CAP


class Queues:
    """Nothing of a paused queue is claimed; what runs goes on."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._dialect = runner.engine.dialect

    def pause(self, name: str, *, tx: Any = None) -> None:
        self._runner.go(self._pause(name, True), tx)

    async def apause(self, name: str, *, tx: Any = None) -> None:
        await self._runner.ago(self._pause(name, True), tx)

    def resume(self, name: str, *, tx: Any = None) -> None:
        self._runner.go(self._pause(name, False), tx)

    async def aresume(self, name: str, *, tx: Any = None) -> None:
        await self._runner.ago(self._pause(name, False), tx)

    def _pause(self, name: str, paused: bool) -> Steps[None]:
        queue = names.name(name, "queue")
        yield Step(lambda: verbs.pause(self._dialect, queue, paused))

    def list(self) -> Listed:
        """The queues that hold pending jobs or were ever paused."""
        return self._runner.go(self._list())

    async def alist(self) -> Listed:
        return await self._runner.ago(self._list())

    def _list(self) -> Steps[Listed]:
        found: Listed = yield Step(lambda: inspection.queues(self._dialect, CAP), write=False)
        return found


def read_stats(engine: Engine) -> Steps[Stats]:
    dialect = engine.dialect
    jobs = yield Step(lambda: inspection.counts(dialect, CAP), write=False)
    queues = yield Step(lambda: inspection.queues(dialect, CAP), write=False)
    workers = yield Step(lambda: inspection.workers(dialect), write=False)
    alive = sum(worker.died_at is None for worker in workers)
    return Stats(jobs=jobs, queues=queues, workers=alive)
