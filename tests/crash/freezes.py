"""Workers that are stopped in their tracks until others declare them dead, and the writing down of who
was declared dead, and when."""

import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from os import kill

from holdfast import Holdfast, HoldfastError
from holdfast.engine.records import WorkerInfo
from tests.crash.fleet import Fleet, children_of
from tests.crash.scene import Scene, pause, until
from tests.support.witness import Witness


class Register:
    """Notes of every worker that was declared dead the last moment at which it was not yet."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._alive: dict[str, float] = {}
        self.dead: set[str] = set()
        self._closing = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Register":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._thread.join()

    def _run(self) -> None:
        witness = Witness(self._scene.witness)
        with self._scene.app() as app:
            while not self._closing:
                with suppress(HoldfastError):  # the server may be down
                    self._look(app, witness)
                pause(0.01)
            self._look(app, witness)
        witness.close()

    def _look(self, app: Holdfast, witness: Witness) -> None:
        before = time.monotonic()
        for worker in app.engine.workers():
            if worker.died_at is None:
                self._alive[worker.id] = before
            elif worker.id not in self.dead:
                at = self._alive.pop(worker.id, before)
                witness.note("dead", pid=pid_of(worker), at=at, worker=worker.id)
                self.dead.add(worker.id)


def pid_of(worker: WorkerInfo) -> int:
    return int(worker.id.rsplit("-", 2)[1])


@contextmanager
def frozen(
    scene: Scene,
    app: Holdfast,
    workers: Fleet,
    chance: random.Random,
    *,
    in_a_run: bool = False,
) -> Iterator[list[str]]:
    """Some worker, or a supervisor with all of its workers: their ids. They go on at the end.
    `in_a_run`: some of them hold a job."""
    while True:
        pids = _choose(workers, chance)
        for pid in pids:
            _signal(pid, signal.SIGSTOP)
        ids = [w.id for w in app.engine.workers() if w.died_at is None and pid_of(w) in pids]
        fits = any(app.engine.held(id) for id in ids) if in_a_run else bool(ids)
        if fits and not _holds_a_lock(scene):
            break
        _thaw(pids)
        pause(chance.uniform(0.01, 0.1))
    try:
        yield ids
    finally:
        _thaw(pids)


def until_declared_dead(register: Register, ids: list[str]) -> float:
    return until(lambda: register.dead.issuperset(ids), 60, "the frozen declared dead")


def _choose(workers: Fleet, chance: random.Random) -> list[int]:
    """A supervisor comes before its children, or it would see what happens to them."""
    until(workers.children, 60, "a worker to freeze")
    if chance.random() < 0.5:
        return [chance.choice(workers.children())]
    one = chance.choice(workers.living())
    return [one.pid, *children_of(one.pid)]


def _thaw(pids: list[int]) -> None:
    for pid in pids:
        _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        kill(pid, number)


def _holds_a_lock(scene: Scene) -> bool:
    """Whether one that does not go on keeps others from writing: SQLite's write lock, or rows that a
    transaction on PostgreSQL has locked (for some seconds: `idle_in_transaction_session_timeout`)."""
    if scene.kind == "sqlite":
        try:
            with replace(scene, url=f"{scene.url}?busy_timeout=2").app() as app:
                app.queues.resume("nothing")
        except HoldfastError:
            return True
        return False
    connection = scene.connect()
    pause(0.3)  # longer than anybody who goes on is idle in a transaction, or waits for a lock
    [(held,)] = connection.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
        " AND clock_timestamp() - state_change > interval '90 milliseconds'"
    ).fetchall()
    connection.close()
    return bool(held)
