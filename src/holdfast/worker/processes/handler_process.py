"""A process for `process=True` handlers: runs one job after the other, as its worker asks.

SIGTERM raises in the handler, so that its `finally` blocks run. When the worker is dead, this process
and all that it has started end at once.
"""

import asyncio
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
from holdfast.jobs.outcome import Ended, Finish, Raised, Returned, judge
from holdfast.tasks.task import Task
from holdfast.worker.processes.ipc import Channel, pack_ended, unpack_job
from holdfast.worker.processes.pool import CANNOT_ANSWER, find_task
from holdfast.worker.running.execution import Execution
from holdfast.worker.running.runners import run_here, run_on_loop
from holdfast.worker.running.slots import Lane


class Terminated(BaseException):
    """The worker asked the run to end."""


class OwnChannel(Channel):
    """Sends only while its descriptor is still the connection: a handler may close all descriptors, and
    open files or sockets that get the same numbers."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self._number = connection.fileno()
        self._file = _file_of(self._number)

    def send(self, message: dict[str, Any]) -> bool:
        return _file_of(self._number) == self._file and super().send(message)


def _file_of(number: int) -> tuple[int, int] | None:
    try:
        found = os.fstat(number)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class RemoteExecution(Execution):
    """A run whose worker is another process, to which its progress and log lines are sent."""

    __slots__ = ("channel",)

    channel: Channel

    def progress(self, percent: float, message: str | None) -> None:
        self.channel.send({"progress": [percent, message]})

    def log(self, level: str, text: str) -> None:
        self.channel.send({"log": [level, text]})

    def wrote(self, finish: Finish) -> None:
        returned = Returned(finish.result, finish.enqueue, self.context.next_at)
        self.channel.send({"wrote": pack_ended(returned)})


class HandlerProcess:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
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
        for message in self._channel:
            self._jobs.put(message)
        # The worker is dead. Only we lead our group, so this kills what the handler started.
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
        execution.channel = self._channel
        self._channel.send({"begun": True})
        self._current = execution
        ended: Ended
        try:
            _, ended = _run(execution, app)
        except Terminated as error:
            ended = judge(error, task.policy)
        execution.ended = True
        self._current = None
        if execution.has_context:
            execution.context.clean()
        self._answer(ended, saw_stop=execution.has_context and execution.context.saw_stop)

    def _answer(self, ended: Ended, *, saw_stop: bool = False) -> None:
        if not self._channel.send({**pack_ended(ended), "saw_stop": saw_stop}):
            # The worker waits for an answer that cannot be sent, and notices our exit. `_listen` does
            # not notice the loss: it reads from a connection that was closed under it.
            os._exit(CANNOT_ANSWER)


def _run(execution: Execution, app: Holdfast) -> tuple[Any, Ended]:
    """Run a handler. An `async def` handler, of a job with deaths on record, runs on a loop of its own
    (docs/decisions/0021)."""
    if execution.task.conduct.kind == "async":
        return asyncio.run(run_on_loop(execution, app.middleware))
    return run_here(execution, app.middleware)


def _load(module: str, name: str) -> tuple[Task[Any, Any], Holdfast]:
    task = find_task(importlib.import_module(module), name)
    if task is None or not isinstance(task.host, Holdfast):
        raise HoldfastError(f"module {module!r} has no task {name!r}")
    return task, task.host


def main() -> None:
    sys.path.insert(0, str(Path.cwd()))
    connection = socket.socket(fileno=int(sys.argv[1]))
    HandlerProcess(OwnChannel(connection)).run()


if __name__ == "__main__":
    main()
