"""Recurring jobs on five workers that are frozen during runs and thawed later: no due time is missed or
run twice, and no two runs overlap. And many rows of which few are due: these start in time."""

import random
import statistics
import time
from datetime import UTC, datetime, timedelta
from functools import partial

from holdfast import Holdfast, Job
from holdfast.engine.records import Held
from tests.crash.freezes import DeathRecorder, frozen, until_declared_dead
from tests.crash.testbed import CrashTestbed, Report, pause, statuses, until
from tests.crash.worker_group import worker_group
from tests.support.history import HistoryEntry, check_history
from tests.support.jobs import new

LONG_RUN = {
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
OPTIONS = {"app": "tests.crash.limited_tasks:app"}


def run(
    testbed: CrashTestbed,
    *,
    moments: int,
    freezes: int,
    heartbeat: float,
    seed: int,
    rows: int,
    rate: int,
    seconds: float,
    late: float,
) -> Report:
    """`moments`: due times of each recurring job, at least. `rows`: recurring rows in the second part,
    of which `rate` a second are due for some `seconds`, and start at most `late` seconds late."""
    report = Report()
    _schedulers(testbed, report, moments, freezes, heartbeat, random.Random(seed))
    if rows:
        _many_rows(testbed, report, rows, rate, seconds, late)
    return report


# five schedulers


def _schedulers(
    testbed: CrashTestbed,
    report: Report,
    moments: int,
    freezes: int,
    heartbeat: float,
    rng: random.Random,
) -> None:
    options = {**OPTIONS, "heartbeat": heartbeat, "queues": "default=5"}
    with (
        testbed.app() as app,
        worker_group(testbed, "schedulers", **options) as workers,
        DeathRecorder(testbed) as recorder,
    ):
        workers.start(5).until_ready()
        first = {key: _schedule(app, key) for key in KEYS}
        for _ in range(freezes):
            with frozen(testbed, app, workers, rng, in_a_run=True) as ids:
                held = [claim for id in ids for claim in app.engine.held(id)]
                until_declared_dead(recorder, ids)
                until(partial(_again, app, held), 60, "another run of what they held")
                pause(rng.uniform(0.0, 0.3))
            pause(rng.uniform(0.0, 1.0))
        until(lambda: min(_passed(app, first)) >= moments, 300, f"{moments} moments", every=0.1)
        for key in KEYS:
            app.schedules.disable("recurs", key)
        until(lambda: not _running(app), 30, "the end of the last runs")
        last = {key: app.schedules.get("recurs", key) for key in KEYS}
        found = statuses(app)
        dead = set(recorder.dead)
    entries = testbed.entries()
    missed = [
        f"{key} at {due}"
        for key in KEYS
        for due in _moments(first[key], last[key]) - _had(entries, first[key].id)
    ]
    twice = _twice(entries, dead)
    report.figures |= {
        "moments": sum(len(_moments(first[key], last[key])) for key in KEYS),
        "freezes": freezes,
        "runs again": sum(entry.kind == "start" for entry in entries)
        - len({(entry.job, entry.tags) for entry in entries if entry.kind == "start"}),
        "missed": len(missed),
        "twice": len(twice),
    }
    report.take(
        check_history(entries, [job.id for job in first.values()], found, finals=("scheduled",))
    )
    report.expect(not missed, f"moments without a run: {missed[:3]}")
    report.expect(not twice, f"moments with two runs: {twice[:3]}")


def _schedule(app: Holdfast, key: str) -> Job:
    """Schedule a task that this process does not know."""
    plan = f'{{"every":{EVERY},"missed":"all"}}'
    job = new("recurs", key=key, schedule=plan, payload='{"ms": 100}')
    return app.schedules.put(job)


def _again(app: Holdfast, held: list[Held]) -> bool:
    return all(app.jobs.get(one.id).claim_no > one.claim_no for one in held)


def _passed(app: Holdfast, first: dict[str, Job]) -> list[int]:
    rows = {key: app.schedules.get("recurs", key) for key in first}
    return [len(_moments(first[key], rows[key])) for key in first]


def _moments(first: Job, last: Job) -> set[str]:
    """Return the due times from the first to the one before the row's next."""
    assert first.due_at is not None
    assert last.due_at is not None
    step = timedelta(seconds=EVERY)
    count = round((last.due_at - first.due_at) / step)
    return {f"{(first.due_at + number * step).timestamp():.6f}" for number in range(count)}


def _running(app: Holdfast) -> list[Job]:
    return [job for job in app.schedules.list() if job.status == "running"]


def _had(entries: list[HistoryEntry], job: str) -> set[str]:
    """Return the due times with a completed run."""
    ended = {entry.claim_no for entry in entries if entry.kind == "end" and entry.job == job}
    return {
        entry.tags
        for entry in entries
        if entry.kind == "start" and entry.job == job and entry.claim_no in ended
    }


def _twice(entries: list[HistoryEntry], dead: set[str]) -> list[str]:
    """Return the due times with a second run although the first worker was not declared dead, and those
    with two accepted runs."""
    runs: dict[tuple[str, str], dict[int, str]] = {}
    for entry in entries:
        if entry.kind == "start":
            runs.setdefault((entry.job, entry.tags), {})[entry.claim_no] = entry.worker
    accepted = {(entry.job, entry.claim_no) for entry in entries if entry.kind == "accepted"}
    found = []
    for (job, due), claims in runs.items():
        replaced = [claims[number] for number in sorted(claims)[:-1]]
        both = [number for number in claims if (job, number) in accepted]
        if not dead.issuperset(replaced) or len(both) > 1:
            found.append(f"{job} at {due}: {claims}, accepted {both}")
    return found


# many rows


def _many_rows(
    testbed: CrashTestbed, report: Report, rows: int, rate: int, seconds: float, late: float
) -> None:
    """Insert recurring rows of which most are due another day."""
    due = int(rate * seconds)
    with testbed.app() as app, worker_group(testbed, "crowd", processes=2, **OPTIONS) as workers:
        workers.start().until_ready()
        _insert(app, rows - due, datetime.now(UTC) + timedelta(days=1), 60.0)
        begin = datetime.now(UTC) + timedelta(seconds=5.0 + due / 2000)
        ids = _insert(app, due, begin, 1 / rate)
        report.expect(datetime.now(UTC) < begin, "the rows were not there in time")
        wall = time.time() - time.monotonic()  # one machine, one clock

        def all_ended() -> bool:
            return len({entry.job for entry in testbed.entries("accepted")} & ids) == due

        until(all_ended, seconds + 120, "a run of each that is due", every=0.5)
        starts = [entry for entry in testbed.entries("start") if entry.job in ids]
    delays = sorted(entry.at + wall - float(entry.tags) for entry in starts)
    report.figures |= {
        "rows": rows,
        "due": due,
        "late by half of them": f"{statistics.median(delays):.3f} s",
        "by 99 of 100": f"{delays[int(len(delays) * 0.99)]:.3f} s",
        "by the last": f"{delays[-1]:.3f} s",
    }
    report.expect(len(starts) == due, f"{len(starts)} starts of {due}")
    report.expect(delays[0] > -0.01, f"a run began {-delays[0]:.3f} s before its moment")
    report.expect(delays[-1] <= late, f"the last began {delays[-1]:.2f} s late, not {late:g} s")


def _insert(app: Holdfast, count: int, begin: datetime, interval: float) -> set[str]:
    ids: set[str] = set()
    while len(ids) < count:
        numbers = range(len(ids), min(count, len(ids) + 1000))
        jobs = [
            new(
                "recurs",
                key=f"{begin.timestamp()}-{number}",
                schedule='{"every":86400}',
                payload='{"ms": 0}',
                run_at=begin + timedelta(seconds=interval * number),
            )
            for number in numbers
        ]
        ids |= {job.id for job in app.engine.insert(jobs)}
    return ids
