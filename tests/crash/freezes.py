"""Freeze workers with SIGSTOP until others declare them dead, and record in the history which workers
were declared dead, and when."""

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
from tests.crash.testbed import CrashTestbed, pause, until
from tests.crash.worker_group import WorkerGroup, children_of
from tests.support.history import HistoryWriter


class DeathRecorder:
    """Records for every dead worker the last time at which it was not declared dead yet."""

    def __init__(self, testbed: CrashTestbed) -> None:
        self._scene = testbed
        self._alive: dict[str, float] = {}
        self.dead: set[str] = set()
        self._closing = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "DeathRecorder":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._thread.join()

    def _run(self) -> None:
        history = HistoryWriter(self._scene.history)
        with self._scene.app() as app:
            while not self._closing:
                with suppress(HoldfastError):  # the server may be down
                    self._sample(app, history)
                pause(0.01)
            self._sample(app, history)
        history.close()

    def _sample(self, app: Holdfast, history: HistoryWriter) -> None:
        before = time.monotonic()
        for worker in app.engine.workers():
            if worker.died_at is None:
                self._alive[worker.id] = before
            elif worker.id not in self.dead:
                at = self._alive.pop(worker.id, before)
                history.note("dead", pid=pid_of(worker), at=at, worker=worker.id)
                self.dead.add(worker.id)


def pid_of(worker: WorkerInfo) -> int:
    return int(worker.id.rsplit("-", 2)[1])


@contextmanager
def frozen(
    testbed: CrashTestbed,
    app: Holdfast,
    workers: WorkerGroup,
    rng: random.Random,
    *,
    in_a_run: bool = False,
) -> Iterator[list[str]]:
    """Freeze a worker, or a supervisor with all of its workers, until the end of the block; yields the
    ids of the workers. `in_a_run`: choose workers of which at least one holds a job."""
    while True:
        pids = _choose(workers, rng)
        for pid in pids:
            _signal(pid, signal.SIGSTOP)
        ids = [w.id for w in app.engine.workers() if w.died_at is None and pid_of(w) in pids]
        fits = any(app.engine.held(id) for id in ids) if in_a_run else bool(ids)
        if fits and not _holds_a_lock(testbed):
            break
        _thaw(pids)
        pause(rng.uniform(0.01, 0.1))
    try:
        yield ids
    finally:
        _thaw(pids)


def until_declared_dead(recorder: DeathRecorder, ids: list[str]) -> float:
    return until(lambda: recorder.dead.issuperset(ids), 60, "the frozen declared dead")


def _choose(workers: WorkerGroup, rng: random.Random) -> list[int]:
    """Choose processes; a supervisor comes before its children, or it would see what happens to
    them."""
    until(workers.children, 60, "a worker to freeze")
    if rng.random() < 0.5:
        return [rng.choice(workers.children())]
    one = rng.choice(workers.live_supervisors())
    return [one.pid, *children_of(one.pid)]


def _thaw(pids: list[int]) -> None:
    for pid in pids:
        _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        kill(pid, number)


def _holds_a_lock(testbed: CrashTestbed) -> bool:
    """Return whether a frozen process blocks the writes of others: by SQLite's write lock, or by row
    locks of a transaction on PostgreSQL (for some seconds: `idle_in_transaction_session_timeout`)."""
    if testbed.kind == "sqlite":
        try:
            with replace(testbed, url=f"{testbed.url}?busy_timeout=2").app() as app:
                app.queues.resume("nothing")
        except HoldfastError:
            return True
        return False
    connection = testbed.connect()
    pause(0.3)  # longer than a live process is idle in a transaction
    [(held,)] = connection.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'"
        " AND clock_timestamp() - state_change > interval '90 milliseconds'"
    ).fetchall()
    connection.close()
    return bool(held)
