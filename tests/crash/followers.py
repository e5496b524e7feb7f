"""A process that follows events is killed again and again, and its workers too; each time it goes on
from the last event that it wrote down. It has seen every transition once, in order for each job."""

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
from tests.crash.fleet import ROOT, fleet
from tests.crash.scene import Proof, Scene, pause, unfinished, until

LONG = {"jobs": 20_000, "kills": 200, "apart": 0.5, "heartbeat": 2.0, "seed": 1}
ENGINES = ("sqlite", "postgres")
NAME = "follower"


class Seen(NamedTuple):
    position: int
    job: str
    kind: str
    status: str
    claim_no: int


def prove(
    scene: Scene, *, jobs: int, kills: int, apart: float, heartbeat: float, seed: int
) -> Proof:
    """`apart`: the most seconds between two kills of the reader. Every third time a worker is killed,
    too."""
    chance, proof = random.Random(seed), Proof()
    notes = scene.folder / "seen.log"
    ids: list[str] = []
    with scene.app() as app, reader(scene, notes) as follower:
        follower.start()
        app.engine.is_followed()
        with fleet(scene, processes=2, heartbeat=heartbeat) as workers:
            workers.start(1).until_ready()
            for number in range(kills):
                share = jobs // kills // 2
                ids += [app.enqueue("short", call).id for call in calls(share, chance)]
                if number % 3 == 1:
                    ids.append(app.enqueue("short", {"ms": 2000}).id)
                    child = runner_of(app, ids[-1])
                    assert child in workers.children()
                    workers.kill_child(child)
                pause(chance.uniform(0.0, apart))
                follower.kill()
                ids += [app.enqueue("short", call).id for call in calls(share, chance)]
                follower.start()
            until(lambda: unfinished(app) == 0, 120, "every job finished")
        newest = app.engine.run(outbox.bounds, write=False).newest
        until(lambda: last_of(notes) >= newest, 60, "the last event was seen")
        seen = list(read(notes))
        found = {job.id: job for job in app.jobs.search()}
    check(proof, seen, found, ids)
    started = {(one.job, one.claim_no) for one in seen if one.kind == "started"}
    missed = {(fact.job, fact.claim_no) for fact in scene.facts("start")} - started
    proof.expect(not missed, f"{len(missed)} runs were not told, e.g. {sorted(missed)[:1]}")
    proof.figures |= {"jobs": len(ids), "kills": kills, "events": len(seen)}
    proof.figures["rescued"] = sum(one.kind == "rescued" for one in seen)
    return proof


def runner_of(app: Holdfast, id: str) -> int:
    """The process that runs a job, once one does."""
    until(lambda: app.jobs.get(id).status == "running", 60, "a long job runs")
    return int(str(app.jobs.get(id).worker_id).split("-")[-2])


def calls(count: int, chance: random.Random) -> list[dict[str, int]]:
    return [{"ms": chance.randrange(100)} for _ in range(count)]


def check(proof: Proof, seen: list[Seen], found: dict[str, Job], ids: list[str]) -> None:
    positions = [one.position for one in seen]
    proof.expect(positions == sorted(set(positions)), "an event came twice, or out of order")
    lives: dict[str, list[Seen]] = defaultdict(list)
    for one in seen:
        lives[one.job].append(one)
    wrong = [(id, [one.kind for one in lives[id]]) for id in ids if not sound(lives[id], found[id])]
    proof.expect(not wrong, f"{len(wrong)} jobs have other lives, e.g. {wrong[:1]}")
    proof.expect(set(lives) == set(ids), "events of jobs that nobody made")


def sound(life: list[Seen], job: Job) -> bool:
    """Enqueued, then each run that the row has counted, begun and ended once, and the end of all."""
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
    """The process that follows."""

    def __init__(self, scene: Scene, notes: Path) -> None:
        self._scene = scene
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
def reader(scene: Scene, notes: Path) -> Iterator[Reader]:
    made = Reader(scene, notes)
    try:
        yield made
    finally:
        made.kill()


def read(notes: Path) -> Iterator[Seen]:
    """What was written down whole; who is killed at that moment may tear the last line."""
    for line in notes.read_bytes().split(b"\n")[:-1]:
        position, job, kind, status, claim_no = line.decode().split()
        yield Seen(int(position), job, kind, status, int(claim_no))


def last_of(notes: Path) -> int:
    *_, last = [0, *(one.position for one in read(notes))]
    return last


def main() -> None:
    """Write each event down, and go on from the last one."""
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
