"""PostgreSQL restarted with `-m immediate` repeatedly under load: no job is lost, every process
recovers by itself, and throughput recovers soon after the server."""

import threading
import time

from holdfast import HoldfastError
from tests.crash.testbed import CrashTestbed, Report, pause, statuses, unfinished, until
from tests.crash.worker_group import WorkerGroup, worker_group
from tests.support.history import check_history

LONG_RUN = {"times": 10, "load": 3.0, "back": 5.0}
ENGINES = ("postgres",)


class Producer:
    """Enqueues small jobs continuously; records acknowledged and counts refused enqueues."""

    def __init__(self, testbed: CrashTestbed) -> None:
        self._scene = testbed
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


def run(
    testbed: CrashTestbed, *, times: int, load: float, back: float, measured: bool = True
) -> Report:
    """`load`: seconds of work between two restarts. `back`: seconds after which the rate must be at
    least half of the usual rate or, if not `measured`, of a low fixed rate."""
    assert testbed.server is not None
    report = Report()
    delays: list[float] = []
    with testbed.app() as app, worker_group(testbed, processes=2) as workers:
        workers.start(2).until_ready()
        before = _pids(workers)
        with Producer(testbed) as producer:
            for _ in range(times):
                began = time.monotonic()
                pause(load)
                usual = _accepted(testbed, began) / load if measured else 4.0
                testbed.server.restart("immediate")
                delays.append(_until_usual(testbed, usual))
        until(lambda: unfinished(app) == 0, 60, "every job finished")
        same = _pids(workers) == before
        found = statuses(app)
    unknown = set(found) - set(producer.ids)
    report.figures |= {
        "restarts": times,
        "jobs": len(producer.ids),
        "refused": producer.refused,
        "back after": f"{min(delays):.1f}-{max(delays):.1f} s",
    }
    # A refused job may exist: the server may have crashed between commit and reply.
    report.expect(len(unknown) <= producer.refused, f"{len(unknown)} jobs were never enqueued")
    report.take(check_history(testbed.entries(), [*producer.ids, *unknown], found))
    report.expect(same, "not the same processes as before")
    report.expect(max(delays) <= back, f"back after {max(delays):.1f} s, not {back:g} s")
    return report


def _pids(workers: WorkerGroup) -> list[int]:
    return sorted([*workers.children(), *(one.pid for one in workers.live_supervisors())])


def _accepted(testbed: CrashTestbed, since: float) -> int:
    return sum(entry.at >= since for entry in testbed.entries("accepted"))


def _until_usual(testbed: CrashTestbed, usual: float) -> float:
    """Return the seconds from the server's restart until half a second has half the usual rate."""
    begin = time.monotonic()
    until(
        lambda: _accepted(testbed, max(begin, time.monotonic() - 0.5)) >= usual * 0.25,
        60,
        "the usual rate of work after the restart",
    )
    return time.monotonic() - begin
