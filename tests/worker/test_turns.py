"""Tasks whose keys take turns, run by real workers: every key with work starts in rotation, nothing
waits while its key and a slot are free, and `join` waits for jobs that are parked for a limit."""

import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from holdfast import Holdfast, Limit
from tests.conftest import Database
from tests.limits.test_fair_keys import unfair
from tests.support.waiting import PATIENCE, until
from tests.worker.conftest import quick
from tests.worker.fair_keys_worker import make

ROOT = Path(__file__).resolve().parents[2]
LONG = 120.0


def enqueue(app: Holdfast, task: str, waiting: dict[str, int]) -> None:
    for tenant, count in waiting.items():
        app.tasks[task].enqueue_many([{"tenant": tenant}] * count)


def starts_of(app: Holdfast) -> list[str]:
    """The tenants of the jobs that ran, in the order of their starts."""
    starts = [(job.started_at, job.limit_key) for job in app.jobs.search(status="completed")]
    return [str(key)[-1] for _, key in sorted(starts)]  # type: ignore[type-var]


def test_a_key_with_many_jobs_gets_its_turn(database: Database, tmp_path: Path) -> None:
    """One slot, 2,000 jobs of one tenant and 100 of two others."""
    app = quick(database, tmp_path)
    starts: list[str] = []

    @app.task(concurrency=Limit(1, per="tenant", fair=True))
    def work(tenant: str) -> None:
        starts.append(tenant)

    waiting = {"a": 2000, "b": 100, "c": 100}
    enqueue(app, "work", waiting)
    with app.worker(concurrency=1):
        until(lambda: len(starts) >= 302, "two turns after the others' last", patience=LONG)
        first = starts[:300]
    assert Counter(first) == {"a": 100, "b": 100, "c": 100}
    assert unfair(first, waiting) == []


def test_join_waits_for_jobs_that_wait_for_a_limit(database: Database, tmp_path: Path) -> None:
    app = quick(database, tmp_path)
    starts: list[str] = []

    @app.task(concurrency=Limit(1, per="tenant", fair=True))
    def work(tenant: str) -> None:
        starts.append(tenant)

    waiting = {"a": 300, "b": 5, "c": 5}
    enqueue(app, "work", waiting)
    with app.worker(concurrency=1) as worker:
        assert worker.join(LONG)
        assert Counter(starts) == waiting
        # By the repair of every 5 s: nothing was left to it, unless it came in the midst of an end.
        assert worker.counts["unparked"] <= 2
    assert unfair(starts, waiting) == []
    assert app.jobs.count(status="blocked") == 0


def test_join_waits_while_a_parked_job_is_the_only_one_left(
    database: Database, tmp_path: Path
) -> None:
    """Another worker runs the job that it waits for."""
    app = quick(database, tmp_path)
    begun, go = threading.Event(), threading.Event()

    @app.task(concurrency=Limit(1, per="tenant"))
    def work(tenant: str) -> None:
        begun.set()
        assert go.wait(PATIENCE)

    with app.worker() as other:
        work.enqueue("a")
        assert begun.wait(PATIENCE)
        second = work.enqueue("a")
        until(lambda: app.jobs.get(second.id).status == "blocked", "the second job to be parked")
        with app.worker() as worker:
            assert not worker.join(0.5)
            go.set()
            assert worker.join(PATIENCE)
            assert app.jobs.get(second.id).status in (
                "running",
                "completed",
            )  # by either of the two
        assert other.join(PATIENCE)
    assert app.jobs.get(second.id).status == "completed"


def test_join_does_not_wait_for_a_job_that_waits_for_another(
    database: Database, tmp_path: Path
) -> None:
    app = quick(database, tmp_path)

    @app.task
    def step(name: str) -> None: ...

    with app.workflow("steps") as flow:
        first = flow.add(step.using(delay="1h"), "first")
        flow.add(step.using(after=[first]), "second")
    with app.worker() as worker:
        assert worker.join(PATIENCE)
    assert app.jobs.count(status="blocked") == 1


@pytest.mark.parametrize("task", ["one", "paced", "beside"])
def test_keys_take_turns_across_two_processes(database: Database, task: str) -> None:
    app = database.app()
    make(app)
    waiting = {"a": 120, "b": 30, "c": 30, "d": 1}
    enqueue(app, task, waiting)
    command = [
        sys.executable,
        "-m",
        "tests.worker.fair_keys_worker",
        database.url,
        database.schema,
        "1",
    ]
    pipe = subprocess.PIPE
    workers = [
        subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) for _ in range(2)
    ]
    try:
        for one in workers:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        for one in workers:
            one.communicate("go\n", timeout=LONG)
        assert [one.returncode for one in workers] == [0, 0]
    finally:
        for one in workers:
            one.kill()
            one.wait()
    starts = starts_of(app)
    assert Counter(starts) == waiting
    if task == "one":  # a tenant whose job runs has no turn: on a busy machine, for a long time
        return
    so_far: Counter[str] = Counter()
    for tenant in starts:
        so_far[tenant] += 1
        behind = [other for other in "bc" if so_far[other] < waiting[other]]
        assert all(so_far["a"] - so_far[other] <= 6 for other in behind), "".join(starts)
