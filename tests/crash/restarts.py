"""PostgreSQL restarted with `-m immediate`, again and again, under load: nothing is lost, every process
goes on by itself, and the work is back soon after the server is."""

import threading
import time

from holdfast import HoldfastError
from tests.crash.fleet import Fleet, fleet
from tests.crash.scene import Proof, Scene, pause, statuses, unfinished, until
from tests.support.witness import check

LONG = {"times": 10, "load": 3.0, "back": 5.0}
ENGINES = ("postgres",)


class Producer:
    """Enqueues small jobs all the time; counts what was acknowledged, and what was not."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.ids: list[str] = []
        self.refused = 0
        self._closing = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Producer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._thread.join()

    def _run(self) -> None:
        with self._scene.app() as app:
            while not self._closing:
                type = "threaded" if len(self.ids) % 10 == 0 else "short"
                try:
                    self.ids.append(app.enqueue(type, {"ms": 5}).id)
                except HoldfastError:
                    self.refused += 1
                pause(0.004)


def prove(scene: Scene, *, times: int, load: float, back: float, measured: bool = True) -> Proof:
    """`load`: seconds of work between two restarts. `back`: seconds after which the rate must be at
    least half of what it was; not `measured`: after which work goes on, at whatever rate the machine
    has left."""
    assert scene.server is not None
    proof = Proof()
    delays: list[float] = []
    with scene.app() as app, fleet(scene, processes=2) as workers:
        workers.start(2).until_ready()
        before = _pids(workers)
        with Producer(scene) as producer:
            for _ in range(times):
                began = time.monotonic()
                pause(load)
                usual = _accepted(scene, began) / load if measured else 4.0
                scene.server.restart("immediate")
                delays.append(_until_usual(scene, usual))
        until(lambda: unfinished(app) == 0, 60, "every job finished")
        same = _pids(workers) == before
        found = statuses(app)
    unknown = set(found) - set(producer.ids)
    proof.figures |= {
        "restarts": times,
        "jobs": len(producer.ids),
        "refused": producer.refused,
        "back after": f"{min(delays):.1f}-{max(delays):.1f} s",
    }
    # One that was refused may be there all the same: the server fell between commit and reply.
    proof.expect(len(unknown) <= producer.refused, f"{len(unknown)} jobs come from nowhere")
    proof.take(check(scene.facts(), [*producer.ids, *unknown], found))
    proof.expect(same, "not the same processes as before")
    proof.expect(max(delays) <= back, f"back after {max(delays):.1f} s, not {back:g} s")
    return proof


def _pids(workers: Fleet) -> list[int]:
    return sorted([*workers.children(), *(one.pid for one in workers.living())])


def _accepted(scene: Scene, since: float) -> int:
    return sum(fact.at >= since for fact in scene.facts("accepted"))


def _until_usual(scene: Scene, usual: float) -> float:
    """Seconds from the server's return until as much is done in half a second as is usual in a
    quarter."""
    begin = time.monotonic()
    until(
        lambda: _accepted(scene, max(begin, time.monotonic() - 0.5)) >= usual * 0.25,
        60,
        "the usual rate of work after the restart",
    )
    return time.monotonic() - begin
