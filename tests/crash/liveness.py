"""Handlers that run for many heartbeats, one of them blocking its event loop: each is started once and
never taken over, with another worker watching; on SQLite also while the application holds the write
lock for longer than it takes to be declared dead."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tests.crash.fleet import fleet
from tests.crash.scene import Proof, Scene, jobs_of, pause, unfinished, until

LONG = {"heartbeat": 5.0, "patient": 60.0, "blocked": 30.0, "locked": 20.0, "busy": 5.0}
ENGINES = ("sqlite", "postgres")


def prove(
    scene: Scene,
    *,
    heartbeat: float,
    patient: float,
    blocked: float,
    locked: float,
    busy: float,
) -> Proof:
    """`busy`: how long a write to SQLite waits for the lock (by default five seconds, a heartbeat)."""
    proof = Proof()
    if scene.kind == "sqlite":
        scene = replace(scene, url=f"{scene.url}?busy_timeout={busy}")
    options = {"heartbeat": heartbeat, "queues": "default=4"}
    with (
        scene.app() as app,
        fleet(scene, "worker", processes=2, **options) as worker,
        fleet(scene, "watcher", **options) as watcher,
    ):
        watcher.start().until_ready()
        worker.start().until_ready()
        jobs = [app.enqueue("patient", {"seconds": patient}) for _ in range(4)]
        jobs += [app.enqueue("threaded", {"ms": int(1000 * patient)}) for _ in range(4)]
        ids = [job.id for job in jobs]
        until(lambda: len(scene.facts("start")) == 8, 30, "the start of the patient")
        ids.append(app.enqueue("blocks", {"seconds": blocked}).id)
        until(lambda: len(scene.facts("start")) == 9, 30, "the start of the one that blocks")
        if scene.kind == "sqlite" and locked:
            pause(heartbeat * 1.5)
            with _locked(scene):
                pause(locked)
        until(lambda: unfinished(app) == 0, 2 * patient + 30, "every job finished")
        starts = len(scene.facts("start"))
        again = [job for job in jobs_of(app, ids) if (job.status, job.claim_no) != ("completed", 1)]
        log = worker.log() + watcher.log()
    proof.figures |= {"jobs": len(ids), "starts": starts, "taken over": len(again)}
    proof.expect(starts == len(ids), f"{starts} starts of {len(ids)} jobs")
    proof.expect(not again, f"{len(again)} jobs were claimed again, e.g. {again[:1]}")
    for words in ("declared dead", "could not be reached", "recovered"):
        found = [line for line in log.splitlines() if words in line and "started: 0" not in line]
        proof.expect(not found, f"{words!r} in the log: {found[:1]}")
    return proof


@contextmanager
def _locked(scene: Scene) -> Iterator[None]:
    """The application's own transaction on SQLite, which does not end."""
    connection = scene.connect()
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()
