"""`engine.maintenance`: pruning and repair of the database, a bounded number of rows in each call; the
next call continues after them.

worker/housekeeping calls these methods at intervals: `Pruner` (pruning.py) those for finished jobs,
`Housekeeping` (services.py) the others. `holdfast prune` calls the Pruner once.
"""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.core.ids import floor_id
from holdfast.engine import access
from holdfast.engine.records import Lease, Pruned, PutOff, Retention
from holdfast.events import outbox
from holdfast.jobs import pruning, rescue
from holdfast.jobs.job import FINISHED, Status
from holdfast.jobs.read import FIRST_ID
from holdfast.limits import scripts as limits
from holdfast.monitoring import rollups
from holdfast.workflows import scripts as workflows

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine

DEAD_WORKERS_KEPT = 86400.0  # seconds


class Maintenance:
    """Pruning and repair of one database. Each call is a transaction or a few."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._pruned_to: dict[Status, str] = {}
        self._repaired_to = self._keys_pruned_to = ""
        self._orphans_to = self._workflows_to = FIRST_ID

    def prune(self, wanted: Retention, *, limit: int, leases: int = 10) -> Pruned:
        """Delete finished jobs whose retention is over, and lease those whose hook or archive comes
        first. The next call continues after the jobs that this one looked at, until `more` is False."""
        engine = self._engine
        if not self._pruned_to:
            self.prune_from_the_start()
        gone, leased = 0, list[Lease]()
        for status, after in list(self._pruned_to.items()):
            if gone >= limit or len(leased) >= leases:
                break
            look = engine.write(
                pruning.prune,
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
        """Let the next `prune` begin with the oldest jobs again."""
        self._pruned_to = dict.fromkeys(sorted(FINISHED), FIRST_ID)

    def prune_leased(self, leases: Sequence[Lease]) -> list[str]:
        """Delete leased jobs, each only while its lease holds; return their ids."""
        if not leases:
            return []
        return self._engine.run(lambda: pruning.prune_leased(leases), write=True)

    def put_off(self, kept: Sequence[PutOff]) -> None:
        """Keep leased jobs whose hook or archive failed, and let them be tried again later."""
        if kept:
            self._engine.write(pruning.put_off, kept)

    def declare_hooks(self, types: Collection[str], gone: Collection[str] = ()) -> None:
        """Record which tasks have an `on_prune`, and which have none any more."""
        if types or gone:
            self._engine.run(lambda: pruning.declare_hooks(types, gone), write=True)

    def repair_limits(self, limit: int) -> int:
        """Release parked jobs whose key has free capacity, if no finish released them; return their
        number. Looks at `limit` keys; the next call looks at the keys after them."""
        if not self._engine.run(limits.is_waited_for, write=False):
            return 0
        repaired = self._engine.write(limits.repair, self._repaired_to, limit)
        self._repaired_to = repaired.after
        return repaired.moved

    def prune_keys(self, limit: int) -> None:
        """Delete keys of limits that no job uses; looks at `limit` keys."""
        self._keys_pruned_to = self._engine.run(
            lambda: limits.prune_keys(self._keys_pruned_to, limit), write=True
        )

    def advance_workflows(self, limit: int) -> int:
        """Release or cancel the jobs of `limit` workflows whose parents have ended; return their
        number. (`engine.finish` does this at once for the jobs that it ends; this call finds jobs that
        were cancelled, deleted, or ended by a worker that died.)"""
        changed = self._engine.run(lambda: workflows.changed_workflows(limit), write=False)
        if not changed:
            return 0
        return self._engine.write(workflows.advance, changed)

    def find_orphans(self, limit: int) -> None:
        """Find jobs that wait for a deleted job, and workflows whose last job was deleted, so that both
        go on; delete workflows that have no job left. Looks at `limit` rows of each."""
        engine = self._engine
        self._orphans_to = engine.run(
            lambda: workflows.orphans(self._orphans_to, limit), write=True
        )
        self._workflows_to = engine.write(workflows.abandoned, self._workflows_to, limit)
        engine.write(workflows.prune, limit)

    def prune_rollups(self) -> int:
        """Delete the roll-ups of the oldest minute if it is older than a day; return the number of
        rows."""
        return self._engine.write(rollups.prune)

    def prune_events(self) -> int:
        """Delete some of the events that no follower needs any more; return their number."""
        if not self._engine.run(outbox.is_kept, write=False):
            return 0
        return self._engine.write(outbox.prune, outbox.PRUNED)

    def prune_access(self) -> int:
        """Delete some of the oldest entries of the audit log, and expired sessions; return their
        number."""
        return self._engine.write(access.prune, access.PRUNED)
