"""The worker: a process that claims jobs and runs them, or a part of one that does so inside.

It wires the threads together. The dispatcher's thread claims jobs and hands them to runners; a runner's
thread (or event loop, or process) runs the handler, and `outcome.decide` says what follows; the
finisher's thread writes it. Others send heartbeats, enforce deadlines and watch for cancel requests.
"""

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.core.duration import Duration, seconds
from holdfast.engine.records import Held, Seen
from holdfast.errors import HoldfastError
from holdfast.jobs.job import Job
from holdfast.jobs.outcome import Applied, Ended, released
from holdfast.limits import scripts as limit_scripts
from holdfast.tasks.task import Kind
from holdfast.worker.housekeeping.clock_service import ClockWatch
from holdfast.worker.housekeeping.event_reporter import EventReporter
from holdfast.worker.housekeeping.log_writer import LogWriter
from holdfast.worker.housekeeping.pruning import Pruner
from holdfast.worker.housekeeping.rollup_writer import RollupWriter
from holdfast.worker.housekeeping.services import Housekeeping, Services
from holdfast.worker.housekeeping.startup import look_around
from holdfast.worker.housekeeping.worker_info import portrait
from holdfast.worker.liveness.claim_watch import ClaimWatch
from holdfast.worker.liveness.heartbeat import BEATS_MISSED, Heartbeat, Member
from holdfast.worker.liveness.identity import WorkerIdentity
from holdfast.worker.liveness.self_fencing import SelfFencing
from holdfast.worker.processes.isolation import make_isolation
from holdfast.worker.processes.pool import ProcessRunner
from holdfast.worker.processes.run_table import RunTable
from holdfast.worker.processes.stacks import tell_stacks
from holdfast.worker.running.deadlines import DeadlineEnforcer
from holdfast.worker.running.dispatcher import Dispatcher
from holdfast.worker.running.execution import Execution, Stop, until
from holdfast.worker.running.executions import Executions
from holdfast.worker.running.finisher import Finisher, Item
from holdfast.worker.running.hooks import Hooks, decided, hook_of
from holdfast.worker.running.runners import AsyncRunner, JobRunner, LoopThread, ThreadRunner
from holdfast.worker.running.slots import Lane, Queues, make_lanes
from holdfast.worker.running.thread_pool import Threads
from holdfast.worker.running.unreadable_payloads import UnreadablePayloads

if TYPE_CHECKING:
    from holdfast.app import Holdfast

logger = logging.getLogger("holdfast.worker")

_MARGIN = 0.6  # heartbeats before others may declare us dead, at which we stop our work
_LAST_WORDS = 0.5  # seconds for what was stopped at the end of the grace period to end


class Worker:
    """Runs jobs until it is stopped: `with app.worker(queues="default=10"): ...`."""

    def __init__(
        self,
        app: "Holdfast",
        *,
        queues: Queues = None,
        concurrency: int | None = None,
        grace: Duration = 30.0,
        level: int | None = None,
        registered: "Callable[[Worker], None] | None" = None,
        runs: RunTable | None = None,
    ) -> None:
        """`queues`: "default=10,media=2", a list, or a mapping to sizes. `concurrency`: for queues
        without a size. `grace`: how long a stop waits for runs. (A supervisor sets the rest: `level`
        of jobs to run, what beats instead of us, the shared page of runs that have begun.)"""
        self.app = app
        self.engine = app.engine
        self.grace = seconds(grace, what="grace")
        self.counts: Counter[str] = Counter()  #: what maintenance did so far
        self.draining = False
        self.unreadable = UnreadablePayloads()
        self._settings = app.settings
        self._lanes = make_lanes(queues, concurrency)
        self.isolation = make_isolation(app, level)
        self._beats_elsewhere = registered
        self._runs = runs
        self.supervised = registered is not None
        self._known_tasks = -1
        self.executions = Executions()
        self.identity = WorkerIdentity(self.engine, self.info, self._beats_for, self._died)
        self._own_loop: LoopThread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = self._stopped = self._left = False
        self._starting = threading.Thread(target=self._announce, name="holdfast-start", daemon=True)
        self._threads = Threads("holdfast-job")
        self._runners: dict[Kind, JobRunner] = {}

    @property
    def id(self) -> str | None:
        """host-pid-random; None until the database was reached, and while it takes a new one."""
        return self.identity.id

    # parts

    def _assemble(self) -> None:
        engine, heartbeat = self.engine, self._settings.heartbeat
        self._rollups, self._log_writer = RollupWriter(engine), LogWriter(engine)
        self._reporter = EventReporter(
            self.app.listeners, self.counts, self._rollups, self.unreadable
        )
        self._finisher = Finisher(engine, self._written)
        self._dispatcher = Dispatcher(
            engine,
            self._lanes,
            worker=lambda: self.id,
            begin=self._begin,
            poll=self._settings.poll_interval,
            update=self._update,
            may_claim=lambda: not self._finisher.is_stalled,
            isolation=self.isolation,
        )
        self._deadlines = DeadlineEnforcer(
            self.executions,
            SelfFencing(engine, heartbeat, self.identity),
            limit=(BEATS_MISSED - _MARGIN) * heartbeat,
            stuck=self._got_stuck,
        )
        self._claim_watch = ClaimWatch(
            engine,
            self.executions,
            worker=lambda: self.id,
            release=self._release,
            told=self._reporter.progressed,
        )
        self._heartbeats = Heartbeat(engine, heartbeat, swept=self._reporter.swept)
        house = Housekeeping(engine, workdir=self._settings.workdir, counts=self.counts)
        clock = ClockWatch(engine, self._dispatcher.clock_was_set)
        ticks = {**house.ticks(), "tallying": self._rollups.tick, "clock": clock.tick}
        self._services = Services("services", ticks)
        self._parts = self._dispatcher, self._deadlines, self._claim_watch, self._services
        self._pruner = Pruner(self.app, self._the_loop, self._threads, self._reporter.pruned)
        self._hooks = Hooks(self.app.runner, self._the_loop, self._threads, self._finisher.put)
        middleware = self.app.middleware
        self._processes = ProcessRunner(self._ended, self._threads)
        self._runners = {
            "async": AsyncRunner(self._the_loop(), self._ended, middleware),
            "thread": ThreadRunner(self._ended, middleware, self._threads),
            "process": self._processes,
        }

    def _the_loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None  # noqa: S101 - start() made it
        return self._loop

    # starting

    def start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Begin, in threads; `async def` handlers run on the given loop, else on one of our own. A
        database that cannot be reached is waited for, in the background."""
        if self._started:
            raise HoldfastError("this worker was started before: make a new one")
        ProcessRunner.check(self.app)
        self._started = True
        if loop is None:
            self._own_loop = LoopThread()
            self._own_loop.start()
            loop = self._own_loop.loop
        self._loop = loop
        self._threads.start()
        self._assemble()
        for part in (self._finisher, *self._parts):
            part.start()
        self._starting.start()

    def _announce(self) -> None:
        """Take an id, and say what there is to do."""

        def begin() -> None:
            if self.id is None:
                self.identity.begin()
            self._reporter.swept(look_around(self.app, self.id))

        if self.identity.until_reached(begin):
            self._pruner.start()  # not before it is known which jobs have hooks
            if self._beats_elsewhere is None:
                self._heartbeats.start()
            self._dispatcher.wake()

    def _beats_for(self, id: str) -> None:
        """A life began: who beats for it?"""
        if self._beats_elsewhere is None:
            identity = self.identity
            tell = partial(tell_stacks, self)
            self._heartbeats.add(
                Member(id, self.info, identity.confirmed, identity.declared_dead, asked=tell)
            )
        else:
            self._beats_elsewhere(self)
        self._dispatcher.wake()

    def _died(self) -> None:
        """Others may have our jobs by now."""
        logger.error("declared dead: %d runs are stopped", len(self.executions))
        for execution in self.executions():
            execution.stop(Stop.LOST)

    def info(self) -> str:
        """What the workers' table shows."""
        return portrait(self, self._lanes)

    # running

    def _update(self) -> None:
        if len(self.app.tasks) != self._known_tasks:
            self._known_tasks = len(self.app.tasks)
            for lane in self._lanes:
                lane.update(self.app.tasks)

    def _begin(self, lane: Lane, jobs: Sequence[Job]) -> None:
        if self._left:  # the reply to the claim came after the stop had ended
            self.engine.finish([released(job) for job in jobs])
            return
        by_kind: dict[Kind, list[Execution]] = {}
        for job in jobs:
            task = self.app.tasks[job.type]
            execution = Execution(job, task, lane, self.app.runner, self._settings.workdir)
            execution.log_writer, execution.runs = self._log_writer, self._runs
            self.executions.add(execution)
            kind: Kind = "process" if lane.apart else task.conduct.kind
            by_kind.setdefault(kind, []).append(execution)
            if execution.deadline is not None and execution.deadline - execution.started < 1.0:
                self._deadlines.wake()
        self._reporter.started(jobs)
        for kind, executions in by_kind.items():
            self._runners[kind].start(executions)

    def _ended(self, execution: Execution, ended: Ended | None, value: Any) -> None:
        """A handler is done; called from whatever ran it."""
        self._log_writer.end(execution)
        if execution.has_context:
            execution.context.clean()
        if ended is None:
            self._vanished(execution)
            return
        if execution.completed and (completion := execution.context.completion) is not None:
            self._hooks.confirm(execution, ended, completion)
            return
        finish = decided(execution, ended)
        if hook_of(execution, finish) is not None:
            self._hooks.run(execution, finish, value)
        else:
            execution.leave()
            self._finisher.put(execution, finish)

    def _vanished(self, execution: Execution) -> None:
        """Its row is gone, or another's by now: nothing to write. What it held of limits is free."""
        execution.leave()
        if execution.why is not Stop.GONE:
            logger.warning("job %s was lost while it ran: its result is dropped", execution.job.id)
        elif execution.job.limited:
            self._services.soon("repairing")
            self._dispatcher.capacity_freed()
        self._freed([execution])

    def _written(self, results: Sequence[tuple[Item, Applied]]) -> None:
        """Finishes were committed, or lost."""
        done: list[Execution] = []
        for item, applied in results:
            if applied is Applied.LOST:
                self._reporter.lost(self.engine, item.finish.id)
            if item.execution is not None:
                done.append(item.execution)
                if applied is Applied.APPLIED:
                    if delay := item.finish.delay or until(item.execution, item.finish):
                        self._dispatcher.expect(delay)
                    self._reporter.finished(item.execution, item.finish)
        if any(execution.job.limited for execution in done):
            self._dispatcher.capacity_freed()
        self._freed(done)

    def _freed(self, executions: Sequence[Execution]) -> None:
        self.executions.remove(executions)
        self._dispatcher.freed([execution.lane for execution in executions])

    def _release(self, held: Held) -> None:
        for job in self.engine.get([held.id]):
            if job.claim_no == held.claim_no:
                self._finisher.put(None, released(job))

    def _got_stuck(self, execution: Execution) -> None:
        """A thread past its deadline. A supervisor replaces our process; embedded, it is reported."""
        self.draining = self._beats_elsewhere is not None
        if self.draining:
            self._dispatcher.pause()

    # stopping

    def stop(self, grace: float | None = None) -> bool:
        """Claim no more, let what runs end within the grace period, give the rest back. False: threads
        are left that did not return; their jobs stay ours until this process is gone."""
        if not self._started or self._stopped:
            return True
        self._stopped = True
        self.identity.end()
        deadline = time.monotonic() + (self.grace if grace is None else grace)
        self._dispatcher.pause()
        # A claim under way may bring jobs. They must have begun before we look whether any run: jobs
        # that begin later would run here and, given back, elsewhere too.
        settled = self._dispatcher.settle(deadline - time.monotonic())
        self.executions.wait_for_none(deadline)
        if left := self.executions():
            logger.warning("%d jobs did not end within the grace period: given back", len(left))
            for execution in left:
                execution.stop(Stop.SHUTDOWN)
            self.executions.wait_for_none(time.monotonic() + _LAST_WORDS)
        self._starting.join(0.5)  # an id that it takes now must be given back
        return self._farewell(settled)

    def _farewell(self, settled: bool) -> bool:
        self._left = True
        for part in (*self._parts, self._pruner):
            part.close(0.5)
        written = self._finisher.close(0.5)
        self._processes.close()
        self._heartbeats.close(0.5)
        self._log_writer.close(0.5)
        written = written and (settled or self._dispatcher.settle(0.0))
        clean = written and not self.executions  # asked last: most late runs have ended
        try:
            if self.id is not None:
                self.engine.leave(self.id)
                if clean:
                    self.engine.sweep([Seen(self.id, None)], limit=1000)
            self._rollups.close()
        except HoldfastError as problem:
            logger.warning("the worker could not take its leave: %s", problem)
        self._threads.close(0.1)
        if self._own_loop is not None:
            self._own_loop.close(0.5)
        logger.info("worker %s stopped", self.id)
        return clean

    def join(self, timeout: float | None = None) -> bool:
        """Wait until no job of its queues is pending or waits for a limit, and it runs none. Return
        False if that takes longer. Does not wait for jobs that are scheduled or will be retried."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while deadline is None or time.monotonic() < deadline:
            begun = self.executions.begun
            # A run that ended may have enqueued jobs: none may have begun since we looked.
            if not self.executions and self._has_nothing() and begun == self.executions.begun:
                return True
            time.sleep(0.02)
        return False

    def _has_nothing(self) -> bool:
        served = {lane.queue for lane in self._lanes}
        is_busy = partial(limit_scripts.is_busy, served, self.id or "")
        return self.id is not None and not self.engine.run(is_busy, write=False)

    @property
    def cannot_write_for(self) -> float:
        """Seconds since which ends of runs could not be written; 0.0: they can."""
        return self._finisher.failing_for

    def pids(self) -> list[int]:
        """The process groups of handlers with a process of their own."""
        return self._processes.pids()

    # as a context

    def __enter__(self) -> "Worker":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> "Worker":
        self.start(asyncio.get_running_loop())
        return self

    async def __aexit__(self, *_: object) -> None:
        # In a thread: our handlers need this loop to end.
        stopping = threading.Thread(target=self.stop, name="holdfast-stop", daemon=True)
        stopping.start()
        while stopping.is_alive():
            await asyncio.sleep(0.01)
