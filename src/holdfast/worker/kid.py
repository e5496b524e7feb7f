"""The process of `process=True` handlers: runs one job after the other, as its worker says.

SIGTERM raises in the handler, so that its `finally` blocks run. When the worker is gone, this process
and all that it has started end at once.
"""

import importlib
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from holdfast.app import Holdfast
from holdfast.errors import HoldfastError
from holdfast.outcome import Ended, Finish, Raised, Returned, judge
from holdfast.task import Task
from holdfast.worker.execution import Execution
from holdfast.worker.processes import find_task
from holdfast.worker.runner import run_here
from holdfast.worker.slots import Lane
from holdfast.worker.wire import Wire, pack_ended, unpack_job


class Terminated(BaseException):
    """The run shall end."""


class RemoteExecution(Execution):
    """A run whose worker is another process: progress and lines of its log go there."""

    __slots__ = ("_wire",)

    def tell(self, wire: Wire) -> None:
        self._wire = wire

    def progress(self, percent: float, message: str | None) -> None:
        self._wire.send({"progress": [percent, message]})

    def log(self, level: str, text: str) -> None:
        self._wire.send({"log": [level, text]})

    def wrote(self, finish: Finish) -> None:
        self._wire.send(
            {"wrote": pack_ended(Returned(finish.result, finish.enqueue, self.context.next_at))}
        )


class Kid:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._jobs: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._current: Execution | None = None

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._terminate)
        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            message = self._jobs.get()
            with suppress(Terminated):
                self._perform(message)

    def _listen(self) -> None:
        for message in self._wire:
            self._jobs.put(message)
        # The worker is gone. Only we lead our group, so this reaches what the handler started.
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)
        os._exit(1)

    def _terminate(self, number: int, frame: object) -> None:
        execution = self._current
        if execution is not None and not execution.ended:
            execution.context.stop()
            execution.context.saw_stop = True
            raise Terminated("SIGTERM")

    def _perform(self, message: dict[str, Any]) -> None:
        try:
            task, app = _load(message["module"], message["task"])
        except BaseException as problem:
            text = f"{type(problem).__name__}: {problem}"
            self._answer(Raised(f"its process cannot run it: {text}", None))
            return
        job = unpack_job(message["job"])
        execution = RemoteExecution(
            job, task, Lane(job.queue, ["process"], 1), app.runner, app.settings.workdir
        )
        execution.tell(self._wire)
        self._current = execution
        ended: Ended
        try:
            _, ended = run_here(execution, app.middleware)
        except Terminated as error:
            ended = judge(error, task.policy)
        execution.ended = True
        self._current = None
        if execution.has_context:
            execution.context.clean()
        self._answer(ended, saw_stop=execution.has_context and execution.context.saw_stop)

    def _answer(self, ended: Ended, *, saw_stop: bool = False) -> None:
        self._wire.send({**pack_ended(ended), "saw_stop": saw_stop})


def _load(module: str, name: str) -> tuple[Task[Any, Any], Holdfast]:
    task = find_task(importlib.import_module(module), name)
    if task is None or not isinstance(task.host, Holdfast):
        raise HoldfastError(f"module {module!r} has no task {name!r}")
    return task, task.host


def main() -> None:
    sys.path.insert(0, str(Path.cwd()))
    connection = socket.socket(fileno=int(sys.argv[1]))
    Kid(Wire(connection)).run()


if __name__ == "__main__":
    main()
