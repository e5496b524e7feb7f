"""One claimed job in this worker, from its claim until its finish is written."""

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.engine.steps import Runner
from holdfast.jobs.job import Claim, Job
from holdfast.jobs.outcome import Ended, Finish, GivenBack, Raised, Returned, Stopped, judge
from holdfast.tasks.context import Context, News
from holdfast.tasks.task import Kind, Task
from holdfast.worker.housekeeping.workdir import make_workdir, remove_workdir

if TYPE_CHECKING:
    from holdfast.worker.housekeeping.log_writer import LogWriter, Notes
    from holdfast.worker.processes.run_table import RunTable
    from holdfast.worker.running.slots import Lane

# Held while progress is read and written: an older one must not overtake the last one, which is
# written just before the finish.
REPORTING = threading.Lock()


class Stop(StrEnum):
    """Why a run is stopped before it has ended by itself."""

    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    LOST = "lost"  #: another worker may have the job by now
    GONE = "gone"  #: the job was deleted
    SILENT = "silent"  #: no heartbeat was written for so long that other workers may take the job
    SHUTDOWN = "shutdown"


def until(execution: "Execution", finish: Finish) -> float:
    """Seconds until a recurring job runs again."""
    now = execution.now()
    if finish.recur is None or now is None:
        return 0.0
    return max(0.001, (finish.recur.run_at - now).total_seconds())


class Execution:
    """The state of a run. The threads of a worker share it: each field has one thread that writes it,
    except `why`, whose first writer wins."""

    __slots__ = (
        "_context",
        "_place",
        "_root",
        "_runner",
        "begun",
        "claim",
        "deadline",
        "ended",
        "halt",
        "halted_at",
        "job",
        "lane",
        "log_writer",
        "news",
        "notes",
        "reported",
        "runs",
        "started",
        "stuck",
        "task",
        "where",
        "why",
    )

    def __init__(
        self, job: Job, task: Task[Any, Any], lane: "Lane", runner: Runner, root: Path
    ) -> None:
        self.job = job
        self.task = task
        self.lane = lane
        self.claim = Claim(job.id, job.claim_no)
        self.started = time.monotonic()
        timeout = task.conduct.timeout if job.timeout is None else job.timeout or None
        self.deadline = None if timeout is None else self.started + timeout
        self.why: Stop | None = None
        self.halt: Callable[[], None] | None = None  #: how its runner makes it stop
        self.halted_at = 0.0
        self.where: Any = None  #: its asyncio task, or its thread's number
        self.begun = False  #: the coroutine has been entered
        self.ended = False  #: the handler is done; its finish may not be written yet
        self.stuck = False
        self.news: News | None = None  #: its latest progress
        self.reported: News | None = None  #: the progress that was written last: the same object
        self.log_writer: LogWriter | None = None  #: writes its lines
        self.notes: Notes | None = None  #: how much it has logged
        self.runs: RunTable | None = None  #: the page shared with a supervisor
        self._place = -1  # in that page
        self._runner = runner
        self._root = root
        self._context: Context | None = None

    def enter(self) -> None:
        """Publish that user code begins: the decoding of its arguments, then the handler."""
        if self.runs is not None:
            self._place = self.runs.begin(self.claim, self.started, self.deadline)

    def enter_hook(self) -> None:
        """Publish that a hook begins, which has no deadline; its handler has ended or will not run."""
        if self.runs is not None and self._place < 0:
            self._place = self.runs.begin(self.claim, self.started, None)
        elif self.runs is not None:
            self.runs.forget_deadline(self._place)

    def leave(self) -> None:
        """Publish that no user code of this run goes on."""
        if self.runs is not None:
            self.runs.end(self._place)
            self._place = -1

    def now(self) -> datetime | None:
        """By the database's clock, as far as this machine can tell."""
        begun, clock = self.job.started_at, self._runner.engine.clock
        if clock.rules_the_database:
            return clock.now()
        if begun is None:
            return None
        return begun + timedelta(seconds=time.monotonic() - self.started)

    @property
    def context(self) -> Context:
        """Made when it is asked for: most handlers take none."""
        if self._context is None:
            self._context = Context(self.job, self.task, self, self._runner)
            if self.why is not None:
                self._context.stop()
        return self._context

    @property
    def has_context(self) -> bool:
        return self._context is not None

    @property
    def kind(self) -> Kind:
        """How it runs: as its task says, or in a process of its own after deaths of its process."""
        return "process" if self.lane.apart else self.task.conduct.kind

    @property
    def completed(self) -> bool:
        """Its completion was written on a transaction of the handler's; maybe not committed."""
        return self._context is not None and self._context.completion is not None

    def progress(self, percent: float, message: str | None) -> None:
        self.news = (percent, message)

    def log(self, level: str, text: str) -> None:
        if self.log_writer is not None:
            self.log_writer.add(self, level, text)

    def wrote(self, finish: Finish) -> None:
        """Note a completion in the handler's own transaction: here the context has it already."""

    def workdir(self) -> Path:
        return make_workdir(self._root, self.claim)

    def clean(self) -> None:
        """Remove its folder, also one that another process made."""
        remove_workdir(self._root, self.claim)

    def stop(self, why: Stop) -> None:
        """Stop the run. The first reason stays."""
        if self.why is None:
            self.why = why
        if self._context is not None:
            self._context.stop()
        self.halted_at = self.halted_at or time.monotonic()
        if self.halt is not None and not self.ended:
            self.halt()

    def timed_out(self) -> Raised:
        seconds = (self.deadline or self.started) - self.started
        error = judge(TimeoutError(f"timed out after {seconds:g} s"), self.task.policy)
        assert isinstance(error, Raised)  # noqa: S101 - a TimeoutError never snoozes
        return error._replace(trace=None)

    def concluded(self, ended: Ended) -> Ended | None:
        """How it ended, given why it was stopped. None: its finish is not to be written."""
        if self.why is None:
            return ended
        match self.why:
            case Stop.LOST | Stop.GONE:
                return None
            case Stop.TIMEOUT:
                return self.timed_out()
            case Stop.CANCELLED:
                return ended if self._did_its_work(ended) else Stopped()
            case Stop.SILENT | Stop.SHUTDOWN:
                return ended if self._did_its_work(ended) else GivenBack()

    def _did_its_work(self, ended: Ended) -> bool:
        """Whether it completed. A handler that saw the request to stop, and returned, gave up: what it
        returned is no result."""
        saw = self._context is not None and self._context.saw_stop
        return isinstance(ended, Returned) and not saw
