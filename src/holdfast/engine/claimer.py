"""How a worker takes jobs: in one step where nothing limits them, by counting where something does."""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.engine.records import Fetched
from holdfast.errors import DatabaseBusy
from holdfast.jobs import claim as claim_scripts
from holdfast.jobs.job import Job
from holdfast.limits import scripts as limit_scripts
from holdfast.limits.keys import LimitKeys
from holdfast.limits.limit import QUEUE, Rule

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine

SCAN = 1000  # jobs that a claim under limits looks at, at most
NO_RULES: Mapping[str, Rule] = {}
_LOOK_FOR_LIMITS = 2.0  # seconds between two looks whether a queue has got a limit


class Claimer:
    """Takes jobs for the workers of one process. A dead or unknown worker, and a paused queue, get
    nothing."""

    beginning: Mapping[str, Any] = {}  #: parameters that make a statement look from the beginning

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._limited_queues: set[str] = set()  # queues with limits of their own
        self._limits_looked_at = 0.0
        self._flowing: set[str] = set()  # queues whose last claim took jobs under limits
        self._scan: dict[str, int] = {}
        self._keys = LimitKeys()

    def fetch(
        self,
        queue: str,
        limit: int,
        *,
        worker: str,
        types: Sequence[str],
        rules: Mapping[str, Rule] = NO_RULES,
    ) -> Fetched:
        """Take up to `limit` pending jobs of these types, in the order of running, for a worker that
        comes again and again: it may get less than there is, soon. `rules`: the limits of types; a
        queue's own limit is always kept."""
        mine = {type: rules[type] for type in types if type in rules}
        has_queue_limit = queue in self._limited_queues
        found = Fetched([], False)
        if not has_queue_limit:
            if mine:
                found = self._fetch_mixed(queue, limit, worker, types, mine)
            else:
                found = self._fetch_unlimited(queue, limit, worker, types)
            has_queue_limit = not found.jobs and not found.more and self._has_queue_limit(queue)
        if has_queue_limit:
            found = self._fetch_limited(queue, limit, worker, types, mine, has_queue_limit=True)
        return found

    def claim_suspects(
        self,
        queues: Sequence[str],
        limit: int,
        *,
        level: int | None = None,
        worker: str,
        types: Sequence[str],
        rules: Mapping[str, Rule] = NO_RULES,
    ) -> list[Job]:
        """Take up to `limit` of the jobs with deaths on record, which `fetch` passes over; of this
        level (decision 0021), or of any. Limits are kept."""
        keys = self._keys.for_claim(rules)

        def claim() -> list[Job]:
            script = partial(claim_scripts.claim_suspects, types=types, rules=keys.rules)
            return self._engine.write(script, queues, limit, level, worker)

        return claim() or (claim() if keys.make_missed() else [])

    def _fetch_unlimited(
        self, queue: str, limit: int, worker: str, types: Sequence[str]
    ) -> Fetched:
        wanted = [{"type": type, "limit": limit} for type in types]
        jobs = self._engine.write(claim_scripts.claim, queue, limit, worker, wanted)
        return Fetched(jobs, more=len(jobs) >= limit)

    def _fetch_mixed(
        self,
        queue: str,
        limit: int,
        worker: str,
        types: Sequence[str],
        rules: Mapping[str, Rule],
    ) -> Fetched:
        """Some types have limits. While none of those can run, the others are claimed as if there were
        none: to hold a limit costs a transaction of several statements."""
        if self._engine.dialect.locks_rows and queue not in self._flowing:
            ahead = self._engine.read(claim_scripts.look_ahead, queue, rules)
            if not ahead.is_open:
                free = [type for type in types if type not in rules]
                found = Fetched([], False)
                if free:
                    found = self._fetch_unlimited(queue, limit, worker, free)
                return Fetched(found.jobs, found.more, ahead.due)
        found = self._fetch_limited(queue, limit, worker, types, rules, has_queue_limit=False)
        flows = any(job.limited for job in found.jobs)
        (self._flowing.add if flows else self._flowing.discard)(queue)
        return found

    def _fetch_limited(
        self,
        queue: str,
        limit: int,
        worker: str,
        types: Sequence[str],
        rules: Mapping[str, Rule],
        *,
        has_queue_limit: bool,
    ) -> Fetched:
        wanted = [{"type": type, **self.beginning} for type in types]
        scan = self._scan.get(queue, 0)
        keys = self._keys.for_claim(rules)
        at_once = self._engine.dialect.locks_rows
        script = partial(claim_scripts.claim_limited, scan=scan, has_queue_limit=has_queue_limit)

        def claim() -> claim_scripts.Limited:
            return self._engine.write(script, queue, limit, worker, wanted, keys.rules)

        try:
            limited = claim()
            made = keys.make_missed()
            if made and not limited.jobs:
                limited = claim()
                made = keys.make_missed()
        except DatabaseBusy:
            if not at_once:
                raise  # the whole database is held, and not a key
            # Another transaction holds a limit and does not end: jobs without one need not wait for it.
            others = [type for type in types if type not in rules and not has_queue_limit]
            jobs = self._fetch_unlimited(queue, limit, worker, others).jobs if others else []
            return Fetched(jobs, more=bool(jobs), due=0.1)
        if limited.full and at_once:
            self._look_again(limited.full)
        queues = self._limited_queues
        (queues.add if limited.has_queue_limit else queues.discard)(queue)
        self._scan[queue] = min(SCAN, max(100, 4 * scan)) if limited.parked else scan // 2
        return Fetched(limited.jobs, limited.more or made, limited.due)

    def _look_again(self, full: set[str]) -> None:
        """What ended while these were parked could not see them yet: of a finish and a claim, the one
        that commits later finds what the other has done."""
        found = self._engine.read(limit_scripts.peek, full, "keyed")
        self.release({key: capacity.left for key, capacity in found.items() if capacity.left})

    def release(self, freed: Mapping[str, int]) -> None:
        """Let others run under these keys. No lock is taken, unless a job waits."""
        engine = self._engine
        waited_for = (
            engine.run(lambda: limit_scripts.keys_with_parked(freed), write=False) if freed else {}
        )
        if waited_for:
            engine.write(limit_scripts.release, waited_for)

    def _has_queue_limit(self, queue: str) -> bool:
        """Look up, now and then after a claim that found nothing, whether the queue has got a limit of
        its own: it gives nothing to a claim that does not ask for it."""
        now = time.monotonic()
        if now < self._limits_looked_at:
            return False
        self._limits_looked_at = now + _LOOK_FOR_LIMITS
        name = QUEUE + queue
        return name in self._engine.write(limit_scripts.capacities, [name], "whole")
