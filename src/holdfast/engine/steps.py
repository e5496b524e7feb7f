"""Steps: each method that an application calls is written once, and runs both synchronously and with
`await`.

Such a method is a generator of steps, each a script to run. `Runner.go` runs them in the calling
thread; `Runner.ago` runs each in a pool of threads of its own (the application may have filled the
default pool), or awaits it on the caller's asynchronous transaction. `run_steps` and `async_twin` make
the two public methods, `get` and `aget`, from the one that returns steps.
"""

import asyncio
import inspect
import os
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, get_args

from holdfast.engine.engine import Engine
from holdfast.engine.script import Script, adrive, drive
from holdfast.engine.transaction import Transaction

C = TypeVar("C", bound=Callable[..., Any])
P = ParamSpec("P")
S = TypeVar("S", bound="HasRunner")
T = TypeVar("T")
THREADS = 32  # so many enqueues can share a commit


@dataclass(frozen=True, slots=True)
class Step:
    script: Callable[[], Script[Any]]
    write: bool = True


Steps = Generator[Step, Any, T]


def read_step(script: Callable[[], Script[T]]) -> Steps[T]:
    """Return steps that run one script, which only reads, and return its result."""
    answer: T = yield Step(script, write=False)
    return answer


def write_step(script: Callable[[], Script[T]]) -> Steps[T]:
    """Return steps that run one script, which may write, and return its result."""
    answer: T = yield Step(script)
    return answer


class Runner:
    """Runs steps on an engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._pid = 0  # the process in which the pool's threads live
        self._at_close: list[Callable[[], object]] = []

    def at_close(self, work: Callable[[], object]) -> None:
        """Call `work` before the engine is closed."""
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
        # A synchronous transaction runs in this thread: drivers bind connections to their thread.
        transaction = await self.adopt(tx)
        return await adrive(steps, lambda step: transaction.arun(step.script()))

    async def adopt(self, tx: Any) -> Transaction:
        await self.hop(self.engine.open)  # the first use may wait for the database
        return await self.engine.aadopt(tx)

    async def hop(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread of the pool."""
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


class HasRunner(Protocol):
    """An object whose methods return steps."""

    _runner: Runner


def run_steps(
    method: Callable[Concatenate[S, P], Steps[T]],
) -> Callable[Concatenate[S, P], T]:
    """Decorate a method that returns steps: a call runs them and returns their result. If the method
    has a parameter `tx` and it is given, they run in that transaction of the caller."""

    @wraps(method)
    def run(self: S, /, *args: P.args, **options: P.kwargs) -> T:
        return self._runner.go(method(self, *args, **options), options.get("tx"))

    return _signed(run, method)


def async_twin(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Return the same method for `await`. `method`: one that `run_steps` has decorated."""
    steps: Callable[Concatenate[S, P], Steps[T]] = method.__wrapped__  # type: ignore[attr-defined]

    @wraps(steps)
    async def run(self: S, /, *args: P.args, **options: P.kwargs) -> T:
        return await self._runner.ago(steps(self, *args, **options), options.get("tx"))

    run.__name__ = f"a{steps.__name__}"
    return _signed(run, steps)


def _signed(run: C, method: Callable[..., Any]) -> C:
    """Let `help()` show the result of the steps, not the steps, and tracebacks the method's name."""
    run.__code__ = run.__code__.replace(co_name=run.__name__)
    signature = inspect.signature(method)
    *_, result = get_args(signature.return_annotation)
    run.__signature__ = signature.replace(return_annotation=result)  # type: ignore[attr-defined]
    return run
