"""Pruning and repair, at intervals: each call looks at a bounded number of rows, and the next call
continues after them."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.core.ids import floor_id
from holdfast.engine import access
from holdfast.engine.records import Lease, Pruned, PutOff, Retention
from holdfast.events import outbox
from holdfast.jobs import rescue, retention
from holdfast.jobs.job import FINISHED, Status
from holdfast.jobs.read import FIRST_ID
from holdfast.limits import scripts as limits
from holdfast.monitoring import rollups
from holdfast.workflows import scripts as workflows

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine

DEAD_WORKERS_KEPT = 86400.0  # seconds


class Maintenance:
    """Pruning and repair, each call a transaction or a few."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._pruned_to: dict[Status, str] = {}
        self._repaired_to = self._keys_pruned_to = ""
        self._orphans_to = self._workflows_to = FIRST_ID

    def prune(self, wanted: Retention, *, limit: int, leases: int = 10) -> Pruned:
        """Delete finished jobs whose time is over, and lease those for which the caller has to do
        something first. The next call continues; `more`: there is something left."""
        engine = self._engine
        if not self._pruned_to:
            self.prune_from_the_start()
        gone, leased = 0, list[Lease]()
        for status, after in list(self._pruned_to.items()):
            if gone >= limit or len(leased) >= leases:
                break
            look = engine.write(
                retention.prune,
                status,
                wanted,
                after=after,
                before=floor_id(engine.clock.now() - timedelta(seconds=wanted.keep[status])),
                limit=limit - gone,
                leases=leases - len(leased),
            )
            gone += look.gone
            leased += look.leased
            if look.edge is None:
                self._pruned_to.pop(status, None)  # another pruner of this process may have
            else:
                self._pruned_to[status] = look.edge
        if not self._pruned_to:
            engine.write(rescue.prune_workers, DEAD_WORKERS_KEPT)
        return Pruned(gone, leased, more=bool(self._pruned_to))

    def prune_from_the_start(self) -> None:
        """Let the next `prune` begin a new round."""
        self._pruned_to = dict.fromkeys(sorted(FINISHED), FIRST_ID)

    def prune_leased(self, leases: Sequence[Lease]) -> list[str]:
        """Delete what was leased, each only while its lease holds; the ids."""
        if not leases:
            return []
        return self._engine.run(lambda: retention.prune_leased(leases), write=True)

    def put_off(self, kept: Sequence[PutOff]) -> None:
        """Keep what was leased and could not go."""
        if kept:
            self._engine.write(retention.put_off, kept)

    def declare_hooks(self, types: Collection[str], gone: Collection[str] = ()) -> None:
        """Make known which tasks have a hook that comes before pruning, and which none any more."""
        if types or gone:
            self._engine.run(lambda: retention.declare_hooks(types, gone), write=True)

    def repair_limits(self, limit: int) -> int:
        """Put back in line the jobs that wait for a key with free capacity and were not released; how
        many. A look at some keys, the next ones at the next call."""
        if not self._engine.run(limits.is_waited_for, write=False):
            return 0
        repaired = self._engine.write(limits.repair, self._repaired_to, limit)
        self._repaired_to = repaired.after
        return repaired.moved

    def prune_keys(self, limit: int) -> None:
        """Delete some of the keys of limits that no job uses."""
        self._keys_pruned_to = self._engine.run(
            lambda: limits.prune_keys(self._keys_pruned_to, limit), write=True
        )

    def advance_workflows(self, limit: int) -> int:
        """Draw the consequences of what has ended, or was added, in workflows, some at a time; how many
        jobs may run now, or are cancelled. (`finish` does so for the jobs that it ends.)"""
        changed = self._engine.run(lambda: workflows.changed_workflows(limit), write=False)
        if not changed:
            return 0
        return self._engine.write(workflows.advance, changed)

    def find_orphans(self, limit: int) -> None:
        """Look again at jobs that wait for one whose row is gone, and at workflows whose last job is,
        some at a time; and forget workflows of which nothing is left."""
        engine = self._engine
        self._orphans_to = engine.run(
            lambda: workflows.orphans(self._orphans_to, limit), write=True
        )
        self._workflows_to = engine.write(workflows.abandoned, self._workflows_to, limit)
        engine.write(workflows.prune, limit)

    def prune_rollups(self) -> int:
        """Delete the roll-ups of the oldest minute, if its time is over; how many rows went."""
        return self._engine.write(rollups.prune)

    def prune_events(self) -> int:
        """Delete some of the events that are not needed any more; return how many."""
        if not self._engine.run(outbox.is_kept, write=False):
            return 0
        return self._engine.write(outbox.prune, outbox.PRUNED)

    def prune_access(self) -> int:
        """Delete some of the oldest entries of the audit log, and sessions that are over; how many."""
        return self._engine.write(access.prune, access.PRUNED)
