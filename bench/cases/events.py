"""The cost of events: a worker's drain without followers, against one without an outbox, and with a
follower."""

import threading
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from bench.holdfast_store import HoldfastStore
from bench.job_store import Databases
from bench.measure import Case, Pace, Row, Slice, at_least, compare
from holdfast import Holdfast, Task
from holdfast.engine.engine import Engine
from holdfast.jobs import claim as claim_scripts
from holdfast.jobs import commands
from holdfast.jobs import finish as finish_scripts
from holdfast.jobs import rescue as worker_scripts

JOBS = 5000


def cases() -> list[Case[Databases]]:
    return [Case("events-unfollowed", unfollowed), Case("events-followed", followed)]


def unfollowed(databases: Databases, pace: Pace) -> list[Row]:
    """A worker in this process with an outbox and without followers, against one without an outbox."""
    with databases.holdfast() as store:
        app, task = noop(store)
        title = f"enqueue and drain {JOBS:,}, no follower, against no outbox"
        sides = drained(app, task, no_outbox=True), drained(app, task)
        return [compare(title, *sides, pace, at_least(0.97))]


def followed(databases: Databases, pace: Pace) -> list[Row]:
    with databases.holdfast() as store, databases.holdfast() as followed:
        app, task = noop(store)
        other, its = noop(followed)
        title = f"enqueue and drain {JOBS:,}, one follower, against none"
        with following(other):
            return [compare(title, drained(app, task), drained(other, its), pace)]


def noop(store: Any) -> tuple[Holdfast, Task[..., Any]]:
    assert isinstance(store, HoldfastStore)

    @store.app.task(name="noop")
    async def noop() -> None: ...

    return store.app, noop


@contextmanager
def following(app: Holdfast) -> Iterator[None]:
    """Follow all events in a thread of this process, as a web server does."""
    events = app.events(name="bench")
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            events._feed.take(0.1)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        events.close()


def drained(
    app: Holdfast, task: Task[..., Any], *, no_outbox: bool = False, jobs: int = JOBS
) -> Slice:
    def run(_: float) -> float:
        with ExitStack() as stack:
            if no_outbox:
                for module in (commands, claim_scripts, finish_scripts, worker_scripts):
                    stack.enter_context(patch.object(module, "emit", _silent))
                stack.enter_context(patch.object(finish_scripts, "_tell", _silent))
                stack.enter_context(patch.object(Engine, "is_followed", lambda *_, **__: False))
            app.queues.pause("default")
            begin = time.perf_counter()
            task.enqueue_many([{}] * jobs)
            enqueued = time.perf_counter() - begin
            worker = stack.enter_context(app.worker())
            while worker.id is None:
                time.sleep(0.001)
            begin = time.perf_counter()
            app.queues.resume("default")
            worker.join()
            return jobs / (enqueued + time.perf_counter() - begin)

    return run


def _silent(*_: object, **__: object) -> Generator[Any, Any, None]:
    """Replace `emit`: write no event."""
    yield from ()
