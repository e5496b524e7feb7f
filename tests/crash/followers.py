"""A process that follows events is killed repeatedly, and workers too; each time it continues after the
last event that it wrote down. In the end it has every transition once, in order for each job."""

import os
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from holdfast import Holdfast
from holdfast.events import outbox
from holdfast.jobs.job import FINISHED, Job
from tests.crash.testbed import CrashTestbed, Report, pause, unfinished, until
from tests.crash.worker_group import ROOT, worker_group

LONG_RUN = {"jobs": 20_000, "kills": 200, "interval": 0.5, "heartbeat": 2.0, "seed": 1}
ENGINES = ("sqlite", "postgres")
NAME = "follower"


class Seen(NamedTuple):
    position: int
    job: str
    kind: str
    status: str
    claim_no: int


def run(
    testbed: CrashTestbed, *, jobs: int, kills: int, interval: float, heartbeat: float, seed: int
) -> Report:
    """`interval`: the most seconds between two kills of the reader. Every third time a worker is
    killed, too."""
    rng, report = random.Random(seed), Report()
    notes = testbed.folder / "seen.log"
    ids: list[str] = []
    with testbed.app() as app, reader(testbed, notes) as follower:
        follower.start()
        app.engine.is_followed()
        with worker_group(testbed, processes=2, heartbeat=heartbeat) as workers:
            workers.start(1).until_ready()
            for number in range(kills):
                share = jobs // kills // 2
                ids += [app.enqueue("short", call).id for call in calls(share, rng)]
                if number % 3 == 1:
                    ids.append(app.enqueue("short", {"ms": 2000}).id)
                    child = runner_of(app, ids[-1])
                    assert child in workers.children()
                    workers.kill_child(child)
                pause(rng.uniform(0.0, interval))
                follower.kill()
                ids += [app.enqueue("short", call).id for call in calls(share, rng)]
                follower.start()
            until(lambda: unfinished(app) == 0, 120, "every job finished")
        newest = app.engine.run(outbox.bounds, write=False).newest
        until(lambda: last_of(notes) >= newest, 60, "the last event was seen")
        seen = list(read(notes))
        found = {job.id: job for job in app.jobs.search()}
    check_history(report, seen, found, ids)
    started = {(one.job, one.claim_no) for one in seen if one.kind == "started"}
    missed = {(entry.job, entry.claim_no) for entry in testbed.entries("start")} - started
    report.expect(not missed, f"{len(missed)} runs have no event, e.g. {sorted(missed)[:1]}")
    report.figures |= {"jobs": len(ids), "kills": kills, "events": len(seen)}
    report.figures["rescued"] = sum(one.kind == "rescued" for one in seen)
    return report


def runner_of(app: Holdfast, id: str) -> int:
    """Wait until a job runs, and return the process id of its worker."""
    until(lambda: app.jobs.get(id).status == "running", 60, "a long job runs")
    return int(str(app.jobs.get(id).worker_id).split("-")[-2])


def calls(count: int, rng: random.Random) -> list[dict[str, int]]:
    return [{"ms": rng.randrange(100)} for _ in range(count)]


def check_history(report: Report, seen: list[Seen], found: dict[str, Job], ids: list[str]) -> None:
    positions = [one.position for one in seen]
    report.expect(positions == sorted(set(positions)), "an event came twice, or out of order")
    lives: dict[str, list[Seen]] = defaultdict(list)
    for one in seen:
        lives[one.job].append(one)
    wrong = [(id, [one.kind for one in lives[id]]) for id in ids if not sound(lives[id], found[id])]
    report.expect(not wrong, f"{len(wrong)} jobs have unexpected events, e.g. {wrong[:1]}")
    report.expect(set(lives) == set(ids), "events of unknown jobs")


def sound(life: list[Seen], job: Job) -> bool:
    """Return whether the events are: enqueued, a start and an end of each run, and the final status."""
    runs = [("started", "ended")] * job.claim_no
    wanted = ["enqueued", *(word for run in runs for word in run)]
    told = [one.kind if one.kind in ("enqueued", "started") else "ended" for one in life]
    numbers = [one.claim_no for one in life if one.kind == "started"]
    final = [one.kind for one in life if one.status in FINISHED]
    return (
        told == wanted
        and numbers == list(range(1, job.claim_no + 1))
        and final == [job.status.value] == [life[-1].kind]
    )


class Reader:
    """Starts and kills the process that follows events."""

    def __init__(self, testbed: CrashTestbed, notes: Path) -> None:
        self._scene = testbed
        self._notes = notes
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.crash.followers", self._scene.url]
        command += [self._scene.schema, str(self._notes)]
        process = self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", "the reader did not start"

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


@contextmanager
def reader(testbed: CrashTestbed, notes: Path) -> Iterator[Reader]:
    made = Reader(testbed, notes)
    try:
        yield made
    finally:
        made.kill()


def read(notes: Path) -> Iterator[Seen]:
    """Read the complete lines; a kill may have torn the last one."""
    for line in notes.read_bytes().split(b"\n")[:-1]:
        position, job, kind, status, claim_no = line.decode().split()
        yield Seen(int(position), job, kind, status, int(claim_no))


def last_of(notes: Path) -> int:
    *_, last = [0, *(one.position for one in read(notes))]
    return last


def main() -> None:
    """Write each event to the file, continuing after the last one in it."""
    url, schema, notes = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    after = None
    if notes.exists():
        whole = notes.read_bytes()
        os.truncate(notes, whole.rfind(b"\n") + 1)
        after = last_of(notes) or None
    file = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with Holdfast(url, schema=schema) as app, app.events(after, name=NAME) as events:
        print("ready", flush=True)
        for one in events:
            line = f"{one.position} {one.job_id} {one.kind} {one.status} {one.claim_no}\n"
            os.write(file, line.encode())


if __name__ == "__main__":
    main()
