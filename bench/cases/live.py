"""The cost of live followers for a worker: 1 and 200 clients of a web server, which run in two other
processes. Clients of all events follow jobs that are enqueued and drained; clients of a single job, as
the users of a product, connect before it runs."""

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

from bench.cases.events import drained, noop
from bench.holdfast_store import HoldfastStore
from bench.job_store import Databases
from bench.live_processes import put
from bench.measure import Case, Pace, Row, Slice, at_least, compare
from bench.processes import Process, cpu_seconds, guarded
from holdfast import Holdfast, Job

MANY = 200
JOBS = 1000  # of a drain, beside clients of all events
LONG = 20_000  # of a drain beside pages, which receive events every second
FOLLOWERS_KNOWN = 2.5  # seconds after which every process has looked up the followers
TIMEOUT = 60.0


def cases() -> list[Case[Databases]]:
    return [Case("live-own-job", own), Case("live-pages", pages), Case("live-all", everything)]


def own(databases: Databases, pace: Pace) -> list[Row]:
    """Clients that each follow a waiting job, or one of the drained jobs."""
    title = f"drain {pace.backlog:,}, {MANY} live, each following its own job"
    with (
        drain_with_job_followers(databases, pace.backlog, None) as unfollowed,
        drain_with_job_followers(databases, pace.backlog, waiting) as still,
        drain_with_job_followers(databases, pace.backlog, ending) as ended,
    ):
        return [
            compare(f"{title}, which waits, against none", unfollowed, still, pace, at_least(0.95)),
            compare(f"{title}, which ends meanwhile, against none", unfollowed, ended, pace),
        ]


def pages(databases: Databases, pace: Pace) -> list[Row]:
    """Pages of the dashboard, which follow samples of all events."""
    title = f"enqueue and drain {LONG:,}"
    with (
        beside(databases, 0, "pages", LONG) as unfollowed,
        beside(databases, 1, "pages", LONG) as one,
        beside(databases, MANY, "pages", LONG) as many,
    ):
        return [
            compare(f"{title}, 1 open page, against none", unfollowed, one, pace),
            compare(
                f"{title}, {MANY} open pages, against none",
                unfollowed,
                many,
                pace,
                at_least(0.95),
            ),
        ]


def everything(databases: Databases, pace: Pace) -> list[Row]:
    title = f"enqueue and drain {JOBS:,}"
    with (
        beside(databases, 0) as unfollowed,
        beside(databases, 1) as one,
        beside(databases, MANY) as many,
    ):
        return [
            compare(f"{title}, 1 live follower of all events, against none", unfollowed, one, pace),
            compare(f"{title}, {MANY} live, each of all events, against 1", one, many, pace),
            compare(
                f"{title}, {MANY} live, each of all events, against none", unfollowed, many, pace
            ),
        ]


@contextmanager
def beside(
    databases: Databases, count: int, kind: str = "clients", jobs: int = JOBS
) -> Iterator[Slice]:
    """Drain on a database of its own, beside a server with that many clients."""
    with databases.holdfast() as store, ExitStack() as stack:
        assert isinstance(store, HoldfastStore)
        app, task = noop(store)
        drain = drained(app, task, jobs=jobs)
        if not count:
            yield drain
            return
        folder, server = stack.enter_context(serving(app))
        there = folder / "there"
        words = [(folder / "port").read_text(), str(count), str(there)]
        clients = stack.enter_context(process(folder, kind, *words))
        _wait(there)

        def run(seconds: float) -> float:
            rate = drain(seconds)
            _wait_until_idle([server, clients])
            return rate

        yield run


Connect = Callable[[list[Job]], Callable[[], None]]  #: connects clients, returns a wait


@contextmanager
def drain_with_job_followers(
    databases: Databases, backlog: int, kind: Callable[[Holdfast, Path], Connect] | None
) -> Iterator[Slice]:
    """Drain beside clients that each follow a job of their own."""
    with databases.holdfast() as store, ExitStack() as stack:
        assert isinstance(store, HoldfastStore)
        app, task = noop(store)
        connect: Connect = no_clients
        if kind is not None:
            folder, _ = stack.enter_context(serving(app))
            words = (folder / "port").read_text(), str(folder)
            stack.enter_context(process(folder, "owners", *words))
            connect = kind(app, folder)

        def run(_: float) -> float:
            app.queues.pause("default")
            with app.worker() as worker:
                wait = connect(task.enqueue_many([{}] * backlog))
                time.sleep(FOLLOWERS_KNOWN)
                begin = time.perf_counter()
                app.queues.resume("default")
                worker.join()
                rate = backlog / (time.perf_counter() - begin)
            wait()
            return rate

        yield run


def no_clients(jobs: list[Job]) -> Callable[[], None]:
    return lambda: None


def waiting(app: Holdfast, folder: Path) -> Connect:
    """Clients follow jobs that no worker runs."""
    jobs = [app.enqueue("elsewhere", {}, queue="elsewhere") for _ in range(MANY)]
    connect_clients(folder, 0, [job.id for job in jobs])
    return no_clients


def ending(app: Holdfast, folder: Path) -> Connect:
    """Clients follow some of the drained jobs, and disconnect when these have ended."""
    number = numbers()

    def connect(jobs: list[Job]) -> Callable[[], None]:
        now = next(number)
        connect_clients(folder, now, [job.id for job in random.sample(jobs, MANY)])
        return lambda: _wait(folder / f"ended-{now}")

    return connect


def connect_clients(folder: Path, number: int, ids: list[str]) -> None:
    put(folder / f"ids-{number}", json.dumps(ids))
    _wait(folder / f"there-{number}")


@contextmanager
def serving(app: Holdfast) -> Iterator[tuple[Path, Process]]:
    app.migrate()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with process(folder, "server", app.url, str(folder / "port")) as server:
            _wait(folder / "port")
            yield folder, server


@contextmanager
def process(folder: Path, *words: str) -> Iterator[Process]:
    command = [sys.executable, "-m", "bench.live_processes", *words]
    with guarded(command, dict(os.environ), folder / f"{words[0]}.log") as started:
        yield started


def _wait(ready: Path) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not ready.exists():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{ready.name} was not created: {_logs(ready.parent)}")
        time.sleep(0.05)


def _logs(folder: Path) -> str:
    return "\n".join(log.read_text()[-2000:] for log in folder.glob("*.log"))


def _wait_until_idle(processes: list[Process]) -> None:
    """Wait until all events are sent, so that they do not disturb the next measurement."""
    deadline = time.monotonic() + TIMEOUT
    used, before = 0.0, -1.0
    while used - before > 0.03 and time.monotonic() < deadline:
        before = used
        time.sleep(0.5)
        used = sum(cpu_seconds(process.pid) for process in processes)
