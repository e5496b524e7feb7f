"""Self-fencing: tells when a worker that cannot write heartbeats must stop its own runs, since other
workers may declare it dead and take its jobs."""

from holdfast.engine.engine import Engine
from holdfast.worker.liveness.dead_workers import BEATS_MISSED, FRESH
from holdfast.worker.liveness.heartbeat import boottime
from holdfast.worker.liveness.identity import WorkerIdentity
from holdfast.worker.ticker import Ticker


class SelfFencing(Ticker):
    """Measures for how long this worker has been silent in a way for which others may declare it dead.

    Other workers declare a worker dead by their own heartbeats, and forget what they saw when those
    stop (`Observer`). While no other worker sends heartbeats either, as when the application holds
    SQLite's write lock, no worker can declare us dead: our runs go on. So when a heartbeat of ours is
    late, we read the other workers' rows, which waits for no lock. If the database cannot be read
    either, our silence counts.
    """

    def __init__(self, engine: Engine, heartbeat: float, identity: WorkerIdentity) -> None:
        super().__init__("self-fencing", {"self-fencing": self.tick}, retry=0.1 * heartbeat)
        self._engine = engine
        self._heartbeat = heartbeat
        self._identity = identity
        self._numbers: dict[str, int] = {}
        self._heard_at = (
            0.0  #: when we last saw a new heartbeat of another worker, or began to look
        )
        self._looked_at = 0.0
        self._excused_at = -1.0

    def silence(self) -> float:
        """Return the seconds of silence that count. Silence does not count while we know that no other
        worker sent a heartbeat for most of an interval; shortly before others could declare us dead, it
        counts in any case."""
        silence, now = self._identity.silence(), boottime()
        knows = now - self._looked_at <= 0.3 * self._heartbeat
        quiet = now - self._heard_at >= 0.8 * self._heartbeat
        last = silence >= (BEATS_MISSED - 0.15) * self._heartbeat
        return 0.0 if knows and quiet and not last else silence

    def tick(self) -> float:
        self._look(boottime())
        return 0.1 * self._heartbeat

    def _look(self, now: float) -> None:
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
        # Other workers have sent no heartbeat for so long that, when they do again, they start to
        # observe us anew: that protects us as much as a heartbeat of our own.
        if worker in living and now - self._heard_at > (FRESH + 0.1) * self._heartbeat:
            self._excused_at = now
            self._identity.confirmed(now)
