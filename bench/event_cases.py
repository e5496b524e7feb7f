"""What events cost: a worker's drain while nobody follows, against one without any outbox; and while
somebody does."""

import threading
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from bench.cases import Case
from bench.measure import Pace, Row, Slice, at_least, compare
from bench.ours import Ours
from bench.store import Place
from holdfast import Holdfast, Task
from holdfast.engine.engine import Engine
from holdfast.jobs import claim as claim_scripts
from holdfast.jobs import commands
from holdfast.jobs import finish as finish_scripts
from holdfast.jobs import rescue as worker_scripts

JOBS = 5000


def of_events() -> list[Case[Place]]:
    return [Case("events-nobody", nobody), Case("events-somebody", somebody)]


def nobody(place: Place, pace: Pace) -> list[Row]:
    """A worker in this process, which never asks whether somebody follows, and one that does."""
    with place.ours() as store:
        app, task = noop(store)
        title = f"enqueue and drain {JOBS:,}, nobody follows, against no outbox"
        sides = drained(app, task, no_outbox=True), drained(app, task)
        return [compare(title, *sides, pace, at_least(0.97))]


def somebody(place: Place, pace: Pace) -> list[Row]:
    with place.ours() as store, place.ours() as followed:
        app, task = noop(store)
        other, its = noop(followed)
        title = f"enqueue and drain {JOBS:,}, one follows, against nobody"
        with following(other):
            return [compare(title, drained(app, task), drained(other, its), pace)]


def noop(store: Any) -> tuple[Holdfast, Task[..., Any]]:
    assert isinstance(store, Ours)

    @store.app.task(name="noop")
    async def noop() -> None: ...

    return store.app, noop


@contextmanager
def following(app: Holdfast) -> Iterator[None]:
    """In a thread of this process, as a web server would."""
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
    """Instead of telling."""
    yield from ()
