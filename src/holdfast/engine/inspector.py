"""What may be read of an engine: never a lock, never a scan that grows with the table."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Concatenate, ParamSpec

from holdfast.core.clock import Clock
from holdfast.engine.dialect import Dialect
from holdfast.engine.records import (
    Filter,
    Held,
    LimitInfo,
    Page,
    QueueInfo,
    Stacks,
    Suspects,
    WorkerInfo,
)
from holdfast.engine.script import Script, T
from holdfast.jobs import commands, read, rescue, retention
from holdfast.jobs.job import Job, Status
from holdfast.limits import scripts as limits
from holdfast.monitoring import pending_walk, rollups
from holdfast.monitoring.hourly_cache import HOUR, HourlyCache
from holdfast.monitoring.metrics import Point, Share, Total
from holdfast.schedules import scripts as schedules

P = ParamSpec("P")


class Inspector(ABC):
    """Reads, each a script."""

    clock: Clock
    dialect: Dialect

    def __init__(self) -> None:
        self._totals = HourlyCache(lambda start, end: self.read(rollups.totals, start, end))
        self._points = HourlyCache(
            lambda start, end: self.read(rollups.series, start, end, None, None)
        )

    @abstractmethod
    def run(self, script: Callable[[], Script[T]], *, write: bool) -> T:
        """Run a script in a transaction of our own. It may be run again from the start."""

    def read(
        self,
        script: Callable[Concatenate[Dialect, P], Script[T]],
        *args: P.args,
        **options: P.kwargs,
    ) -> T:
        """Run a script that changes nothing; it is given the dialect first."""
        return self.run(lambda: script(self.dialect, *args, **options), write=False)

    def get(self, ids: Sequence[str]) -> list[Job]:
        """Whole jobs, in the order of the ids; unknown ids are left out."""
        return self.read(read.get, ids)

    def search(self, filter: Filter, *, after: str | None = None, limit: int = 100) -> Page:
        """A page of jobs without bodies, the newest first. It looks at a bounded number of rows, so
        a page may be short although more follow: `page.next` tells."""
        return self.read(read.search, filter, after, limit)

    def counts(self, *, cap: int = 10_000) -> dict[Status, int]:
        """How many jobs are in each status, each counted up to `cap`."""
        return self.run(lambda: read.counts(Status, cap), write=False)

    def workers(self) -> list[WorkerInfo]:
        """Every worker that is remembered, dead ones too."""
        return self.read(read.workers)

    def queues(self, *, cap: int = 10_000) -> list[QueueInfo]:
        """The queues that hold pending jobs or were ever paused."""
        return self.read(read.queues, cap)

    def backlog(self, *, limit: int = 1000) -> list[tuple[str, str, datetime]]:
        """What is pending: each queue and type, with when the longest waiting job was due. (Once
        for each priority that waits, the 50 first and the last: a seek each, however many jobs.)"""
        return self.read(pending_walk.walk, limit)

    def hooks(self) -> list[str]:
        """The tasks whose finished jobs may go only after a hook was called."""
        return self.run(retention.hooks, write=False)

    def limits(self, *, cap: int = 10_000) -> list[LimitInfo]:
        """Every limit, with what runs under it and what waits for it, counted up to `cap`."""
        return self.run(lambda: limits.listing(cap), write=False)

    def series(
        self, since: datetime, *, type: str | None = None, queue: str | None = None
    ) -> list[Point]:
        """What ended in each minute from this one on; minutes in which nothing did are left out."""
        now = self.now()
        if type is not None or queue is not None:  # there may be many of these to remember
            return self.read(rollups.series, since, now + HOUR, type, queue)
        return self._points.all(since, now)

    def totals(self, since: datetime) -> list[Total]:
        """The same by task and queue, with how long they waited and ran."""
        return self._totals.all(since, self.now())

    def shares(self, since: datetime) -> list[Share]:
        """How many jobs of each queue each worker finished."""
        return self.read(rollups.shares, since)

    def overdue(self) -> tuple[str, str, datetime] | None:
        """What should have been made pending the longest ago: queue, type, and when it was due."""
        return self.read(rollups.overdue)

    def now(self) -> datetime:
        """The clock by which times in this database are written: ages are measured by it."""
        return self.clock.now()

    def next_due(self) -> float | None:
        """Seconds until the next scheduled or retrying job is due; None: none waits."""
        return self.read(commands.next_due)

    def held(self, worker: str) -> list[Held]:
        """The claims that a worker holds, according to the database."""
        return self.run(lambda: rescue.held(worker), write=False)

    def stacks(self, worker: str) -> Stacks | None:
        """Where its runs stood when it was last asked; None: there is no such worker."""
        return self.read(rescue.stacks, worker)

    def disabled_schedules(self, *, limit: int = 100) -> list[tuple[str, str, str]]:
        """Recurring jobs that were not disabled by an operator: task, key, and why."""
        return self.run(lambda: schedules.disabled(limit), write=False)

    def suspects(self) -> list[Suspects]:
        """How many pending jobs have deaths on record, by queue, type and level (a bounded look; paused
        queues are left out)."""
        return self.read(read.suspects)
