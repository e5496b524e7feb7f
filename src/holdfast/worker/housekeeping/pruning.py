"""How finished jobs go: a bounded look at a time, without a leader.

Most are deleted at once. Where their task has an `on_prune`, or the application an archive, they are
leased first: the hook runs outside any transaction, then they are written to the archive, then deleted,
each only while its lease holds. A job that cannot go is kept, with the reason, and tried again later.
"""

import asyncio
import inspect
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from holdfast.app import Holdfast
from holdfast.core.ids import floor_id
from holdfast.engine.records import Lease, PutOff, Retention
from holdfast.jobs import read as read_scripts
from holdfast.jobs.job import FINISHED, Job, Status
from holdfast.jobs.job_json import attempt_fields, job_fields
from holdfast.jobs.retention import LEASE, count
from holdfast.tasks.task import Hook
from holdfast.worker.housekeeping.archive import Archive
from holdfast.worker.housekeeping.services import Services
from holdfast.worker.housekeeping.sync_declarations import declare_hooks
from holdfast.worker.running.runners import LoopThread
from holdfast.worker.running.thread_pool import Threads

logger = logging.getLogger("holdfast.worker")

BATCH = 500  # jobs that one transaction deletes
LEASES = 10  # jobs whose hooks run at the same time
ARCHIVED = 100  # jobs in a batch of the archive
TIMEOUT = 60.0  # seconds that a hook may take
_FIRST, _LONGEST = 60.0, 86400.0  # seconds until a job that could not go is tried again
_SHARE = 9  # times as long as it worked, a pruner pauses: claims come first
_SHORTEST = 0.05
EVERY = 60.0  # seconds between two rounds


def put_off(prunings: int) -> float:
    """Seconds until a job is tried again that could not go so many times."""
    return min(_FIRST * 2.0 ** min(prunings - 1, 30), _LONGEST)


@dataclass
class Work:
    """What pruning did."""

    gone: int = 0
    failed: int = 0  #: kept, because their hook or the archive failed
    more: bool = field(default=False, compare=False)

    def __iadd__(self, other: "Work") -> "Work":
        self.gone += other.gone
        self.failed += other.failed
        self.more = other.more
        return self


class _End(NamedTuple):
    """How a hook ended."""

    lease: Lease
    problem: BaseException | None


class Pruner:
    """`look` again and again, by a thread that `start` starts, or by the caller's."""

    def __init__(
        self,
        app: Holdfast,
        loop: Callable[[], asyncio.AbstractEventLoop],
        threads: Threads,
        told: Callable[[Work], object] = lambda work: None,
    ) -> None:
        self._app = app
        self._told = told
        self._service = Services("pruning", {"pruning": self.tick})
        self._engine = app.engine
        self._loop = loop
        self._threads = threads
        self._archive = None if app.settings.archive is None else Archive(app.settings.archive)
        self._ends: queue.SimpleQueue[_End | None] = queue.SimpleQueue()
        self._busy: set[str] = set()  # jobs whose hooks have not returned, though we gave them up
        self._declared: set[str] = set()
        self._took = 0.0  # seconds of the database's time, by the last look
        self._closing = threading.Event()

    def start(self) -> None:
        """Prune from now on, in a thread."""
        self._service.start()

    def close(self, timeout: float = 0.0) -> None:
        """Wait for no hook any more; what is leased is tried again when its lease is over."""
        self._closing.set()
        self._ends.put(None)
        self._service.close(timeout)

    def wanted(self, older_than: float | None = None, *, everywhere: bool = False) -> Retention:
        """`everywhere`: also jobs younger than any that our own tasks would let go."""
        self._declare()
        policies = [task.policy.keep for task in self._app.tasks.values()]
        kept = [self._app.settings.retention, *policies]
        ages = {status: 0.0 if everywhere else min(k[status] for k in kept) for status in FINISHED}
        return Retention(
            keep=ages,
            hooks=frozenset(self._hooks()),
            archived=self._archive is not None,
            older_than=older_than,
        )

    def _declare(self) -> None:
        """Also of tasks that were registered since the worker has started."""
        hooks = self._hooks().keys()
        if hooks - self._declared:
            self._engine.maintenance.declare_hooks(hooks)
            self._declared |= hooks

    def _hooks(self) -> dict[str, Hook]:
        tasks = self._app.tasks.values()
        return {task.name: task.conduct.on_prune for task in tasks if task.conduct.on_prune}

    def tick(self) -> float:
        """One look; how long to wait for the next."""
        work = self.look(self.wanted())
        self._told(work)
        if work.gone:
            logger.info("%d finished jobs pruned", work.gone)
        return max(_SHORTEST, _SHARE * self._took) if work.more else EVERY

    def look(self, wanted: Retention) -> Work:
        batch = ARCHIVED if wanted.archived else LEASES
        began = time.monotonic()
        found = self._engine.maintenance.prune(wanted, limit=BATCH, leases=batch)
        self._took = time.monotonic() - began
        work = Work(found.gone, more=found.more)
        if found.leased:
            gone, failed = self._let_go(found.leased)
            work.gone += gone
            work.failed += failed
        return work

    def _let_go(self, leases: Sequence[Lease]) -> tuple[int, int]:
        """What was leased: hooks, then the archive, then the end."""
        known = {lease.id: lease for lease in leases}
        found = self._engine.get(list(known))
        jobs = {job.id: job for job in found if job.status in FINISHED}
        ends = self._call_hooks([(known[id], job) for id, job in jobs.items()])
        failed = [end for end in ends if end.problem is not None]
        ready = [end.lease for end in ends if end.problem is None]
        if ready and self._archive is not None:
            try:
                self._write_down([jobs[lease.id] for lease in ready])
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

    def _write_down(self, jobs: Sequence[Job]) -> None:
        dialect = self._engine.dialect
        rows = []
        for job in jobs:
            runs = self._engine.run(
                lambda job=job: read_scripts.attempts(dialect, job.id),  # type: ignore[misc]
                write=False,
            )
            rows.append({**job_fields(job), "failures": [attempt_fields(run) for run in runs]})
        if self._archive is not None:
            self._archive.write(self._engine.now().date(), rows)

    # hooks

    def _call_hooks(self, leased: Sequence[tuple[Lease, Job]]) -> list[_End]:
        """Some at a time; those that did not end in time are given up."""
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
            if time.monotonic() < last:  # else their leases could be over before their hooks are
                done += self._together(calls[start : start + LEASES])
        return done

    def _together(self, calls: Sequence[tuple[Lease, Job, Hook]]) -> list[_End]:
        deadline = time.monotonic() + TIMEOUT
        waiting = {lease for lease, _, _ in calls}
        done: list[_End] = []
        for lease, job, hook in calls:
            self._busy.add(lease.id)
            self._threads.submit(lambda call=(lease, job, hook): self._call(*call))  # type: ignore[misc]
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

    def _call(self, lease: Lease, job: Job, hook: Hook) -> None:
        problem: BaseException | None = None
        try:
            answer = hook(job)
            if inspect.isawaitable(answer):
                self._wait_for(answer)
        except BaseException as error:
            problem = error
        finally:
            self._busy.discard(lease.id)
            self._ends.put(_End(lease, problem))

    def _wait_for(self, answer: Any) -> None:
        running = asyncio.run_coroutine_threadsafe(_awaited(answer), self._loop())
        try:
            running.result(TIMEOUT)
        except TimeoutError:
            running.cancel()
            raise

    # looking only

    def count(
        self, wanted: Retention, told: Callable[[int], object] = lambda number: None
    ) -> tuple[dict[Status, int], int]:
        """What is to go, by status; and how many of it only others can let go, who know its hook."""
        due, unknown = dict.fromkeys(sorted(FINISHED), 0), 0
        now = self._engine.clock.now()
        for status in due:
            before = floor_id(now - timedelta(seconds=wanted.keep[status]))
            after: str | None = read_scripts.FIRST_ID
            while after is not None:
                place = {"after": after, "before": before, "limit": BATCH}
                page = self._engine.run(
                    lambda status=status, place=place: count(  # type: ignore[misc]
                        self._engine.dialect, status, wanted, **place
                    ),
                    write=False,
                )
                due[status] += page.number
                unknown += page.unknown
                after = page.edge
                told(sum(due.values()))
        return due, unknown


async def _awaited(answer: Any) -> None:
    try:
        await answer
    except (KeyboardInterrupt, SystemExit) as problem:  # they would end the loop
        raise RuntimeError(f"on_prune raised {problem!r}") from problem


@contextmanager
def pruner_of(app: Holdfast, *, declare: bool = True) -> Iterator[Pruner]:
    """A pruner without a worker, with what a worker has for it: threads, and a loop for hooks that are
    asynchronous."""
    if declare:
        declare_hooks(app)  # also forgets those that are gone from the code
    loop, threads = LoopThread(), Threads("holdfast-hook")
    loop.start()
    pruner = Pruner(app, lambda: loop.loop, threads)
    try:
        yield pruner
    finally:
        pruner.close()
        threads.close(0.5)
        loop.close(0.5)
