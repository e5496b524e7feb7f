"""Kills stuck worker processes: a process that does not end a run past its deadline, and a frozen one
that holds a lock, so that no other process can write.

The watchdog reads the run table that the process shares with its supervisor, and the kernel's list of
locks; it never asks the process, and never touches the database.
"""

import logging
from collections.abc import Callable

from holdfast.worker.processes.exit_cause import Blame
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
        """Kill the process if it is stuck. (One that has not registered yet has begun no run.)"""
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
            # Another run, with time left, may have frozen the process, and would freeze the next one.
            by_itself = frozen and not child.stopped
            child.kill(Blame.DEATH if by_itself else Blame.GIVEN_BACK)
        elif self._keeps_lock(child, now):
            logger.error(
                "process %d is killed: silent for %.1f s, and it holds a lock without which no process "
                "can write to the database; begun in it: job %s",
                child.pid,
                child.silent_for(now),
                _ids(child.begun()) or "none",
            )
            child.kill(Blame.GIVEN_BACK if child.stopped else Blame.CRASH)

    def _patience(self, child: WorkerProcess, now: float) -> float:
        """Return how many seconds past a deadline the process is left alone: longer if it drains and
        still sends messages, since it can exit by itself then. A frozen process (a handler holds
        Python's interpreter lock) cannot even report that it drains."""
        drains = child.draining and not child.is_silent(now)
        return self._grace + 2 * PAST_DEADLINE if drains else PAST_DEADLINE

    def _keeps_lock(self, child: WorkerProcess, now: float) -> bool:
        """Return whether the process held a lock at every look in the last HELD seconds. A process that
        sends messages is not looked at."""
        if child.silent_for(now) < _LOOK_FOR_LOCKS or child.pid not in self._lock_holders():
            child.locked_since = None
            return False
        child.locked_since = now if child.locked_since is None else child.locked_since
        return now - child.locked_since >= HELD


def _ids(runs: list[Begun]) -> str:
    return ", ".join(run.claim.id for run in runs)
