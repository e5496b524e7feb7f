"""Limits while workers are killed and frozen and the server crashes: never more concurrent runs than a
limit allows, no free capacity that stays unused, and every job finished."""

import json
import math
import random
import threading
import time
from contextlib import suppress

import psycopg

from holdfast import Holdfast
from tests.crash.freezes import DeathRecorder, frozen, until_declared_dead
from tests.crash.testbed import CrashTestbed, Report, pause, statuses, unfinished, until
from tests.crash.worker_group import WorkerGroup, worker_group
from tests.support.history import HistoryEntry, check_history, peak_concurrency
from tests.support.jobs import new

LONG_RUN = {
    "jobs": 20_000,
    "kills": 100,
    "freezes": 20,
    "restarts": 5,
    "interval": 1.5,
    "heartbeat": 1.0,
    "seed": 1,
}
ENGINES = ("sqlite", "postgres")
BOUND = 20.0  # seconds of a recovery

# For each task: its keys, the keys in use at a time, its share of the jobs, and its concurrency limit.
# See `limited_tasks.py`.
KEYED = {"one": (100, 5, 22, 1), "three": (60, 3, 23, 3), "seventeen": (40, 1, 30, 17)}
WHOLE = {"whole": (1, 1, 10), "reads": (1, 1, 8), "writes": (10, 2, 7)}
LIMITS = {
    **{f"{task}={key}": most for task, (keys, _, _, most) in KEYED.items() for key in range(keys)},
    **{f"writes={key}": 2 for key in range(10)},
    "whole": 5,
    "api": 4,
}


class Auditor:
    """Polls the table: how long does a job wait under its key although the key has free capacity? On
    PostgreSQL a finish and the release of a waiting job are two transactions; if a process died between
    them, another one must release the job within the bound of a recovery."""

    def __init__(self, testbed: CrashTestbed) -> None:
        table = "holdfast_jobs" if testbed.kind == "sqlite" else f"{testbed.schema}.jobs"
        self._query = f"""
            SELECT limit_key,
                   SUM(CASE WHEN status = 'blocked' THEN 1 ELSE 0 END),
                   SUM(CASE WHEN status = 'blocked' THEN 0 ELSE 1 END)
              FROM {table}
             WHERE status IN ('blocked', 'pending', 'running')
               AND limit_key IS NOT NULL
             GROUP BY limit_key
        """
        self._scene = testbed
        self.samples = 0
        self.waited = 0  #: the most jobs that waited
        self.leaks: list[str] = []
        self.longest = 0.0  #: seconds that capacity was unused
        self._since: dict[str, float] = {}  # keys with free capacity and waiting jobs
        self._closing = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Auditor":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._thread.join()

    def _run(self) -> None:
        while not self._closing:
            with suppress(psycopg.Error):  # the server may be down
                connection = self._scene.connect()
                while not self._closing:
                    self._sample(connection.execute(self._query).fetchall())
                    pause(0.05)
                connection.close()
            pause(0.05)

    def _sample(self, rows: list[tuple[str, int, int]]) -> None:
        self.samples += 1
        self.waited = max(self.waited, sum(waiting for _, waiting, _ in rows))
        now, before, self._since = time.monotonic(), self._since, {}
        for key, waiting, others in rows:
            most = LIMITS[key.replace("/key=", "=")]
            if not waiting or others >= most:
                continue
            since = self._since[key] = before.get(key, now)
            self.longest = max(self.longest, now - since)
            if now - since > BOUND:
                self.leaks.append(f"{key}: {waiting} wait, {others} of {most} run or are next")


def run(
    testbed: CrashTestbed,
    *,
    jobs: int,
    kills: int,
    freezes: int,
    restarts: int,
    interval: float,
    heartbeat: float,
    seed: int,
) -> Report:
    """`interval`: the most seconds between two faults."""
    rng = random.Random(seed)
    report = Report()
    ids: list[str] = []
    can_fall = testbed.server is not None and testbed.server.can_restart
    faults = ["kill"] * kills + ["freeze"] * freezes + ["restart"] * (restarts if can_fall else 0)
    rng.shuffle(faults)
    options = {
        "app": "tests.crash.limited_tasks:app",
        "queues": "default=20",
        "heartbeat": heartbeat,
    }
    with (
        testbed.app() as app,
        worker_group(testbed, processes=2, **options) as workers,
        DeathRecorder(testbed) as recorder,
        Auditor(testbed) as auditor,
    ):
        workers.start(4).until_ready()
        for number, fault in enumerate(faults):
            share = jobs * (number + 1) // len(faults) - jobs * number // len(faults)
            ids += _enqueue(app, share, rng)
            ids += _inject(fault, testbed, app, workers, recorder, rng)
            pause(rng.uniform(0.0, interval))
        slow = _await_all(app, patience=max(90, jobs // 50))
        left = app.engine.maintenance.repair_limits(1000)
        held = [info for info in app.limits.list() if info.running or info.waiting]
        found = statuses(app)
    entries = testbed.entries()
    again = sum(entry.kind == "start" for entry in entries) - len(ids)
    full = _full(entries)
    report.figures |= {
        "jobs": len(ids),
        **{f"{fault}s": faults.count(fault) for fault in ("kill", "freeze", "restart")},
        "runs interrupted": again,
        "most waiting": auditor.waited,
        "samples": auditor.samples,
        "leaks": len(auditor.leaks),
        "capacity unused": f"{auditor.longest:.1f} s",
        "after the last fault": f"{slow:.0f} s",
        "most concurrent": full,
    }
    report.take(check_history(entries, ids, found, limits=LIMITS))
    report.expect(not auditor.leaks, f"capacity was lost: {auditor.leaks[:3]}")
    report.expect(not left and not held, f"left over: {left} jobs, {held}")
    report.expect(again > 0, "no fault hit a run: nothing was tested")
    report.expect(auditor.waited > 0, "no job ever waited: nothing was tested")
    for name, most in {"one": 1, "three": 3, "seventeen": 17, "whole": 5, "api": 4}.items():
        enough = math.ceil(
            0.8 * most
        )  # the limit must have been nearly reached; how nearly is chance
        report.expect(full[name] >= enough, f"{name} was never full ({full[name]} of {most})")
    return report


def _await_all(app: Holdfast, patience: float) -> float:
    try:
        return until(lambda: unfinished(app) == 0, patience, "every job finished", every=0.1)
    except AssertionError as late:
        waiting = app.jobs.search(status=("pending", "running", "blocked", "retrying"), limit=5)
        reasons = [
            (job.id, job.type, job.status, job.worker_id, app.jobs.why(job.id)) for job in waiting
        ]
        raise AssertionError(
            f"{late}: {app.stats().jobs}, {reasons}, {app.engine.workers()}"
        ) from None


def _enqueue(app: Holdfast, count: int, rng: random.Random) -> list[str]:
    """Enqueue jobs of a few keys of each task at a time, so that their limits are reached."""
    tasks = {**{task: row[:3] for task, row in KEYED.items()}, **WHOLE}
    keys = {task: rng.sample(range(n), at_once) for task, (n, at_once, _) in tasks.items()}
    weights = [weight for _, _, weight in tasks.values()]
    batch = []
    for task in rng.choices(list(tasks), weights, k=count):
        ms = rng.randrange(2, 20) if task in ("one", "three") else rng.randrange(30, 80)
        batch.append(new(task, payload=json.dumps({"key": rng.choice(keys[task]), "ms": ms})))
    return [job.id for job in app.engine.insert(batch)]


def _inject(
    fault: str,
    testbed: CrashTestbed,
    app: Holdfast,
    workers: WorkerGroup,
    recorder: DeathRecorder,
    rng: random.Random,
) -> list[str]:
    """Return the ids of jobs that this adds."""
    if fault == "restart":
        assert testbed.server is not None
        testbed.server.restart("immediate")
    elif fault == "freeze":
        with frozen(testbed, app, workers, rng) as ids:
            until_declared_dead(recorder, ids)
    elif rng.random() < 0.1 and len(workers.live_supervisors()) == 4:
        workers.kill_supervisor(rng.choice(workers.live_supervisors()))
        workers.start(1)
    elif rng.random() < 0.5:
        until(workers.children, 60, "a child to kill")
        workers.kill_child(rng.choice(workers.children()))
    else:
        return [_kill_running(testbed, app, workers)]
    return []


def _kill_running(testbed: CrashTestbed, app: Holdfast, workers: WorkerGroup) -> str:
    """Kill a child while it runs a job that takes long; return the job's id."""
    job = app.enqueue("seventeen", {"key": 29, "ms": 2000}).id

    def runs_in() -> int | None:
        starts = testbed.entries("start", job)
        return starts[-1].pid if starts else None

    until(runs_in, 60, "the start of a job to interrupt")
    pid = runs_in()
    assert pid is not None
    workers.kill_child(pid)
    return job


def _full(entries: list[HistoryEntry]) -> dict[str, int]:
    """Return the most concurrent runs of each limit, of its fullest key."""
    found: dict[str, int] = {}
    for name, most in peak_concurrency(entries).items():
        family = name.partition("=")[0]
        found[family] = max(found.get(family, 0), most)
    return found
