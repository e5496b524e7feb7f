"""Prunes: deletes finished jobs whose retention is over, a bounded number in each look. Every worker
does so, without a leader. The scripts and their SQL are in jobs/pruning.py.

Most jobs are deleted without a lease. Where their task has an `on_prune`, or the application has an
archive, they are leased first: the hook runs outside any transaction, then they are written to the
archive, then deleted, each only while its lease holds. A job whose hook or archive failed is kept, with
the reason, and tried again later.
"""

import asyncio
import inspect
import logging
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from holdfast.app import Holdfast
from holdfast.core.ids import floor_id
from holdfast.engine.records import Lease, PutOff, Retention
from holdfast.jobs import read as read_scripts
from holdfast.jobs.job import FINISHED, Job, Status
from holdfast.jobs.job_json import attempt_fields, job_fields
from holdfast.jobs.pruning import LEASE, count
from holdfast.tasks.task import Hook
from holdfast.worker.housekeeping.archive import Archive
from holdfast.worker.housekeeping.sync_declarations import declare_hooks
from holdfast.worker.running.hooks import await_hook
from holdfast.worker.running.runners import LoopThread
from holdfast.worker.running.thread_pool import Threads
from holdfast.worker.ticker import Ticker

logger = logging.getLogger("holdfast.worker")

BATCH = 500  # jobs that one transaction deletes
LEASES = 10  # jobs whose hooks run at the same time
ARCHIVED = 100  # jobs in a batch of the archive
TIMEOUT = 60.0  # seconds that a hook may take
_FIRST, _LONGEST = 60.0, 86400.0  # seconds until a job whose pruning failed is tried again
_SHARE = 9  # a pruner pauses so many times as long as it worked: claims come first
_SHORTEST = 0.05
EVERY = 60.0  # seconds between two rounds


def put_off(prunings: int) -> float:
    """Return the seconds until a job whose pruning failed so many times is tried again."""
    return min(_FIRST * 2.0 ** min(prunings - 1, 30), _LONGEST)


@dataclass
class Work:
    """The number of jobs that pruning deleted. `a += b` adds a later look."""

    gone: int = 0
    failed: int = 0  #: kept, because their hook or the archive failed
    more: bool = field(default=False, compare=False)

    def __iadd__(self, other: "Work") -> "Work":
        self.gone += other.gone
        self.failed += other.failed
        self.more = other.more
        return self


class _End(NamedTuple):
    """The end of a hook: without a problem, or with the exception that it raised."""

    lease: Lease
    problem: BaseException | None


class Pruner(Ticker):
    """Deletes finished jobs. In a worker its thread calls `look` at intervals; `holdfast prune` calls
    it by itself."""

    def __init__(
        self,
        app: Holdfast,
        loop: Callable[[], asyncio.AbstractEventLoop],
        threads: Threads,
        pruned: Callable[[Work], object] = lambda work: None,
    ) -> None:
        super().__init__("pruning", {"pruning": self.tick})
        self._app = app
        self._engine = app.engine
        self._loop = loop
        self._threads = threads
        self._pruned = pruned
        self._archive = None if app.settings.archive is None else Archive(app.settings.archive)
        self._ends: queue.SimpleQueue[_End | None] = queue.SimpleQueue()
        self._busy: set[str] = set()  # jobs whose hooks were given up, and have not returned
        self._declared: set[str] = set()
        self._took = 0.0  # seconds of the database's time, by the last look

    def close(self, timeout: float = 0.0) -> None:
        """Stop waiting for hooks; leased jobs are tried again when their lease is over."""
        self._closing.set()
        self._ends.put(None)
        super().close(timeout)

    def wanted(self, older_than: float | None = None, *, everywhere: bool = False) -> Retention:
        """Return which finished jobs may be deleted. `everywhere`: look also at jobs that are younger
        than any retention of our tasks."""
        hooks = self._hooks().keys()
        if hooks - self._declared:  # also of tasks that were registered after the worker started
            self._engine.maintenance.declare_hooks(hooks)
            self._declared |= hooks
        policies = [task.policy.keep for task in self._app.tasks.values()]
        kept = [self._app.settings.retention, *policies]
        ages = {status: 0.0 if everywhere else min(k[status] for k in kept) for status in FINISHED}
        return Retention(
            keep=ages,
            hooks=frozenset(hooks),
            archived=self._archive is not None,
            older_than=older_than,
        )

    def _hooks(self) -> dict[str, Hook]:
        tasks = self._app.tasks.values()
        return {task.name: task.conduct.on_prune for task in tasks if task.conduct.on_prune}

    def tick(self) -> float:
        work = self.look(self.wanted())
        self._pruned(work)
        if work.gone:
            logger.info("%d finished jobs pruned", work.gone)
        return max(_SHORTEST, _SHARE * self._took) if work.more else EVERY

    def look(self, wanted: Retention) -> Work:
        leases = ARCHIVED if wanted.archived else LEASES
        began = time.monotonic()
        found = self._engine.maintenance.prune(wanted, limit=BATCH, leases=leases)
        self._took = time.monotonic() - began
        gone, failed = self._prune_leased(found.leased) if found.leased else (0, 0)
        return Work(found.gone + gone, failed, more=found.more)

    def _prune_leased(self, leases: Sequence[Lease]) -> tuple[int, int]:
        """Call hooks, write to the archive, then delete; return how many jobs were deleted, and how
        many are kept since their hook or the archive failed."""
        known = {lease.id: lease for lease in leases}
        jobs = {job.id: job for job in self._engine.get(list(known)) if job.status in FINISHED}
        ends = self._call_hooks([(known[id], job) for id, job in jobs.items()])
        failed = [end for end in ends if end.problem is not None]
        ready = [end.lease for end in ends if end.problem is None]
        if ready and self._archive is not None:
            try:
                rows = [self._archive_row(jobs[lease.id]) for lease in ready]
                self._archive.write(self._engine.now().date(), rows)
            except OSError as problem:
                failed += [_End(lease, problem) for lease in ready]
                ready = []
        gone = self._engine.maintenance.prune_leased(ready)
        self._engine.maintenance.put_off([self._kept(end) for end in failed])
        return len(gone), len(failed)

    def _kept(self, end: _End) -> PutOff:
        delay = put_off(end.lease.prunings)
        error = f"{type(end.problem).__name__}: {end.problem}"[:1000]
        logger.error(
            "job %s could not be pruned, and is tried again in %.0f s: %s",
            *(end.lease.id, delay, error),
        )
        return PutOff(end.lease, delay, error)

    def _archive_row(self, job: Job) -> dict[str, Any]:
        runs = self._engine.read(read_scripts.attempts, job.id)
        return {**job_fields(job), "failures": [attempt_fields(run) for run in runs]}

    # hooks

    def _call_hooks(self, leased: Sequence[tuple[Lease, Job]]) -> list[_End]:
        """Call the hooks, LEASES of them at a time. A hook that does not end in time is given up."""
        hooks, done = self._hooks(), list[_End]()
        calls = []
        for lease, job in leased:
            if (hook := hooks.get(job.type)) is None:
                done.append(_End(lease, None))
            elif lease.id in self._busy:
                done.append(_End(lease, TimeoutError("its on_prune has not returned yet")))
            else:
                calls.append((lease, job, hook))
        last = time.monotonic() + LEASE - 2 * TIMEOUT
        for start in range(0, len(calls), LEASES):
            if time.monotonic() < last:  # else their leases could end before their hooks do
                done += self._call_together(calls[start : start + LEASES])
        return done

    def _call_together(self, calls: Sequence[tuple[Lease, Job, Hook]]) -> list[_End]:
        deadline = time.monotonic() + TIMEOUT
        waiting = {lease for lease, _, _ in calls}
        done: list[_End] = []
        for lease, job, hook in calls:
            self._busy.add(lease.id)
            self._threads.submit(partial(self._call_hook, lease, job, hook))
        while waiting and not self._closing.is_set():
            try:
                end = self._ends.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                late = f"on_prune took more than {TIMEOUT:g} s"
                return done + [_End(lease, TimeoutError(late)) for lease in sorted(waiting)]
            if end is not None and end.lease in waiting:
                waiting.discard(end.lease)
                done.append(end)
        return done

    def _call_hook(self, lease: Lease, job: Job, hook: Hook) -> None:
        problem: BaseException | None = None
        try:
            answer = hook(job)
            if inspect.isawaitable(answer):
                waiting = await_hook(answer, "on_prune")
                running = asyncio.run_coroutine_threadsafe(waiting, self._loop())
                try:
                    running.result(TIMEOUT)
                finally:
                    running.cancel()
        except BaseException as error:
            problem = error
        finally:
            self._busy.discard(lease.id)
            self._ends.put(_End(lease, problem))

    def count(
        self, wanted: Retention, counted: Callable[[int], object] = lambda number: None
    ) -> tuple[dict[Status, int], int]:
        """Return how many jobs would be deleted, by status; and how many of them have a hook that only
        other workers know. `counted`: called with the number so far."""
        due, unknown = dict.fromkeys(sorted(FINISHED), 0), 0
        now = self._engine.clock.now()
        for status in due:
            before = floor_id(now - timedelta(seconds=wanted.keep[status]))
            after: str | None = read_scripts.FIRST_ID
            while after is not None:
                page = self._engine.read(
                    count, status, wanted, after=after, before=before, limit=BATCH
                )
                due[status] += page.number
                unknown += page.unknown
                after = page.edge
                counted(sum(due.values()))
        return due, unknown


@contextmanager
def pruner_of(app: Holdfast, *, declare: bool = True) -> Iterator[Pruner]:
    """Make a pruner without a worker, with threads and a loop for hooks."""
    if declare:
        declare_hooks(app)  # also forgets hooks that are no longer in the code
    loop, threads = LoopThread(), Threads("holdfast-hook")
    loop.start()
    pruner = Pruner(app, lambda: loop.loop, threads)
    try:
        yield pruner
    finally:
        pruner.close()
        threads.close(0.5)
        loop.close(0.5)
