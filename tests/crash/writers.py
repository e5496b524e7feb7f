"""SQLite with many writers: two supervisors with their workers, and two processes that enqueue. No
process ever gets the error that the database is locked."""

import json
import os
import subprocess
import sys
import time

from holdfast import Holdfast
from tests.crash.testbed import CrashTestbed, Report, statuses, unfinished, until
from tests.crash.worker_group import ROOT, worker_group
from tests.support.history import check_history

LONG_RUN = {"seconds": 60.0}
ENGINES = ("sqlite",)


def run(testbed: CrashTestbed, *, seconds: float) -> Report:
    report = Report()
    with testbed.app() as app, worker_group(testbed) as workers:
        workers.start(2).until_ready()
        producers = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.crash.writers", testbed.url, str(seconds)],
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
        report.expect(producer.returncode == 0, f"a producer failed: {errors[-300:]}")
    ids = [id for out, _ in said for id in json.loads(out or "[]")]
    complaints = [line for line in log.splitlines() if " INFO " not in line]
    report.figures |= {"jobs": len(ids), "complaints": len(complaints)}
    report.take(check_history(testbed.entries(), ids, found))
    report.expect(len(ids) > 100 * seconds / 10, f"only {len(ids)} jobs: too few to test anything")
    report.expect(not complaints, f"{len(complaints)} complaints, e.g. {complaints[:1]}")
    return report


def main() -> None:
    """A producer: enqueue for the given time, and print the ids."""
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
