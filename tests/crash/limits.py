"""Limits while workers are killed and frozen and the server falls: never more at once than a limit
allows, no room that is lost, and every job finished."""

import json
import math
import random
import threading
import time
from contextlib import suppress

import psycopg

from holdfast import Holdfast
from tests.crash.fleet import Fleet, fleet
from tests.crash.freezes import Register, frozen, until_declared_dead
from tests.crash.scene import Proof, Scene, pause, statuses, unfinished, until
from tests.support.jobs import new
from tests.support.witness import Fact, check, most_at_once

LONG = {
    "jobs": 20_000,
    "kills": 100,
    "freezes": 20,
    "restarts": 5,
    "apart": 1.5,
    "heartbeat": 1.0,
    "seed": 1,
}
ENGINES = ("sqlite", "postgres")
BOUND = 20.0  # seconds of a recovery

# How many keys each task has, how many of them at a time, its share of the jobs, and how many of its
# jobs may run at once. See `limited.py`.
KEYED = {"one": (100, 5, 22, 1), "three": (60, 3, 23, 3), "seventeen": (40, 1, 30, 17)}
WHOLE = {"whole": (1, 1, 10), "reads": (1, 1, 8), "writes": (10, 2, 7)}
LIMITS = {
    **{f"{task}={key}": most for task, (keys, _, _, most) in KEYED.items() for key in range(keys)},
    **{f"writes={key}": 2 for key in range(10)},
    "whole": 5,
    "api": 4,
}


class Auditor:
    """Reads the table all the time: how long does a job wait for room under its key although there is
    room, and nobody is on the way to it? On PostgreSQL an end and what it frees are two transactions;
    where a process died between them, somebody must find it within the bound of a recovery."""

    def __init__(self, scene: Scene) -> None:
        table = "holdfast_jobs" if scene.kind == "sqlite" else f"{scene.schema}.jobs"
        self._query = f"""
            SELECT limit_key,
                   SUM(CASE WHEN status = 'blocked' THEN 1 ELSE 0 END),
                   SUM(CASE WHEN status = 'blocked' THEN 0 ELSE 1 END)
              FROM {table}
             WHERE status IN ('blocked', 'pending', 'running')
               AND limit_key IS NOT NULL
             GROUP BY limit_key
        """
        self._scene = scene
        self.looks = 0
        self.waited = 0  #: the most that waited at once
        self.leaks: list[str] = []
        self.longest = 0.0  #: seconds that room was left unused
        self._since: dict[str, float] = {}  # keys with room for which jobs wait
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
                    self._look(connection.execute(self._query).fetchall())
                    pause(0.05)
                connection.close()
            pause(0.05)

    def _look(self, rows: list[tuple[str, int, int]]) -> None:
        self.looks += 1
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


def prove(
    scene: Scene,
    *,
    jobs: int,
    kills: int,
    freezes: int,
    restarts: int,
    apart: float,
    heartbeat: float,
    seed: int,
) -> Proof:
    """`apart`: the most seconds between two blows."""
    chance = random.Random(seed)
    proof = Proof()
    ids: list[str] = []
    can_fall = scene.server is not None and scene.server.can_restart
    blows = ["kill"] * kills + ["freeze"] * freezes + ["restart"] * (restarts if can_fall else 0)
    chance.shuffle(blows)
    options = {"app": "tests.crash.limited:app", "queues": "default=20", "heartbeat": heartbeat}
    with (
        scene.app() as app,
        fleet(scene, processes=2, **options) as workers,
        Register(scene) as register,
        Auditor(scene) as auditor,
    ):
        workers.start(4).until_ready()
        for number, blow in enumerate(blows):
            share = jobs * (number + 1) // len(blows) - jobs * number // len(blows)
            ids += _enqueue(app, share, chance)
            _strike(blow, scene, app, workers, register, chance)
            pause(chance.uniform(0.0, apart))
        slow = _await_all(app, patience=max(90, jobs // 50))
        left = app.engine.maintenance.repair_limits(1000)
        held = [info for info in app.limits.list() if info.running or info.waiting]
        found = statuses(app)
    facts = scene.facts()
    again = sum(fact.what == "start" for fact in facts) - len(ids)
    full = _full(facts)
    proof.figures |= {
        "jobs": len(ids),
        **{f"{blow}s": blows.count(blow) for blow in ("kill", "freeze", "restart")},
        "runs interrupted": again,
        "waited at once": auditor.waited,
        "looks": auditor.looks,
        "leaks": len(auditor.leaks),
        "room unused": f"{auditor.longest:.1f} s",
        "after the last blow": f"{slow:.0f} s",
        "at once": full,
    }
    proof.take(check(facts, ids, found, limits=LIMITS))
    proof.expect(not auditor.leaks, f"room was lost: {auditor.leaks[:3]}")
    proof.expect(not left and not held, f"left over: {left} jobs, {held}")
    proof.expect(again > 0, "no blow hit a run: nothing was proved")
    proof.expect(auditor.waited > 0, "no job ever waited: nothing was proved")
    for name, most in {"one": 1, "three": 3, "seventeen": 17, "whole": 5, "api": 4}.items():
        enough = math.ceil(0.8 * most)  # it must have mattered; just how far is chance
        proof.expect(full[name] >= enough, f"{name} was never full ({full[name]} of {most})")
    return proof


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


def _enqueue(app: Holdfast, count: int, chance: random.Random) -> list[str]:
    """Of each task a few keys at a time, so that they are full."""
    tasks = {**{task: row[:3] for task, row in KEYED.items()}, **WHOLE}
    keys = {task: chance.sample(range(n), at_once) for task, (n, at_once, _) in tasks.items()}
    weights = [weight for _, _, weight in tasks.values()]
    batch = []
    for task in chance.choices(list(tasks), weights, k=count):
        ms = chance.randrange(2, 20) if task in ("one", "three") else chance.randrange(30, 80)
        batch.append(new(task, payload=json.dumps({"key": chance.choice(keys[task]), "ms": ms})))
    return [job.id for job in app.engine.insert(batch)]


def _strike(
    blow: str,
    scene: Scene,
    app: Holdfast,
    workers: Fleet,
    register: Register,
    chance: random.Random,
) -> None:
    if blow == "restart":
        assert scene.server is not None
        scene.server.restart("immediate")
    elif blow == "freeze":
        with frozen(scene, app, workers, chance) as ids:
            until_declared_dead(register, ids)
    elif chance.random() < 0.1 and len(workers.living()) == 4:
        workers.kill_supervisor(chance.choice(workers.living()))
        workers.start(1)
    else:
        until(workers.children, 60, "a child to kill")
        workers.kill_child(chance.choice(workers.children()))


def _full(facts: list[Fact]) -> dict[str, int]:
    """How many ran at once, of each limit the fullest key."""
    found: dict[str, int] = {}
    for name, most in most_at_once(facts).items():
        family = name.partition("=")[0]
        found[family] = max(found.get(family, 0), most)
    return found
