"""The async face: one logic for both, written as steps.

A verb of the application is a generator of steps, each a script to run. `go` runs them here and now;
`ago` hands each to a small pool of threads of its own (the application may have filled the default
one), or awaits it on the caller's asynchronous transaction.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.engine.engine import Engine
from holdfast.engine.script import Script, adrive, drive
from holdfast.engine.transaction import Transaction

T = TypeVar("T")
THREADS = 32  # as many enqueues share a commit


@dataclass(frozen=True, slots=True)
class Step:
    script: Callable[[], Script[Any]]
    write: bool = True


Steps = Generator[Step, Any, T]


def read_step(script: Callable[[], Script[T]]) -> Steps[T]:
    """Steps that run one script, which only reads, and return its result."""
    answer: T = yield Step(script, write=False)
    return answer


def write_step(script: Callable[[], Script[T]]) -> Steps[T]:
    """Steps that run one script, which may write, and return its result."""
    answer: T = yield Step(script)
    return answer


class Runner:
    """Runs steps on an engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._pid = 0  # of the process that has its threads
        self._at_close: list[Callable[[], object]] = []

    def at_close(self, work: Callable[[], object]) -> None:
        """To be done before the engine is closed."""
        self._at_close.append(work)

    def go(self, steps: Steps[T], tx: Any = None) -> T:
        if tx is None:
            engine = self.engine
            return drive(steps, lambda step: engine.run(step.script, write=step.write))
        transaction = self.engine.adopt(tx)
        return drive(steps, lambda step: transaction.run(step.script()))

    async def ago(self, steps: Steps[T], tx: Any = None) -> T:
        if tx is None:
            return await self.hop(lambda: self.go(steps))
        # A synchronous transaction runs here: its thread matters.
        transaction = await self.adopt(tx)
        return await adrive(steps, lambda step: transaction.arun(step.script()))

    async def adopt(self, tx: Any) -> Transaction:
        await self.hop(self.engine.open)  # the first use may wait for the database
        return await self.engine.aadopt(tx)

    async def hop(self, work: Callable[[], T]) -> T:
        """Run something in a thread of ours."""
        with self._lock:
            if self._executor is None or self._pid != os.getpid():
                self._pid = os.getpid()
                self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="holdfast")
            executor = self._executor
        return await asyncio.get_running_loop().run_in_executor(executor, work)

    def close(self) -> None:
        for work in self._at_close:
            work()
        self.engine.close()
        if self._executor is not None and self._pid == os.getpid():
            self._executor.shutdown()
