"""Decides what happens in a workflow after jobs have ended.

A job waits for other jobs, its parents. Each edge has a policy for a parent that fails or is cancelled:
`cancel` the waiting job, `continue` as if the parent had completed, or `hold` the waiting job until the
parent is retried or the waiting job is released.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import NamedTuple

from holdfast.jobs.job import CALLBACK, Status

ON_COMPLETED = CALLBACK + "completed"  #: runs when all jobs have completed
ON_FAILED = CALLBACK + "failed"  #: runs when the first job has failed for good
ON_FINISHED = CALLBACK + "finished"  #: runs when all jobs are finished
GONE = "gone"  #: the outcome of a parent that was deleted


class Settled(NamedTuple):
    """An edge of a workflow: one job waits for another."""

    child: str
    parent: str
    policy: str
    outcome: str  #: the parent's final status, or GONE


class WorkflowState(NamedTuple):
    """Says whether a workflow has unfinished, failed or cancelled jobs, not counting its callbacks."""

    unfinished: bool
    failed: bool
    cancelled: bool

    @property
    def status(self) -> Status:
        if self.unfinished:
            return Status.RUNNING
        if self.failed:
            return Status.FAILED
        return Status.CANCELLED if self.cancelled else Status.COMPLETED


class Callback(Enum):
    """The decision about a callback, given how its workflow stands."""

    RUNS = auto()
    WAITS = auto()
    NEVER_RUNS = auto()


def to_cancel(settled: Iterable[Settled], names: Mapping[str, str]) -> dict[str, str]:
    """Return the ids of the jobs to cancel because of their parents, each with the reason."""
    return {
        edge.child: f"Cancelled: {names.get(edge.parent, edge.parent)}, which it waited for, "
        f"{_WORDS.get(edge.outcome, edge.outcome)}"
        for edge in settled
        if edge.policy == "cancel" and edge.outcome != Status.COMPLETED
    }


_WORDS = {Status.FAILED: "failed", Status.CANCELLED: "was cancelled", GONE: "was deleted"}


def callback(name: str, state: WorkflowState) -> Callback:
    """Decide whether a callback runs, waits, or will never run."""
    if name == ON_FAILED and state.failed:
        return Callback.RUNS
    if state.unfinished:
        return Callback.WAITS
    runs = name == ON_FINISHED or (name == ON_COMPLETED and state.status is Status.COMPLETED)
    return Callback.RUNS if runs else Callback.NEVER_RUNS
