"""Runs `process=True` handlers in warm child processes, which are started by exec. Each has a process
group of its own, so that a timeout ends it with everything that it has started."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any

from holdfast.app import Holdfast
from holdfast.errors import InvalidInput
from holdfast.jobs.outcome import Died, Ended, Raised, Returned, decide
from holdfast.tasks.task import Task
from holdfast.worker.processes.exit_cause import how, oom_kills, own_making
from holdfast.worker.processes.ipc import pack_job, start_process, unpack_ended
from holdfast.worker.running.execution import Execution
from holdfast.worker.running.hooks import python_value
from holdfast.worker.running.runners import Report, decided_early
from holdfast.worker.running.thread_pool import Threads

TERM_TO_KILL = 5.0  # seconds between the request to end and the end
_KILL_TO_LEAVE = 2.0  # seconds after that, until a process that cannot be killed is given up
_TRIES = 3  # processes that may die before the handler has begun
CANNOT_ANSWER = 78  # the exit code of a process whose handler closed its connection


def find_task(module: ModuleType, name: str) -> Task[Any, Any] | None:
    """Return the task that is registered under a name, if a module has it among its names."""
    for value in vars(module).values():
        if isinstance(value, Task) and value.name == name:
            return value
        if isinstance(value, Holdfast) and name in value.tasks:
            return value.tasks[name]
    return None


def is_importable(task: Task[Any, Any]) -> bool:
    """Return whether another process can find the task: at the top of a module that can be imported."""
    module = task.handler.__module__
    found = sys.modules.get(module)  # None where the code was pasted or run by exec
    return module != "__main__" and found is not None and find_task(found, task.name) is task


class ProcessRunner:
    def __init__(self, ended: Report, threads: Threads) -> None:
        self._ended = ended
        self._threads = threads
        self._lock = threading.Lock()
        self._idle: list[WarmProcess] = []
        self._all: set[WarmProcess] = set()
        self._closed = False

    @staticmethod
    def check(app: Holdfast) -> None:
        """Refuse tasks that a child process could not find."""
        for task in app.tasks.values():
            module = task.handler.__module__
            if task.conduct.kind == "process" and not is_importable(task):
                raise InvalidInput(
                    f"task {task.name!r} (process=True) cannot be found by another process: define "
                    f"it at the top of a module that can be imported; it is in {module!r}"
                )

    def start(self, executions: Sequence[Execution]) -> None:
        for execution in executions:
            self._threads.submit(partial(self._run, execution))

    def _run(self, execution: Execution) -> None:
        value: Any = None
        ended: Ended | None = decided_early(execution)
        if ended is None:
            execution.enter()
            try:
                ended = self._perform(execution)
            except Exception as problem:  # no more processes, files or memory
                name = type(problem).__name__
                ended = Raised(f"{name}: no process could run the handler: {problem}", None)
        execution.ended = True
        if isinstance(ended, Died):
            execution.clean()  # it could not do so itself
        if isinstance(ended, Died) and execution.why is not None:
            ended = Raised(ended.how, None)  # it died because we made it
        ended = execution.concluded(ended)
        if isinstance(ended, Returned):
            value = python_value(ended.result)
        self._ended(execution, ended, value)

    def _perform(self, execution: Execution) -> Ended:
        """Run the handler in a warm process. A process that was killed before the handler began is
        replaced, since the job did not cause that."""
        for _ in range(_TRIES):
            process = self._take()
            ended = process.perform(execution)
            self._give(process)
            stopping = execution.why is not None or self._closed
            if process.begun or not isinstance(ended, Died) or stopping:
                break
        return ended

    def _take(self) -> "WarmProcess":
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.lives():
                    return process
                self._all.discard(process)
                process.kill()
        process = WarmProcess()
        with self._lock:
            self._all.add(process)
        return process

    def _give(self, process: "WarmProcess") -> None:
        with self._lock:
            if process.sound and not self._closed:
                self._idle.append(process)
                return
            self._all.discard(process)
        process.kill()

    def pids(self) -> list[int]:
        with self._lock:
            return [process.pid for process in self._all]

    def close(self) -> None:
        with self._lock:
            self._closed = True
            processes = list(self._all)
        for process in processes:
            process.kill()


class WarmProcess:
    """A handler process, as its worker knows it."""

    def __init__(self) -> None:
        path = os.pathsep.join(path for path in sys.path if path)
        self._process, self._channel = start_process(
            "holdfast.worker.processes.handler_process",
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        self._asked_to_end_at = 0.0
        self._oom_kills: int | None = None  #: before the run
        self.pid = self._process.pid
        self.sound = True
        self.begun = False  #: the handler of its last job has begun

    def lives(self) -> bool:
        return self._process.poll() is None

    def perform(self, execution: Execution) -> Ended:
        """Run one job; blocks."""
        self._asked_to_end_at = 0.0
        self.begun = False
        self._oom_kills = oom_kills()
        execution.halt = self._end
        if execution.why is not None:
            self._end()
        task = execution.task
        module = task.handler.__module__
        self._channel.send({"module": module, "task": task.name, "job": pack_job(execution.job)})
        ended: Ended | None = None
        for message in self._channel.messages(self.lives):
            if "begun" in message:
                self.begun = True
            elif "progress" in message:
                execution.progress(*message["progress"])
            elif "log" in message:
                execution.log(*message["log"])
            elif "wrote" in message:
                execution.context.completion = decide(
                    execution.job, unpack_ended(message["wrote"]), task.policy, execution.now()
                )
            else:
                ended = unpack_ended(message)
                if message["saw_stop"]:
                    execution.context.saw_stop = True
                break
        execution.halt = None
        if ended is None or self._asked_to_end_at:
            self.sound = False  # it is dead, or may have left things behind
        return self._died() if ended is None else ended

    def _died(self) -> Died:
        # A process that we gave up on was killed before, and cannot die now: do not wait for it again.
        patience = _KILL_TO_LEAVE if self._channel.is_shut else TERM_TO_KILL
        try:
            code = self._process.wait(patience)
        except subprocess.TimeoutExpired:
            return Died("it closed its connection to the worker")
        if code == CANNOT_ANSWER:
            return Died(
                "it could not answer: the handler closed the connection to the worker, a file "
                "descriptor that it had not opened"
            )
        after = oom_kills()
        return Died(how(code, self._oom_kills, after), own_making(code, self._oom_kills, after))

    def _end(self) -> None:
        """Send SIGTERM to the process and all that it started, and when it takes too long, SIGKILL. A
        process that even the kernel cannot end now (it waits for a disk) is given up."""
        now = time.monotonic()
        self._asked_to_end_at = self._asked_to_end_at or now
        late = now - self._asked_to_end_at
        self._signal(signal.SIGKILL if late >= TERM_TO_KILL else signal.SIGTERM)
        if late >= TERM_TO_KILL + _KILL_TO_LEAVE:
            self._channel.shut()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """Kill the process at once, with all that it has started."""
        self.sound = False
        self._signal(signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(0.1 if self._channel.is_shut else 5.0)
        self._channel.close()
