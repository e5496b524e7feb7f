"""Random kills of workers and of supervisors under load: no job is lost, run concurrently with itself,
or accepted twice."""

import random

from holdfast import Holdfast
from tests.crash.testbed import CrashTestbed, Report, pause, statuses, unfinished, until
from tests.crash.worker_group import WorkerGroup, worker_group
from tests.support.history import check_history

LONG_RUN = {"jobs": 20_000, "kills": 200, "interval": 2.5, "heartbeat": 5.0, "seed": 1}
ENGINES = ("sqlite", "postgres")


def run(
    testbed: CrashTestbed, *, jobs: int, kills: int, interval: float, heartbeat: float, seed: int
) -> Report:
    """`interval`: the most seconds between two kills. (Processes that die soon after their start are
    restarted with growing delays.)"""
    rng = random.Random(seed)
    report = Report()
    killed = 0
    ids: list[str] = []
    with testbed.app() as app, worker_group(testbed, processes=2, heartbeat=heartbeat) as workers:
        workers.start(2).until_ready()
        for number in range(kills):
            share = jobs * (number + 1) // kills - jobs * number // kills
            before = rng.randrange(share)  # while jobs run
            ids += _enqueue(app, before, rng)
            killed += _kill(workers, rng)
            ids += _enqueue(app, share - before, rng)
            pause(rng.uniform(0.0, interval))  # their replacements may have started or not
        until(lambda: unfinished(app) == 0, 120, "every job finished")
        found = statuses(app)
    again = len(testbed.entries("start")) - len(ids)
    report.figures |= {"jobs": len(ids), "kills": killed, "runs interrupted": again}
    report.take(check_history(testbed.entries(), ids, found))
    report.expect(again > 0, "no kill hit a run: nothing was tested")
    return report


def _kill(workers: WorkerGroup, rng: random.Random) -> int:
    until(workers.children, 60, "a child to kill")
    if rng.random() < 0.1 and len(workers.live_supervisors()) == 2:
        workers.kill_supervisor(rng.choice(workers.live_supervisors()))
        workers.start(1)
    else:
        workers.kill_child(rng.choice(workers.children()))
    return 1


def _enqueue(app: Holdfast, count: int, rng: random.Random) -> list[str]:
    ids = []
    for _ in range(count):
        type = "short" if rng.random() < 0.8 else "threaded"
        ids.append(app.enqueue(type, {"ms": rng.randrange(50)}).id)
    return ids
