"""Decides which workers are dead, and what the death of a process says of its runs.

A worker is declared dead when its `beat_no` did not change during three heartbeats *that the observer
wrote itself*: while the observer cannot write either (an outage, a held lock, a suspended machine), no
silence counts. No two machines' clocks are compared. What follows is in jobs/rescue.py.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.engine.records import Seen, WorkerInfo
from holdfast.jobs.job import Claim
from holdfast.jobs.outcome import DIED
from holdfast.worker.processes.exit_cause import Blame, how, own_making

BEATS_MISSED = 3
FRESH = 1.5  # after so many intervals without a heartbeat of our own, we declare no worker dead


class Observer:
    """Decides which workers are dead. Pure: its caller passes the time, its own heartbeats, and the
    rows of the workers."""

    def __init__(self, heartbeat: float) -> None:
        self._patience = BEATS_MISSED * heartbeat
        self._fresh = FRESH * heartbeat
        self._beat_at: float | None = None
        self._looked_at: float | None = None
        self._silence: dict[str, tuple[int, float]] = {}

    def beat(self, now: float) -> None:
        """Note that a heartbeat of our own was written."""
        if self._beat_at is not None and now - self._beat_at > self._fresh:
            self._silence.clear()
        self._beat_at = now

    def look(self, now: float, workers: Sequence[WorkerInfo], mine: frozenset[str]) -> list[Seen]:
        """Return the workers that are dead, judging by all looks so far. `mine`: workers of this
        process, which are alive."""
        healthy = self._beat_at is not None and now - self._beat_at <= self._fresh
        since = now - self._looked_at if self._looked_at is not None else 0.0
        self._looked_at = now
        if not healthy or since > self._fresh:
            self._silence.clear()
            since = 0.0
        before, self._silence, dead = self._silence, {}, list[Seen]()
        for worker in workers:
            if worker.died_at is not None or worker.id in mine:
                continue
            beat_no, silence = before.get(worker.id, (worker.beat_no, -since))
            silence = silence + since if beat_no == worker.beat_no else 0.0
            self._silence[worker.id] = worker.beat_no, silence
            if silence >= self._patience_with(worker):
                dead.append(Seen(worker.id, worker.beat_no))
        return dead

    def _patience_with(self, worker: WorkerInfo) -> float:
        """Return how long a worker may be silent: its heartbeat interval may be longer than ours."""
        try:
            theirs = float(json.loads(worker.info)["heartbeat"])
        except (ValueError, TypeError, KeyError):
            theirs = 0.0
        return max(self._patience, BEATS_MISSED * theirs)


@dataclass(frozen=True)
class Death:
    """The death of a worker process, certain since its supervisor has waited for the process."""

    begun: Sequence[Claim]  #: the runs that had begun and not ended, except those of `verdicts`
    verdicts: Sequence[tuple[Claim, str]]  #: runs whose end is known, and their errors
    blame: Blame | None  #: whether the runs in `begun` caused it; None: `code` tells
    code: int | None  #: the exit code, negative for signals; None: unknown

    def crash(self, oom_kills_before: int | None, oom_kills_now: int | None) -> str | None:
        """Return how the process died if that was its own doing, else None (docs/decisions/0021)."""
        if self.blame is Blame.CRASH:
            return f"{DIED}it was frozen"
        if self.blame is not None or self.code is None:
            return None
        counts = self.code, oom_kills_before, oom_kills_now
        return DIED + how(*counts) if own_making(*counts) else None
