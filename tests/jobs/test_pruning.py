"""Pruning of finished jobs: ages by status and task, hooks that come first, leases, the archive. By a
fake clock, on both engines."""

import asyncio
import gzip
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, InvalidInput, Job
from holdfast.core.clock import FakeClock
from holdfast.core.ids import new_id
from holdfast.engine.records import Retention
from holdfast.jobs import pruning as pruning_scripts
from holdfast.jobs.job import FINISHED, Claim
from holdfast.testing import drain
from holdfast.worker.housekeeping import archive, pruning
from holdfast.worker.housekeeping.pruning import Pruner, Work, pruner_of
from holdfast.worker.housekeeping.services import Housekeeping
from holdfast.worker.housekeeping.sync_declarations import declare
from holdfast.worker.housekeeping.workdir import make_workdir
from holdfast.worker.running.thread_pool import Threads
from tests.conftest import Database
from tests.support.jobs import execute
from tests.support.waiting import until

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
Make = Callable[..., Holdfast]


@pytest.fixture
def make(database: Database, clock: FakeClock, tmp_path: Path) -> Make:
    return lambda **options: database.app(clock=clock, workdir=tmp_path / "work", **options)


def rounds(pruner: Pruner, **wanted: Any) -> Work:
    """A whole round."""
    total = pruner.look(pruner.wanted(everywhere=True, **wanted))
    while total.more:
        total += pruner.look(pruner.wanted(everywhere=True, **wanted))
    return total


class Store:
    """Blobs, in a service that may be down."""

    def __init__(self, app: Holdfast) -> None:
        self.app = app
        self.blobs = {"good", "bad", "worse"}
        self.down: set[str] = set()
        self.asked: list[str] = []

    def delete(self, job: Job) -> None:
        """The `on_prune` of the seed: the source of what failed goes before its row."""
        assert self.app.jobs.get(job.id).status == job.status  # the row is still there
        name = job.payload["source"]
        self.asked.append(name)
        if job.status != "failed":
            return
        if name in self.down:
            raise ConnectionError("blob storage: 503")
        self.blobs.discard(name)


def test_the_life_cycle_of_transcoding_jobs(make: Make, clock: FakeClock, tmp_path: Path) -> None:
    """Row B: kept, then pruned: completed after 7 days, failed after 30, the source blob first; a
    delete that fails keeps the row, and is tried again; orphaned folders go after 6 hours."""
    app = make()
    store = Store(app)

    @app.task(max_attempts=1, on_prune=store.delete)
    def transcode(source: str) -> None:
        if source != "good":
            raise ValueError("no video stream")

    @app.task(every="1h")
    def recurs() -> None: ...

    declare(app)
    good, bad, worse = (transcode.enqueue(name) for name in ("good", "bad", "worse"))
    drain(app, raise_errors=False)
    with pruner_of(app) as pruner:
        clock.advance(7 * DAY - MINUTE)
        assert rounds(pruner) == Work()
        clock.advance(2 * MINUTE)
        assert rounds(pruner) == Work(1)
        assert {job.id for job in app.jobs.search(type="transcode")} == {bad.id, worse.id}
        assert store.blobs == {"good", "bad", "worse"}
        clock.advance(23 * DAY)
        store.down.add("bad")
        store.asked.clear()
        assert rounds(pruner) == Work(1, 1)
        assert store.blobs == {"good", "bad"}
        kept = app.jobs.get(bad.id)
        assert (kept.status, kept.error) == ("failed", "ValueError: no video stream")
        assert kept.prune_error == "ConnectionError: blob storage: 503"
        for wait in (1, 2, 4, 8):
            asked = len(store.asked)
            clock.advance(wait * MINUTE - 1)
            assert rounds(pruner) == Work()
            clock.advance(2)
            assert rounds(pruner) == Work(0, 1)
            assert store.asked[asked:] == ["bad"]
        store.down.clear()
        clock.advance(16 * MINUTE)
        assert rounds(pruner) == Work(1)
    assert store.blobs == {"good"}
    assert [job.type for job in app.jobs.search()] == ["recurs"]
    counts: Counter[str] = Counter()
    root = app.settings.workdir
    old, young = make_workdir(root, Claim(good.id, 1)), make_workdir(root, Claim(new_id(), 1))
    for path, age in ((old, 6.1), (young, 5.9)):
        os.utime(path, (time.time() - age * HOUR,) * 2)
    Housekeeping(app.engine, workdir=root, counts=counts).sweep_folders()
    assert (old.exists(), young.exists()) == (False, True)


def test_retention_by_status_task_and_application(make: Make, clock: FakeClock) -> None:
    app = make(retention={"completed": "1h", "cancelled": "2h"})

    @app.task(retention={"completed": "3h"})
    def keeps() -> None: ...

    @app.task
    def plain() -> None: ...

    keeps.enqueue()
    plain.enqueue()
    drain(app)
    app.jobs.cancel(plain.using(delay=60).enqueue().id)
    wanted = None
    with pruner_of(app) as pruner:
        wanted = pruner.wanted()
        gone = []
        for _ in range(4):
            gone.append(rounds(pruner).gone)
            clock.advance(HOUR + 1)
    assert gone == [0, 1, 1, 1]
    ages = {"completed": HOUR, "cancelled": 2 * HOUR, "failed": 30 * DAY}
    assert wanted.keep == ages  # what is younger than that is not even looked at


def test_a_worker_without_the_hook_does_not_prune_its_jobs(make: Make, clock: FakeClock) -> None:
    app, other = make(), make()
    called: list[str] = []

    @app.task(on_prune=lambda job: called.append(job.id), retention={"completed": 0})
    def hooked() -> None: ...

    @app.task(retention={"completed": 0})
    def plain() -> None: ...

    for _ in range(2):
        hooked.enqueue()
        plain.enqueue()
    declare(app)
    drain(app)
    clock.advance(1)
    app.engine.maintenance.declare_hooks(
        [], ["hooked"]
    )  # as if it were registered after the worker started
    Pruner(app, asyncio.new_event_loop, Threads("holdfast-hook")).wanted()
    with pruner_of(other) as stranger:
        assert stranger.count(stranger.wanted(everywhere=True)) == (
            {"cancelled": 0, "completed": 4, "failed": 0},
            2,
        )
        assert rounds(stranger) == Work(2)
        assert rounds(stranger, older_than=0.0) == Work()
    with pruner_of(app) as pruner:
        assert rounds(pruner) == Work(2)
    assert len(called) == 2


def test_a_hook_that_no_live_worker_has_is_forgotten(make: Make) -> None:
    app, newer = make(), make()
    app.task(name="t", on_prune=print)(lambda: None)
    newer.task(name="t")(lambda: None)
    declare(app)
    app.engine.beat("w", json.dumps({"tasks": ["t"], "hooks": ["t"]}))
    declare(newer)
    assert newer.engine.run(pruning_scripts.hooks, write=False) == ["t"]
    execute(app.engine, "UPDATE {workers} SET died_at = beat_at")
    declare(newer)
    assert newer.engine.run(pruning_scripts.hooks, write=False) == []


@pytest.mark.parametrize("runs_again", [False, True])
def test_sync_and_async_hooks_run_once_and_delay_no_other(
    make: Make, clock: FakeClock, runs_again: bool
) -> None:
    """A pruner that comes while a hook runs finds its job leased; a retry meanwhile saves the row."""
    app, other = make(retention={"completed": 0}), make(retention={"completed": 0})
    inside, go_on = threading.Event(), threading.Event()
    calls: Counter[int] = Counter()

    def slow(job: Job) -> None:
        calls[job.payload["n"]] += 1
        if job.payload["n"] == 1:
            inside.set()
            assert go_on.wait(20)

    async def aprune(job: Job) -> None:
        await asyncio.sleep(0)
        calls[job.payload["n"]] += 1
        if job.payload["n"] == 3:
            raise SystemExit("no")

    for one in (app, other):  # two processes with the same code
        one.task(name="thread", on_prune=slow)(lambda n: None)
        one.task(name="coroutine", on_prune=aprune)(lambda n: None)
    first = app.enqueue("thread", {"n": 1})
    for n in range(2, 4):
        app.enqueue("coroutine", {"n": n})
    drain(app)
    clock.advance(1)
    with pruner_of(app) as mine, pruner_of(other) as theirs:
        totals: list[Work] = []
        working = threading.Thread(target=lambda: totals.append(rounds(mine)))
        working.start()
        assert inside.wait(20)
        assert rounds(theirs) == Work()
        app.jobs.retry(first.id)
        if runs_again:
            drain(other)
        go_on.set()
        working.join(20)
        assert totals == [Work(1, 1)]
    assert calls == {1: 1, 2: 1, 3: 1}
    assert app.jobs.get(first.id).status == ("completed" if runs_again else "pending")
    [kept] = app.jobs.search(type="coroutine")
    assert kept.prune_error == "RuntimeError: on_prune raised SystemExit('no')"


def test_a_hanging_hook_is_abandoned_and_not_called_concurrently(
    make: Make, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "TIMEOUT", 0.1)
    app = make(retention={"completed": 0})
    hang, calls = threading.Event(), []

    def hangs(job: Job) -> None:
        calls.append(job.id)
        hang.wait(20)

    async def sleeps(job: Job) -> None:
        await asyncio.sleep(60)

    app.task(name="hangs", on_prune=hangs)(lambda: None)
    app.task(name="sleeps", on_prune=sleeps)(lambda: None)
    jobs = [app.enqueue(name) for name in ("hangs", "sleeps")]
    drain(app)
    clock.advance(1)
    with pruner_of(app) as pruner:
        assert rounds(pruner) == Work(0, 2)
        assert "took more than 0.1 s" in str(app.jobs.get(jobs[0].id).prune_error)
        clock.advance(MINUTE + 1)
        assert rounds(pruner) == Work(0, 2)
        assert "has not returned yet" in str(app.jobs.get(jobs[0].id).prune_error)
        assert calls == [jobs[0].id]
        hang.set()
        until(lambda: not pruner._busy)
        clock.advance(2 * MINUTE + 1)
        assert rounds(pruner) == Work(1, 1)
    assert len(calls) == 2


def test_the_lease_of_a_dead_pruner_passes_to_others(make: Make, clock: FakeClock) -> None:
    app = make(retention={"completed": 0})
    app.task(name="t", on_prune=lambda job: None)(lambda: None)
    app.enqueue("t")
    drain(app)
    clock.advance(1)
    with pruner_of(app) as pruner:
        wanted = pruner.wanted(everywhere=True)
        [lease] = app.engine.maintenance.prune(wanted, limit=10).leased  # and then it died
        assert rounds(pruner) == Work()
        assert rounds(pruner, older_than=0.0) == Work()
        clock.advance(301)
        assert rounds(pruner) == Work(1)
    assert app.engine.maintenance.prune_leased([lease]) == []


def test_jobs_of_a_workflow_stay_until_it_has_ended(make: Make, clock: FakeClock) -> None:
    """Who waits for them may want their results."""
    app = make(retention={"completed": 0})
    app.task(name="first")(lambda: 7)
    second = app.task(name="second")(lambda: None)
    with app.workflow() as flow:
        scan = flow.add(app.tasks["first"])
        flow.add(second.using(after=[scan], delay="1d"))
    drain(app)
    clock.advance(1)
    with pruner_of(app) as pruner:
        assert rounds(pruner) == Work()
        assert rounds(pruner, older_than=0.0) == Work()
        assert sum(pruner.count(pruner.wanted(everywhere=True))[0].values()) == 0
        clock.advance(2 * DAY)
        drain(app)
        clock.advance(1)
        assert sum(pruner.count(pruner.wanted(everywhere=True))[0].values()) == 2
        assert rounds(pruner) == Work(2)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in sorted(folder.glob("jobs-2030-*.jsonl.gz"))
        for line in gzip.open(path, "rt", encoding="utf-8")
    ]


def test_the_archive_has_every_pruned_job(
    make: Make, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "old" / "jobs"
    app = make(archive=folder, retention={"completed": 0, "failed": 0})
    refuse: list[str] = []

    def on_prune(job: Job) -> None:
        if job.id in refuse:
            raise ValueError("not yet")

    @app.task(max_attempts=1, on_prune=on_prune)
    def fails(name: str) -> None:
        raise ValueError(name)

    @app.task
    def works(name: str) -> dict[str, str]:
        return {"name": name}

    done, bad = works.using(entity=("movie", 7)).enqueue("jürgen"), fails.enqueue("no")
    drain(app, raise_errors=False)
    refuse.append(bad.id)
    clock.advance(1)
    with pruner_of(app) as pruner:
        monkeypatch.setattr(os, "fsync", _full)
        assert rounds(pruner) == Work(0, 2)  # the disk is full: nothing goes
        assert "No space left" in str(app.jobs.get(done.id).prune_error)
        assert lines(folder) == []
        monkeypatch.undo()
        clock.advance(MINUTE + 1)
        assert rounds(pruner) == Work(1, 1)
        assert [line["id"] for line in lines(folder)] == [done.id]
        refuse.clear()
        clock.advance(2 * MINUTE + 1)
        monkeypatch.setattr(
            app.engine.maintenance, "prune_leased", lambda leases: []
        )  # it dies before
        assert rounds(pruner) == Work()
        monkeypatch.undo()
        clock.advance(301)
        assert rounds(pruner) == Work(1)
    first, *rest = lines(folder)
    assert (first["result"], first["entity_id"], first["failures"]) == ({"name": "jürgen"}, 7, [])
    assert [line["id"] for line in rest] == [bad.id, bad.id]  # at least once
    assert rest[0]["failures"][0]["error"] == "ValueError: no"
    assert "Traceback" in rest[0]["failures"][0]["trace"]
    assert app.jobs.count() == 0
    assert [path.stat().st_mode & 0o777 for path in folder.iterdir()] == [0o600]


def _full(file: int) -> None:
    raise OSError(28, "No space left on device")


def test_an_archive_that_is_a_file_is_refused(make: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="is a file: give a folder"):
        make(archive=tmp_path / "file")
    assert archive.Archive(tmp_path).path(FakeClock().now().date()).parent == tmp_path


def test_many_jobs_are_pruned_in_batches_and_kept_ones_are_skipped(
    make: Make, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every three jobs one is kept long, one deleted immediately and one after its hook: none hides
    another."""
    monkeypatch.setattr(pruning, "BATCH", 5)
    monkeypatch.setattr(pruning, "LEASES", 3)
    app = make(retention={"completed": 0})
    hooked: set[str] = set()
    app.task(name="kept", retention={"completed": "9d"})(lambda: None)
    app.task(name="plain")(lambda: None)
    app.task(name="hooked", on_prune=lambda job: hooked.add(job.id))(lambda: None)
    for _ in range(30):
        for name in ("kept", "plain", "hooked"):
            app.enqueue(name)
    drain(app)
    clock.advance(1)
    looks: list[Work] = []
    with pruner_of(app) as pruner:
        while not looks or looks[-1].more:
            looks.append(pruner.look(pruner.wanted(everywhere=True)))
    assert (max(look.gone for look in looks), sum(look.gone for look in looks)) == (8, 60)
    assert (len(hooked), app.jobs.count()) == (30, 30)
    clock.advance(8 * DAY)
    old = Retention(keep=dict.fromkeys(FINISHED, 0.0), older_than=timedelta(days=8).total_seconds())
    app.engine.maintenance.prune_from_the_start()
    assert app.engine.maintenance.prune(old, limit=100).gone == 30  # before their time
