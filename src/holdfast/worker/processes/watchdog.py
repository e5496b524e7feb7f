"""Kills worker processes that cannot help themselves: one that is past the deadline of a run and does
not end it, and one that is frozen and keeps all others from writing.

It looks at what the process has published and at what the kernel says; it never asks the process, and
never touches the database.
"""

import logging
from collections.abc import Callable

from holdfast.worker.processes.exit_cause import Judgement
from holdfast.worker.processes.run_table import Begun
from holdfast.worker.processes.worker_process import WorkerProcess

logger = logging.getLogger("holdfast.worker")

PAST_DEADLINE = 10.0  # seconds: by then a process that can still act has begun to replace itself
HELD = 2.0  # seconds that a silent process may hold a lock of the database
_LOOK_FOR_LOCKS = 1.0  # seconds of silence, after which the locks are looked at


class Watchdog:
    def __init__(self, lock_holders: Callable[[], set[int]], grace: float) -> None:
        """`lock_holders`: the processes that hold a lock without which no process can write."""
        self._lock_holders = lock_holders
        self._grace = grace

    def look(self, child: WorkerProcess, now: float) -> None:
        """Kill it if it must be. A process that has not registered yet has begun nothing."""
        if child.killed or child.id is None:
            return
        if overdue := child.overdue(now, self._patience(child, now)):
            child.condemned = overdue
            frozen = child.is_silent(now)
            logger.error(
                "process %d is killed: more than %g s past the timeout of job %s, %s; the timeout is "
                "recorded, the other runs are given back",
                child.pid,
                PAST_DEADLINE,
                _ids(overdue),
                "and the process is frozen" if frozen else "which does not end",
            )
            # A run with more time left may have frozen it, and would freeze the next process, too.
            by_itself = frozen and not child.stopped
            child.kill(Judgement.DEATH if by_itself else Judgement.GIVEN_BACK)
        elif self._keeps_lock(child, now):
            logger.error(
                "process %d is killed: silent for %.1f s, and it holds a lock without which no process "
                "can write to the database; begun in it: job %s",
                child.pid,
                child.silent_for(now),
                _ids(child.begun()) or "none",
            )
            child.kill(Judgement.GIVEN_BACK if child.stopped else Judgement.CRASH)

    def _patience(self, child: WorkerProcess, now: float) -> float:
        """Seconds past a deadline. A process that drains and still speaks can exit by itself. A frozen
        one (a handler holds Python's interpreter lock) cannot even say that it drains."""
        drains = child.draining and not child.is_silent(now)
        return self._grace + 2 * PAST_DEADLINE if drains else PAST_DEADLINE

    def _keeps_lock(self, child: WorkerProcess, now: float) -> bool:
        """Whether it was seen with a lock at every look for some seconds. One that speaks is not."""
        if child.silent_for(now) < _LOOK_FOR_LOCKS or child.pid not in self._lock_holders():
            child.locked_since = None
            return False
        child.locked_since = now if child.locked_since is None else child.locked_since
        return now - child.locked_since >= HELD


def _ids(runs: list[Begun]) -> str:
    return ", ".join(run.claim.id for run in runs)
