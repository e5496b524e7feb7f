"""What live followers cost a worker: enqueue and drain beside a web server with 1 and with 200 of them,
the server in one process and those who follow in another. Jobs that do nothing show what an event
costs, jobs that compute what their owner loses."""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.cases import Case
from bench.event_cases import drained, noop
from bench.measure import Pace, Row, Slice, at_least, compare
from bench.ours import Ours
from bench.processes import Process, cpu_seconds, leashed
from bench.store import Place
from holdfast import Holdfast, Task

MANY = 200
JOBS = 1000
WORK, WORKING = 0.005, 200  # seconds of a core that a job takes; such jobs in one go
PATIENCE = 60.0


def of_live() -> list[Case[Place]]:
    return [Case("live", live)]


def live(place: Place, pace: Pace) -> list[Row]:
    title = f"enqueue and drain {JOBS:,}"
    with ExitStack() as stack:

        def side(count: int, filter: str = "all", work: float = 0.0) -> Slice:
            return stack.enter_context(beside(place, count, filter, work))

        nobody, one, own, every = side(0), side(1), side(MANY, "one"), side(MANY)
        quiet, watched = side(0, work=WORK), side(MANY, "one", work=WORK)
        working = f"enqueue and drain {WORKING} that compute {WORK * 1000:g} ms"
        return [
            compare(f"{title}, 1 live follower, against nobody", nobody, one, pace),
            compare(
                f"{title}, {MANY} live, each of a job, against nobody",
                *(nobody, own, pace, at_least(0.95)),
            ),
            compare(f"{title}, {MANY} live, each of a job, against 1", one, own, pace),
            compare(f"{title}, {MANY} live, each of all, against 1", one, every, pace),
            compare(f"{title}, {MANY} live, each of all, against nobody", nobody, every, pace),
            compare(f"{working}, {MANY} live, against nobody", quiet, watched, pace),
        ]


@contextmanager
def beside(place: Place, count: int, filter: str, work: float) -> Iterator[Slice]:
    """Drains on a database of its own, beside a server that so many follow."""
    with place.ours() as store, ExitStack() as stack:
        assert isinstance(store, Ours)
        app, task = computing(store, work) if work else noop(store)
        drain = drained(app, task, jobs=WORKING if work else JOBS)
        if not count:
            yield drain
            return
        app.migrate()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port, there = folder / "port", folder / "there"
        server = stack.enter_context(part(folder, "server", app.url, str(port)))
        _wait(port)
        words = [port.read_text(), str(count), filter, str(there)]
        clients = stack.enter_context(part(folder, "clients", *words))
        _wait(there)

        def run(seconds: float) -> float:
            rate = drain(seconds)
            _settle([server, clients])
            return rate

        yield run


def computing(store: Ours, seconds: float) -> tuple[Holdfast, Task[..., Any]]:
    """A job that does something, as those of people do."""

    @store.app.task(name="computing")
    async def computing() -> None:
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass

    return store.app, computing


@contextmanager
def part(folder: Path, *words: str) -> Iterator[Process]:
    command = [sys.executable, "-m", "bench.live_parts", *words]
    with leashed(command, dict(os.environ), folder / f"{words[0]}.log") as process:
        yield process


def _wait(ready: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not ready.exists():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{ready.name} did not come: {_said(ready.parent)}")
        time.sleep(0.05)


def _said(folder: Path) -> str:
    return "\n".join(log.read_text()[-2000:] for log in folder.glob("*.log"))


def _settle(processes: list[Process]) -> None:
    """Until all was told, so that it does not disturb whoever is measured next."""
    deadline = time.monotonic() + PATIENCE
    used, before = 0.0, -1.0
    while used - before > 0.03 and time.monotonic() < deadline:
        before = used
        time.sleep(0.5)
        used = sum(cpu_seconds(process.pid) for process in processes)
