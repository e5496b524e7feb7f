"""Whether a worker's own silence can be held against it: a held lock is not an outage."""

import logging
import threading
from collections.abc import Callable

from holdfast.engine import Engine
from holdfast.errors import HoldfastError
from holdfast.worker.heart import BEATS_MISSED, FRESH, boottime

logger = logging.getLogger("holdfast.worker")


class Doubt:
    """Whether our own silence can be held against us.

    Others judge by their beats, and forget what they saw when those stop (`Observer`). While nobody
    else is heard either, as when the application holds SQLite's write lock, nobody can declare us
    dead: what runs here goes on. So when a beat of ours is late, we listen, by reading, which waits
    for no lock. A database that cannot be read either is no excuse.
    """

    def __init__(
        self,
        engine: Engine,
        heartbeat: float,
        worker: Callable[[], str | None],
        silent_for: Callable[[], float],
        confirmed: Callable[[float], None],
    ) -> None:
        """`worker`: our id. `silent_for`: seconds since our last beat. `confirmed`: as of a beat."""
        self._engine = engine
        self._heartbeat = heartbeat
        self._worker = worker
        self._silent_for = silent_for
        self._confirmed = confirmed
        self._numbers: dict[str, int] = {}
        self._heard_at = 0.0  #: when we last saw a new beat of another, or began to listen
        self._looked_at = 0.0
        self._excused_at = -1.0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-doubt", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout: float) -> None:
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def silence(self) -> float:
        """Our silence as far as it counts. It does not yet, while we know that nobody else was heard
        for most of a heartbeat; by the last possible moment it does."""
        silence, now = self._silent_for(), boottime()
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
                logger.exception("the doubt stumbled")

    def tick(self, now: float) -> None:
        worker, silence = self._worker(), self._silent_for()
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
            self._confirmed(now)
