"""How jobs are fetched: the plain way where nothing limits them, by counting where something does."""

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from holdfast.engine.dialect import Dialect
from holdfast.engine.protocol import NO_RULES, Engine
from holdfast.engine.records import Fetched
from holdfast.engine.script import Script, T
from holdfast.errors import DatabaseBusy
from holdfast.jobs import claim as claim_scripts
from holdfast.jobs.job import Job
from holdfast.limits import scripts as limit_scripts
from holdfast.limits.keys import LimitKeys
from holdfast.limits.limit import QUEUE, Rule

SCAN = 1000  # jobs that a claim under limits looks at, at the most
_LOOK_FOR_LIMITS = 2.0  # seconds between two looks whether a queue has got a limit


class Claiming(Engine):
    """The part of an engine that takes jobs."""

    dialect: Dialect

    def __init__(self) -> None:
        self._limited_queues: set[str] = set()  # queues with limits of their own
        self._limits_looked_at = 0.0
        self._flowing: set[str] = set()  # queues whose last claim took jobs under limits
        self._scan: dict[str, int] = {}
        self._beginning: dict[str, Any] = {}
        self._keys = LimitKeys()

    def run(self, script: Callable[[], Script[T]], *, write: bool) -> T:
        return self._run(script, write)

    @abstractmethod
    def _run(
        self, script: Callable[[], Script[T]], write: bool, deadline: float | None = None
    ) -> T:
        """`deadline`: by the monotonic clock, if it is not to be the timeout of a call from now on."""

    def claim(self, queue: str, limit: int, *, worker: str, types: Sequence[str]) -> list[Job]:
        wanted = [{"type": type, "limit": limit} for type in types]
        return self.run(
            lambda: claim_scripts.claim(self.dialect, queue, limit, worker, wanted), write=True
        )

    def fetch(
        self,
        queue: str,
        limit: int,
        *,
        worker: str,
        types: Sequence[str],
        rules: Mapping[str, Rule] = NO_RULES,
    ) -> Fetched:
        mine = {type: rules[type] for type in types if type in rules}
        has_queue_limit = queue in self._limited_queues
        found = Fetched([], False)
        if not has_queue_limit:
            if mine:
                found = self._fetch_mixed(queue, limit, worker, types, mine)
            else:
                found = self._fetch(queue, limit, worker, types)
            has_queue_limit = not found.jobs and not found.more and self._has_queue_limit(queue)
        if has_queue_limit:
            found = self._fetch_limited(queue, limit, worker, types, mine, has_queue_limit=True)
        return found

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
        if self.dialect.claims_in_one and queue not in self._flowing:
            ahead = self.run(
                lambda: claim_scripts.look_ahead(self.dialect, queue, rules), write=False
            )
            if not ahead.is_open:
                free = [type for type in types if type not in rules]
                found = self._fetch(queue, limit, worker, free) if free else Fetched([], False)
                return Fetched(found.jobs, found.more, ahead.due)
        found = self._fetch_limited(queue, limit, worker, types, rules, has_queue_limit=False)
        flows = any(job.limited for job in found.jobs)
        (self._flowing.add if flows else self._flowing.discard)(queue)
        return found

    def _fetch_others(self, queue: str, limit: int, worker: str, types: Sequence[str]) -> Fetched:
        """Somebody holds a limit and does not go on: what has none need not wait for that."""
        jobs = self._fetch(queue, limit, worker, types).jobs if types else []
        return Fetched(jobs, more=bool(jobs), due=0.1)

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
        wanted = [{"type": type, **self._beginning} for type in types]
        scan = self._scan.get(queue, 0)
        keys = self._keys.for_claim(rules)

        def claim() -> claim_scripts.Limited:
            script = partial(
                claim_scripts.claim_limited, self.dialect, queue, limit, worker, wanted
            )
            return self.run(
                lambda: script(keys.rules, scan=scan, has_queue_limit=has_queue_limit),
                write=True,
            )

        try:
            limited = claim()
            made = keys.make_missed()
            if made and not limited.jobs:
                limited = claim()
                made = keys.make_missed()
        except DatabaseBusy:
            if not self.dialect.claims_in_one:
                raise  # the whole database is held, and not a key
            others = [type for type in types if type not in rules and not has_queue_limit]
            return self._fetch_others(queue, limit, worker, others)
        if limited.full and self.dialect.claims_in_one:
            self._look_again(limited.full)
        (self._limited_queues.add if limited.has_queue_limit else self._limited_queues.discard)(
            queue
        )
        self._scan[queue] = min(SCAN, max(100, 4 * scan)) if limited.parked else scan // 2
        return Fetched(limited.jobs, limited.more or made, limited.due)

    def _look_again(self, full: set[str]) -> None:
        """What ended while these were parked could not see them yet: whoever commits later of the two,
        a finish or a claim, finds what the other has done."""
        found = self.run(lambda: limit_scripts.peek(self.dialect, full, "keyed"), write=False)
        self._release({key: capacity.left for key, capacity in found.items() if capacity.left})

    def _release(self, freed: Mapping[str, int]) -> None:
        """Let others run under these keys. Nothing is held for it, unless somebody waits."""
        waited_for = self.run(lambda: limit_scripts.awaited(freed), write=False) if freed else {}
        if waited_for:
            self.run(lambda: limit_scripts.release(self.dialect, waited_for), write=True)

    def _fetch(self, queue: str, limit: int, worker: str, types: Sequence[str]) -> Fetched:
        """Without limits."""
        jobs = self.claim(queue, limit, worker=worker, types=types)
        return Fetched(jobs, more=len(jobs) >= limit)

    def _has_queue_limit(self, queue: str) -> bool:
        """A queue with a limit of its own gives nothing to who does not ask for it: looked at now and
        then, when a claim was in vain."""
        now = time.monotonic()
        if now < self._limits_looked_at:
            return False
        self._limits_looked_at = now + _LOOK_FOR_LIMITS
        name = QUEUE + queue
        script = partial(limit_scripts.capacities, self.dialect, [name], "whole")
        return name in self.run(script, write=True)

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
        keys = self._keys.for_claim(rules)

        def claim() -> list[Job]:
            script = partial(
                claim_scripts.claim_suspects, self.dialect, queues, limit, level, worker, types
            )
            return self.run(lambda: script(keys.rules), write=True)

        return claim() or (claim() if keys.make_missed() else [])
