"""SQLite with many writers: two workers' supervisors and processes, and two processes that enqueue.
Nobody ever hears that the database is locked."""

import json
import os
import subprocess
import sys
import time

from holdfast import Holdfast
from tests.crash.fleet import ROOT, fleet
from tests.crash.scene import Proof, Scene, statuses, unfinished, until
from tests.support.witness import check

LONG = {"seconds": 60.0}
ENGINES = ("sqlite",)


def prove(scene: Scene, *, seconds: float) -> Proof:
    proof = Proof()
    with scene.app() as app, fleet(scene) as workers:
        workers.start(2).until_ready()
        producers = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.crash.writers", scene.url, str(seconds)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                env=os.environ,
            )
            for _ in range(2)
        ]
        said = [producer.communicate() for producer in producers]
        until(lambda: unfinished(app) == 0, seconds + 60, "every job finished")
        found = statuses(app)
        log = workers.log()
    for producer, (_, errors) in zip(producers, said, strict=True):
        proof.expect(producer.returncode == 0, f"a producer failed: {errors[-300:]}")
    ids = [id for out, _ in said for id in json.loads(out or "[]")]
    complaints = [line for line in log.splitlines() if " INFO " not in line]
    proof.figures |= {"jobs": len(ids), "complaints": len(complaints)}
    proof.take(check(scene.facts(), ids, found))
    proof.expect(len(ids) > 100 * seconds / 10, f"only {len(ids)} jobs: too few to prove a thing")
    proof.expect(not complaints, f"{len(complaints)} complaints, e.g. {complaints[:1]}")
    return proof


def main() -> None:
    """A producer: enqueues for the given time, and says which jobs."""
    url, seconds = sys.argv[1], float(sys.argv[2])
    ids = []
    with Holdfast(url) as app:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            ids.append(app.enqueue("short", {"ms": 1}).id)
            time.sleep(0.002)
    print(json.dumps(ids))


if __name__ == "__main__":
    main()
