"""What follows in a workflow when jobs have ended: decisions only.

A job waits for other jobs, its parents. Each edge has a policy for the case that the parent fails, or
is cancelled: `cancel` the waiting job, `continue` as if the parent had completed, or `hold` until
somebody retries the parent or releases the waiting job.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from holdfast.jobs.job import CALLBACK, Status

ON_COMPLETED = CALLBACK + "completed"  #: when all have
ON_FAILED = CALLBACK + "failed"  #: when the first has, for good
ON_FINISHED = CALLBACK + "finished"  #: when none is left, whatever has become of them
GONE = "gone"  #: of a parent whose row was deleted


class Settled(NamedTuple):
    """An edge that is waited for no more."""

    child: str
    parent: str
    policy: str
    outcome: str  #: the parent's status, or GONE


class WorkflowState(NamedTuple):
    """How a workflow stands, not counting its callbacks."""

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


class Verdict(StrEnum):
    WAIT = "wait"
    RUN = "run"
    DROP = "drop"


def doomed(settled: Iterable[Settled], names: Mapping[str, str]) -> dict[str, str]:
    """Who is cancelled because of whom: ids, each with the reason."""
    return {
        edge.child: f"Cancelled: {names.get(edge.parent, edge.parent)}, which it waited for, "
        f"{_WORDS.get(edge.outcome, edge.outcome)}"
        for edge in settled
        if edge.policy == "cancel" and edge.outcome != Status.COMPLETED
    }


_WORDS = {Status.FAILED: "failed", Status.CANCELLED: "was cancelled", GONE: "was deleted"}


def callback(name: str, state: WorkflowState) -> Verdict:
    """Is it time for a callback?"""
    if name == ON_FAILED and state.failed:
        return Verdict.RUN
    if state.unfinished:
        return Verdict.WAIT
    met = name == ON_FINISHED or (name == ON_COMPLETED and state.status is Status.COMPLETED)
    return Verdict.RUN if met else Verdict.DROP
