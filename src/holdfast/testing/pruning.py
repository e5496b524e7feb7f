"""Prunes finished jobs as a worker does, in this thread."""

from holdfast.app import Holdfast
from holdfast.worker.housekeeping.pruning import Work, pruner_of


def prune(app: Holdfast) -> int:
    """Delete all finished jobs whose retention is over, and return how many. Hooks are called and the
    archive is written. A job whose `on_prune` raised stays: `job.prune_error` says why."""
    total = Work(more=True)
    with pruner_of(app) as pruner:
        wanted = pruner.wanted(everywhere=True)
        while total.more:
            total += pruner.look(wanted)
    return total.gone
