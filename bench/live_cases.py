"""What live followers cost a worker, beside a web server with 1 and with 200 of them: the server in one
process and those who follow in another. Who follows everything sees jobs that are enqueued and drained;
who follows a job of their own, as the users of a product do, is there before it runs."""

import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count as numbers
from pathlib import Path

from bench.cases import Case
from bench.event_cases import drained, noop
from bench.live_parts import put
from bench.measure import Pace, Row, Slice, at_least, compare
from bench.ours import Ours
from bench.processes import Process, cpu_seconds, leashed
from bench.store import Place
from holdfast import Holdfast, Job

MANY = 200
JOBS = 1000  # in one go, beside those who follow everything
LONG = 20_000  # beside pages, which are told something every second
LEARNT = 2.5  # seconds after which every process knows what is followed
PATIENCE = 60.0


def of_live() -> list[Case[Place]]:
    return [Case("live-own", own), Case("live-pages", pages), Case("live-all", everything)]


def own(place: Place, pace: Pace) -> list[Row]:
    """They are there while a worker drains: nothing happens to their jobs, or these are among those."""
    title = f"drain {pace.backlog:,}, {MANY} live, each of its own job"
    with (
        beside_owners(place, pace.backlog, None) as nobody,
        beside_owners(place, pace.backlog, waiting) as still,
        beside_owners(place, pace.backlog, ending) as told,
    ):
        return [
            compare(f"{title}, which waits, against nobody", nobody, still, pace, at_least(0.95)),
            compare(f"{title}, which ends meanwhile, against nobody", nobody, told, pace),
        ]


def pages(place: Place, pace: Pace) -> list[Row]:
    """What the dashboard follows: a little of everything."""
    title = f"enqueue and drain {LONG:,}"
    with (
        beside(place, 0, "pages", LONG) as nobody,
        beside(place, 1, "pages", LONG) as one,
        beside(place, MANY, "pages", LONG) as many,
    ):
        return [
            compare(f"{title}, 1 open page, against nobody", nobody, one, pace),
            compare(
                f"{title}, {MANY} open pages, against nobody", nobody, many, pace, at_least(0.95)
            ),
        ]


def everything(place: Place, pace: Pace) -> list[Row]:
    title = f"enqueue and drain {JOBS:,}"
    with beside(place, 0) as nobody, beside(place, 1) as one, beside(place, MANY) as many:
        return [
            compare(f"{title}, 1 live follower of all, against nobody", nobody, one, pace),
            compare(f"{title}, {MANY} live, each of all, against 1", one, many, pace),
            compare(f"{title}, {MANY} live, each of all, against nobody", nobody, many, pace),
        ]


@contextmanager
def beside(place: Place, count: int, kind: str = "clients", jobs: int = JOBS) -> Iterator[Slice]:
    """Drains on a database of its own, beside a server that so many follow."""
    with place.ours() as store, ExitStack() as stack:
        assert isinstance(store, Ours)
        app, task = noop(store)
        drain = drained(app, task, jobs=jobs)
        if not count:
            yield drain
            return
        folder, server = stack.enter_context(serving(app))
        there = folder / "there"
        words = [(folder / "port").read_text(), str(count), str(there)]
        clients = stack.enter_context(part(folder, kind, *words))
        _wait(there)

        def run(seconds: float) -> float:
            rate = drain(seconds)
            _settle([server, clients])
            return rate

        yield run


Meet = Callable[[list[Job]], Callable[[], None]]  #: lets them come; what it gives waits for them


@contextmanager
def beside_owners(
    place: Place, backlog: int, kind: Callable[[Holdfast, Path], Meet] | None
) -> Iterator[Slice]:
    """The same, where each follows a job of its own."""
    with place.ours() as store, ExitStack() as stack:
        assert isinstance(store, Ours)
        app, task = noop(store)
        meet: Meet = no_more
        if kind is not None:
            folder, _ = stack.enter_context(serving(app))
            words = (folder / "port").read_text(), str(folder)
            stack.enter_context(part(folder, "owners", *words))
            meet = kind(app, folder)

        def run(_: float) -> float:
            app.queues.pause("default")
            with app.worker() as worker:
                told = meet(task.enqueue_many([{}] * backlog))
                time.sleep(LEARNT)
                begin = time.perf_counter()
                app.queues.resume("default")
                worker.join()
                rate = backlog / (time.perf_counter() - begin)
            told()
            return rate

        yield run


def no_more(jobs: list[Job]) -> Callable[[], None]:
    return lambda: None


def waiting(app: Holdfast, folder: Path) -> Meet:
    """They follow jobs that somebody else shall run."""
    come(folder, 0, [app.enqueue("elsewhere", {}, queue="elsewhere").id for _ in range(MANY)])
    return no_more


def ending(app: Holdfast, folder: Path) -> Meet:
    """They follow some of the jobs, and go when these have ended."""
    number = numbers()

    def meet(jobs: list[Job]) -> Callable[[], None]:
        now = next(number)
        come(folder, now, [job.id for job in random.sample(jobs, MANY)])
        return lambda: _wait(folder / f"told-{now}")

    return meet


def come(folder: Path, number: int, ids: list[str]) -> None:
    put(folder / f"ids-{number}", json.dumps(ids))
    _wait(folder / f"there-{number}")


@contextmanager
def serving(app: Holdfast) -> Iterator[tuple[Path, Process]]:
    app.migrate()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with part(folder, "server", app.url, str(folder / "port")) as server:
            _wait(folder / "port")
            yield folder, server


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
