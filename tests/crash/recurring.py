"""Recurring jobs among five workers that are frozen in the midst of runs and go on later: no moment is
missed or had twice, no two runs overlap. And many rows of which few are due: those start in time."""

import random
import statistics
import time
from datetime import UTC, datetime, timedelta
from functools import partial

from holdfast import Holdfast, Job
from holdfast.engine.records import Held
from tests.crash.fleet import fleet
from tests.crash.freezes import Register, frozen, until_declared_dead
from tests.crash.scene import Proof, Scene, pause, statuses, until
from tests.support.jobs import new
from tests.support.witness import Fact, check

LONG = {
    "moments": 200,
    "freezes": 15,
    "heartbeat": 0.5,
    "seed": 1,
    "rows": 100_000,
    "rate": 500,
    "seconds": 10.0,
    "late": 1.0,
}
ENGINES = ("sqlite", "postgres")
KEYS = ("a", "b", "c")
EVERY = 0.2  # seconds
OPTIONS = {"app": "tests.crash.limited:app"}


def prove(
    scene: Scene,
    *,
    moments: int,
    freezes: int,
    heartbeat: float,
    seed: int,
    rows: int,
    rate: int,
    seconds: float,
    late: float,
) -> Proof:
    """`moments`: of each of the recurring jobs, at least. `rows`: how many there are in the second
    part, of which `rate` a second are due, for so many `seconds`, and start at most so `late`."""
    proof = Proof()
    _schedulers(scene, proof, moments, freezes, heartbeat, random.Random(seed))
    if rows:
        _crowd(scene, proof, rows, rate, seconds, late)
    return proof


# five schedulers


def _schedulers(
    scene: Scene,
    proof: Proof,
    moments: int,
    freezes: int,
    heartbeat: float,
    chance: random.Random,
) -> None:
    options = {**OPTIONS, "heartbeat": heartbeat, "queues": "default=5"}
    with (
        scene.app() as app,
        fleet(scene, "schedulers", **options) as workers,
        Register(scene) as register,
    ):
        workers.start(5).until_ready()
        first = {key: _schedule(app, key) for key in KEYS}
        for _ in range(freezes):
            with frozen(scene, app, workers, chance, in_a_run=True) as ids:
                held = [claim for id in ids for claim in app.engine.held(id)]
                until_declared_dead(register, ids)
                until(partial(_again, app, held), 60, "another run of what they held")
                pause(chance.uniform(0.0, 0.3))
            pause(chance.uniform(0.0, 1.0))
        until(lambda: min(_passed(app, first)) >= moments, 300, f"{moments} moments", every=0.1)
        for key in KEYS:
            app.schedules.disable("recurs", key)
        until(lambda: not _running(app), 30, "the end of the last runs")
        last = {key: app.schedules.get("recurs", key) for key in KEYS}
        found = statuses(app)
        dead = set(register.dead)
    facts = scene.facts()
    missed = [
        f"{key} at {due}"
        for key in KEYS
        for due in _moments(first[key], last[key]) - _had(facts, first[key].id)
    ]
    twice = _twice(facts, dead)
    proof.figures |= {
        "moments": sum(len(_moments(first[key], last[key])) for key in KEYS),
        "freezes": freezes,
        "runs again": sum(fact.what == "start" for fact in facts)
        - len({(fact.job, fact.under) for fact in facts if fact.what == "start"}),
        "missed": len(missed),
        "twice": len(twice),
    }
    proof.take(check(facts, [job.id for job in first.values()], found, finals=("scheduled",)))
    proof.expect(not missed, f"moments without a run: {missed[:3]}")
    proof.expect(not twice, f"moments with two runs: {twice[:3]}")


def _schedule(app: Holdfast, key: str) -> Job:
    """Of a task that this process does not know."""
    plan = f'{{"every":{EVERY},"missed":"all"}}'
    job = new("recurs", key=key, schedule=plan, payload='{"ms": 100}')
    return app.schedules.put(job)


def _again(app: Holdfast, held: list[Held]) -> bool:
    return all(app.jobs.get(one.id).claim_no > one.claim_no for one in held)


def _passed(app: Holdfast, first: dict[str, Job]) -> list[int]:
    rows = {key: app.schedules.get("recurs", key) for key in first}
    return [len(_moments(first[key], rows[key])) for key in first]


def _moments(first: Job, last: Job) -> set[str]:
    """From the first on, up to the one that the row waits for."""
    assert first.due_at is not None
    assert last.due_at is not None
    step = timedelta(seconds=EVERY)
    count = round((last.due_at - first.due_at) / step)
    return {f"{(first.due_at + number * step).timestamp():.6f}" for number in range(count)}


def _running(app: Holdfast) -> list[Job]:
    return [job for job in app.schedules.list() if job.status == "running"]


def _had(facts: list[Fact], job: str) -> set[str]:
    """The moments that had a run which came to its end."""
    ended = {fact.claim_no for fact in facts if fact.what == "end" and fact.job == job}
    return {
        fact.under
        for fact in facts
        if fact.what == "start" and fact.job == job and fact.claim_no in ended
    }


def _twice(facts: list[Fact], dead: set[str]) -> list[str]:
    """Moments with another run, although nobody had to take the worker of the one before for dead; and
    those of which two runs were accepted."""
    runs: dict[tuple[str, str], dict[int, str]] = {}
    for fact in facts:
        if fact.what == "start":
            runs.setdefault((fact.job, fact.under), {})[fact.claim_no] = fact.worker
    accepted = {(fact.job, fact.claim_no) for fact in facts if fact.what == "accepted"}
    found = []
    for (job, due), claims in runs.items():
        replaced = [claims[number] for number in sorted(claims)[:-1]]
        both = [number for number in claims if (job, number) in accepted]
        if not dead.issuperset(replaced) or len(both) > 1:
            found.append(f"{job} at {due}: {claims}, accepted {both}")
    return found


# many rows


def _crowd(scene: Scene, proof: Proof, rows: int, rate: int, seconds: float, late: float) -> None:
    """Recurring rows of which most are due on some other day."""
    due = int(rate * seconds)
    with scene.app() as app, fleet(scene, "crowd", processes=2, **OPTIONS) as workers:
        workers.start().until_ready()
        _insert(app, rows - due, datetime.now(UTC) + timedelta(days=1), 60.0)
        begin = datetime.now(UTC) + timedelta(seconds=5.0 + due / 2000)
        ids = _insert(app, due, begin, 1 / rate)
        proof.expect(datetime.now(UTC) < begin, "the rows were not there in time")
        wall = time.time() - time.monotonic()  # one machine, one clock

        def all_ended() -> bool:
            return len({fact.job for fact in scene.facts("accepted")} & ids) == due

        until(all_ended, seconds + 120, "a run of each that is due", every=0.5)
        starts = [fact for fact in scene.facts("start") if fact.job in ids]
    delays = sorted(fact.at + wall - float(fact.under) for fact in starts)
    proof.figures |= {
        "rows": rows,
        "due": due,
        "late by half of them": f"{statistics.median(delays):.3f} s",
        "by 99 of 100": f"{delays[int(len(delays) * 0.99)]:.3f} s",
        "by the last": f"{delays[-1]:.3f} s",
    }
    proof.expect(len(starts) == due, f"{len(starts)} starts of {due}")
    proof.expect(delays[0] > -0.01, f"a run began {-delays[0]:.3f} s before its moment")
    proof.expect(delays[-1] <= late, f"the last began {delays[-1]:.2f} s late, not {late:g} s")


def _insert(app: Holdfast, count: int, begin: datetime, apart: float) -> set[str]:
    ids: set[str] = set()
    while len(ids) < count:
        numbers = range(len(ids), min(count, len(ids) + 1000))
        jobs = [
            new(
                "recurs",
                key=f"{begin.timestamp()}-{number}",
                schedule='{"every":86400}',
                payload='{"ms": 0}',
                run_at=begin + timedelta(seconds=apart * number),
            )
            for number in numbers
        ]
        ids |= {job.id for job in app.engine.insert(jobs)}
    return ids
