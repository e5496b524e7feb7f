"""What the supervisor does with a child process that cannot help itself: it kills one that is past the
deadline of a run and does not end it, and one that is frozen and keeps everybody from writing.

It looks at what the child has published and at what the kernel says; it never asks the child, and never
touches the database."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.worker.processes.exit_cause import Judgement
from holdfast.worker.processes.run_table import Begun

if TYPE_CHECKING:
    from holdfast.worker.processes.worker_process import WorkerProcess

logger = logging.getLogger("holdfast.worker")

PAST_DEADLINE = 10.0  # seconds: by then a child that can still act has begun to replace itself
LATE = 3.0  # seconds past its deadline, after which health names a run that goes on
SILENT = 5.0  # seconds without a message, after which health names a child
HELD = 2.0  # seconds that a silent child may hold a lock of the database
_LOOK_FOR_LOCKS = 1.0  # seconds of silence, after which the locks are looked at


class Watchdog:
    def __init__(self, lock_holders: Callable[[], set[int]], grace: float) -> None:
        """`lock_holders`: the processes that hold a lock without which nobody can write."""
        self._lock_holders = lock_holders
        self._grace = grace

    def look(self, child: "WorkerProcess", now: float) -> None:
        """Kill it if it must be. One that has not said yet who it is has begun nothing."""
        if child.killed or child.id is None:
            return
        overdue = child.overdue(now, self._patience(child, now))
        if overdue:
            child.condemned = overdue
            frozen = child.is_silent(now)
            logger.error(
                "process %d is killed: more than %g s past the timeout of job %s, %s; the timeout is "
                "recorded, the other runs are given back",
                child.pid,
                PAST_DEADLINE,
                names_of(child.condemned),
                "and the process is frozen" if frozen else "which does not end",
            )
            # A run with more time left may have frozen it, and would freeze the next process, too.
            by_itself = frozen and not child.stopped
            child.kill(Judgement.DEATH if by_itself else Judgement.GIVEN_BACK)
        elif self._keeps_lock(child, now):
            logger.error(
                "process %d is killed: silent for %.1f s, and it holds a lock without which nobody can "
                "write to the database; begun in it: job %s",
                child.pid,
                child.silent_for(now),
                names_of(child.begun()) or "none",
            )
            child.kill(Judgement.GIVEN_BACK if child.stopped else Judgement.CRASH)

    def _patience(self, child: "WorkerProcess", now: float) -> float:
        """Seconds past a deadline. A child that drains and still speaks has its own way out. One that
        is frozen (a handler holds Python's interpreter lock) cannot even say that it drains."""
        drains = child.draining and not child.is_silent(now)
        return self._grace + 2 * PAST_DEADLINE if drains else PAST_DEADLINE

    def _keeps_lock(self, child: "WorkerProcess", now: float) -> bool:
        """At every look for some seconds. A child that speaks is not looked at."""
        if child.silent_for(now) < _LOOK_FOR_LOCKS or child.pid not in self._lock_holders():
            child.locked_since = None
            return False
        child.locked_since = now if child.locked_since is None else child.locked_since
        return now - child.locked_since >= HELD


def names_of(runs: list[Begun]) -> str:
    return ", ".join(run.claim.id for run in runs)


def timeout_of(run: Begun) -> str:
    """The error of a run that its process could not record; as `Execution.timed_out` has it."""
    return f"TimeoutError: timed out after {(run.deadline or run.started) - run.started:g} s"
