"""The worker: claims jobs and runs them, as a process of its own or inside an application.

It wires the threads together. The dispatcher's thread claims jobs and hands them to runners; a runner's
thread (or event loop, or process) runs the handler, and `outcome.decide` says what follows; the
finisher's thread writes it. Other threads send heartbeats, enforce deadlines and look at claims.
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
from holdfast.worker.housekeeping.services import Housekeeping
from holdfast.worker.housekeeping.sync_declarations import declare
from holdfast.worker.housekeeping.worker_info import worker_info
from holdfast.worker.liveness.claim_watch import ClaimWatch
from holdfast.worker.liveness.dead_workers import BEATS_MISSED
from holdfast.worker.liveness.heartbeat import Heartbeat, Member
from holdfast.worker.liveness.identity import WorkerIdentity
from holdfast.worker.liveness.self_fencing import SelfFencing
from holdfast.worker.processes.isolation import make_isolation
from holdfast.worker.processes.pool import ProcessRunner
from holdfast.worker.processes.run_table import RunTable
from holdfast.worker.processes.stacks import store_stacks
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
from holdfast.worker.ticker import Ticker

if TYPE_CHECKING:
    from holdfast.app import Holdfast

logger = logging.getLogger("holdfast.worker")

_MARGIN = 0.6  # heartbeats before other workers may declare us dead, at which we stop our runs
_CLEANUP = 0.5  # seconds for runs that were stopped at the end of the grace period


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
        registered: "Callable[[Worker], object] | None" = None,
        runs: RunTable | None = None,
    ) -> None:
        """`queues`: "default=10,media=2", a list, or a mapping to sizes. `concurrency`: for queues
        without a size. `grace`: how long a stop waits for runs. (The other parameters are set under a
        supervisor: the level of the jobs to run, a function that is called with each new id and has
        heartbeats sent for it, and the table of begun runs.)"""
        self.app = app
        self.engine = app.engine
        self.grace = seconds(grace, what="grace")
        self.counts: Counter[str] = Counter()  #: what maintenance did so far
        self.draining = False
        self.unreadable = UnreadablePayloads()
        self.lanes = make_lanes(queues, concurrency)
        self.isolation = make_isolation(app, level)
        self.executions = Executions()
        self.identity = WorkerIdentity(self.engine, self.info, self._registered, self._died)
        self.supervised = registered is not None
        self._on_registered = registered
        self._settings = app.settings
        self._runs = runs
        self._known_tasks = -1
        self._own_loop: LoopThread | None = None
        self._started = self._stopped = self._left = False
        self._starting = threading.Thread(target=self._begin, name="holdfast-start", daemon=True)
        self._threads = Threads("holdfast-job")

    @property
    def id(self) -> str | None:
        """host-pid-random; None until the database was reached, and while it takes a new one."""
        return self.identity.id

    # starting

    def start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Begin, in threads; `async def` handlers run on the given loop, else on one of our own. If the
        database is unavailable, the worker waits for it in the background."""
        if self._started:
            raise HoldfastError("this worker was started before: make a new one")
        ProcessRunner.check(self.app)
        self._started = True
        if loop is None:
            self._own_loop = LoopThread()
            self._own_loop.start()
            loop = self._own_loop.loop
        self._threads.start()
        self._assemble(loop)
        for part in (self._finisher, *self._parts):
            part.start()
        self._starting.start()

    def _assemble(self, loop: asyncio.AbstractEventLoop) -> None:
        app, engine, heartbeat = self.app, self.engine, self._settings.heartbeat
        self._rollups, self._log_writer = RollupWriter(engine), LogWriter(engine)
        self._reporter = EventReporter(app.listeners, self.counts, self._rollups, self.unreadable)
        self._finisher = Finisher(engine, self._written)
        self._dispatcher = Dispatcher(
            engine,
            self.lanes,
            worker=lambda: self.id,
            begin=self._run,
            poll=self._settings.poll_interval,
            update=self._update,
            may_claim=lambda: not self._finisher.is_stalled,
            isolation=self.isolation,
        )
        deadlines = self._deadlines = DeadlineEnforcer(
            self.executions,
            SelfFencing(engine, heartbeat, self.identity),
            limit=(BEATS_MISSED - _MARGIN) * heartbeat,
            stuck=self._got_stuck,
        )
        claim_watch = ClaimWatch(
            engine,
            self.executions,
            worker=lambda: self.id,
            release=self._release,
            progressed=self._reporter.progressed,
        )
        self._heartbeats = Heartbeat(engine, heartbeat, swept=self._reporter.swept)
        house = Housekeeping(engine, workdir=self._settings.workdir, counts=self.counts)
        clock = ClockWatch(engine, self._dispatcher.clock_was_set)
        ticks = {**house.ticks(), "figures": self._rollups.tick, "clock": clock.tick}
        self._services = Ticker("services", ticks)
        self._parts = self._dispatcher, deadlines, claim_watch, self._services
        self._pruner = Pruner(app, lambda: loop, self._threads, self._reporter.pruned)
        self._hooks = Hooks(app.runner, lambda: loop, self._threads, self._finisher.put)
        self._processes = ProcessRunner(self._ended, self._threads)
        self._runners: dict[Kind, JobRunner] = {
            "async": AsyncRunner(loop, self._ended, app.middleware),
            "thread": ThreadRunner(self._ended, app.middleware, self._threads),
            "process": self._processes,
        }

    def _begin(self) -> None:
        if self.identity.until_reached(self._register):
            self._pruner.start()  # not before it is known which jobs have hooks
            if not self.supervised:
                self._heartbeats.start()
            self._dispatcher.wake()

    def _register(self) -> None:
        """Take an id, declare what is in the code, and recover jobs of dead workers."""
        if self.id is None:
            self.identity.begin()
        declare(self.app)
        swept = self.engine.sweep([], limit=1000)
        pending = self.app.jobs.count(status="pending")
        shown = f"{pending}{'+' if pending >= 10_000 else ''}"
        recovered = len(swept.rescued)
        logger.info("worker %s started: %d recovered, %s pending", self.id, recovered, shown)
        self._reporter.swept(swept)

    def _registered(self, id: str) -> None:
        """Have heartbeats sent for a new id."""
        if self._on_registered is None:
            identity, stacks = self.identity, partial(store_stacks, self)
            self._heartbeats.add(
                Member(id, self.info, identity.confirmed, identity.declared_dead, stacks)
            )
        else:
            self._on_registered(self)
        self._dispatcher.wake()

    def _died(self) -> None:
        """Stop all runs: other workers may have their jobs by now."""
        logger.error("declared dead: %d runs are stopped", len(self.executions))
        for execution in self.executions():
            execution.stop(Stop.LOST)

    def info(self) -> str:
        """What the `workers` table shows, as JSON text."""
        return worker_info(self)

    # running

    def _update(self) -> None:
        if len(self.app.tasks) != self._known_tasks:
            self._known_tasks = len(self.app.tasks)
            for lane in self.lanes:
                lane.update(self.app.tasks)

    def _run(self, lane: Lane, jobs: Sequence[Job]) -> None:
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
        """Finish a run whose handler has ended; called from whatever ran it."""
        self._log_writer.end(execution)
        if execution.has_context:
            execution.context.clean()
        if ended is None:
            self._lost(execution)
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

    def _lost(self, execution: Execution) -> None:
        """Write nothing: its row was deleted, or is another worker's. Its limits may have capacity."""
        execution.leave()
        if execution.why is not Stop.GONE:
            logger.warning("job %s was lost while it ran: its result is dropped", execution.job.id)
        elif execution.job.limited:
            self._services.call_now("limits")
            self._dispatcher.capacity_freed()
        self._freed([execution])

    def _written(self, results: Sequence[tuple[Item, Applied]]) -> None:
        """Free the slots of runs whose finishes were committed, or lost."""
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
        """A thread is past its deadline: drain, if a supervisor replaces our process then."""
        self.draining = self.supervised
        if self.draining:
            self._dispatcher.pause()

    # stopping

    def stop(self, grace: float | None = None) -> bool:
        """Claim no more, let runs end within the grace period, give the rest back. False: some threads
        did not return; their jobs stay ours until this process ends."""
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
            self.executions.wait_for_none(time.monotonic() + _CLEANUP)
        self._starting.join(0.5)  # an id that it takes now must be given back
        return self._leave(settled)

    def _leave(self, settled: bool) -> bool:
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
            logger.warning("could not deregister the worker: %s", problem)
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
        served = {lane.queue for lane in self.lanes}
        is_busy = partial(limit_scripts.is_busy, served, self.id or "")
        return self.id is not None and not self.engine.run(is_busy, write=False)

    @property
    def cannot_write_for(self) -> float:
        """Seconds since which finishes could not be written; 0.0: they can."""
        return self._finisher.failing_for

    def pids(self) -> list[int]:
        """The process groups of handler processes."""
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
