"""Random kills of workers and of supervisors while they work: nothing is lost, done twice at once, or
accepted twice."""

import random

from holdfast import Holdfast
from tests.crash.fleet import Fleet, fleet
from tests.crash.scene import Proof, Scene, pause, statuses, unfinished, until
from tests.support.witness import check

LONG = {"jobs": 20_000, "kills": 200, "apart": 2.5, "heartbeat": 5.0, "seed": 1}
ENGINES = ("sqlite", "postgres")


def prove(
    scene: Scene, *, jobs: int, kills: int, apart: float, heartbeat: float, seed: int
) -> Proof:
    """`apart`: the most seconds between two kills. (Processes that die young are started again ever
    more slowly.)"""
    chance = random.Random(seed)
    proof = Proof()
    killed = 0
    ids: list[str] = []
    with scene.app() as app, fleet(scene, processes=2, heartbeat=heartbeat) as workers:
        workers.start(2).until_ready()
        for number in range(kills):
            share = jobs * (number + 1) // kills - jobs * number // kills
            before = chance.randrange(share)  # in the midst of the work
            ids += _enqueue(app, before, chance)
            killed += _kill(workers, chance)
            ids += _enqueue(app, share - before, chance)
            pause(chance.uniform(0.0, apart))  # until they are back, or not yet
        until(lambda: unfinished(app) == 0, 120, "every job finished")
        found = statuses(app)
    again = len(scene.facts("start")) - len(ids)
    proof.figures |= {"jobs": len(ids), "kills": killed, "runs interrupted": again}
    proof.take(check(scene.facts(), ids, found))
    proof.expect(again > 0, "no kill hit a run: nothing was proved")
    return proof


def _kill(workers: Fleet, chance: random.Random) -> int:
    until(workers.children, 60, "a child to kill")
    if chance.random() < 0.1 and len(workers.living()) == 2:
        workers.kill_supervisor(chance.choice(workers.living()))
        workers.start(1)
    else:
        workers.kill_child(chance.choice(workers.children()))
    return 1


def _enqueue(app: Holdfast, count: int, chance: random.Random) -> list[str]:
    ids = []
    for _ in range(count):
        type = "short" if chance.random() < 0.8 else "threaded"
        ids.append(app.enqueue(type, {"ms": chance.randrange(50)}).id)
    return ids
