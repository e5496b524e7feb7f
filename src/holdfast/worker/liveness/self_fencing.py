"""When a worker must stop its own runs, since others may take its jobs: not for every silence."""

import logging
import threading

from holdfast.engine.engine import Engine
from holdfast.errors import HoldfastError
from holdfast.worker.liveness.heartbeat import BEATS_MISSED, FRESH, boottime
from holdfast.worker.liveness.identity import WorkerIdentity

logger = logging.getLogger("holdfast.worker")


class SelfFencing:
    """How long this worker has been silent, as far as other workers may hold it against us.

    Other workers declare a worker dead by their own heartbeats, and forget what they saw when those
    stop (`Observer`). While no other worker sends heartbeats either, as when the application holds
    SQLite's write lock, no worker can declare us dead: our runs go on. So when a heartbeat of ours is
    late, we read the other workers' rows, which waits for no lock. If the database cannot be read
    either, our silence counts.
    """

    def __init__(self, engine: Engine, heartbeat: float, identity: WorkerIdentity) -> None:
        self._engine = engine
        self._heartbeat = heartbeat
        self._identity = identity
        self._numbers: dict[str, int] = {}
        self._heard_at = 0.0  #: when we last saw a new beat of another, or began to listen
        self._looked_at = 0.0
        self._excused_at = -1.0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-self-fencing", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout: float) -> None:
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def silence(self) -> float:
        """Our silence as far as it counts. It does not yet, while we know that nobody else was heard
        for most of a heartbeat; by the last possible moment it does."""
        silence, now = self._identity.silence(), boottime()
        knows = now - self._looked_at <= 0.3 * self._heartbeat
        quiet = now - self._heard_at >= 0.8 * self._heartbeat
        last = silence >= (BEATS_MISSED - 0.15) * self._heartbeat
        return 0.0 if knows and quiet and not last else silence

    def _run(self) -> None:
        while not self._closing.wait(0.1 * self._heartbeat):
            try:
                self.tick(boottime())
            except HoldfastError as problem:
                logger.debug("the others cannot be heard: %s", problem)
            except Exception:
                logger.exception("the self-fencing check failed")

    def tick(self, now: float) -> None:
        worker, silence = self._identity.id, self._identity.silence()
        excused = abs(now - silence - self._excused_at) < 0.05 * self._heartbeat
        if worker is None or (silence < 1.05 * self._heartbeat and not excused):
            self._numbers = {}
            return
        living = {one.id: one.beat_no for one in self._engine.workers() if one.died_at is None}
        others = {id: beat_no for id, beat_no in living.items() if id != worker}
        if not self._numbers or any(self._numbers.get(id) != no for id, no in others.items()):
            self._heard_at = now
        self._numbers = living
        self._looked_at = now
        # Whoever beats next begins anew with us: as good as a beat of our own.
        if worker in living and now - self._heard_at > (FRESH + 0.1) * self._heartbeat:
            self._excused_at = now
            self._identity.confirmed(now)
