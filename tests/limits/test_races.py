"""Limits under real concurrency: eight processes that claim and finish, without any worker, so that no
service repairs what a claim or a finish left; and limits that are used up by dead workers."""

import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from holdfast import Limit
from holdfast.engine.engine import Engine
from holdfast.engine.open import open_engine
from holdfast.engine.records import Seen
from holdfast.jobs import outcome
from holdfast.jobs.job import FINISHED, Job
from holdfast.limits.limit import Rule, make_rule
from tests.conftest import Database
from tests.support.history import HistoryEntry, HistoryWriter, check_history, peak_concurrency, read
from tests.support.jobs import claim_suspect, new

ROOT = Path(__file__).resolve().parents[2]
RACERS = 8
PATIENCE = 60.0
API = Limit(3, name="api")
FAIR = {
    "fair": 1,
    "paced": 2,
    "both": 2,
}  # tasks whose keys take turns: at most so many of a tenant
LIMITS = {"api": 3, "one=a": 1, "one=b": 1, "two=a": 2, "two=b": 2, "two=c": 2, "narrow": 5}
LIMITS |= {f"{type}={tenant}": most for type, most in FAIR.items() for tenant in "abc"}


def rule(task: str, *limits: Limit) -> Rule:
    made = make_rule(task, limits, ["tenant"], lambda payload: {})
    assert made is not None
    return made


RULES = {
    "load": rule("load", API),
    "one": rule("one", Limit(1, per="tenant")),
    "two": rule("two", Limit(2, per="tenant"), API),
    "fair": rule("fair", Limit(FAIR["fair"], per="tenant", fair=True)),
    "paced": rule("paced", Limit(FAIR["paced"], rate="30/s", per="tenant", fair=True)),
    "both": rule("both", Limit(FAIR["both"], per="tenant", fair=True), API),
}
TYPES = {"default": ["load", "one", "two", *FAIR, "free"], "narrow": ["free", "other"]}


def tags(job: Job) -> str:
    """The limits that a job counts under."""
    if job.queue == "narrow":
        return "narrow"
    tenant = f"{job.type}={job.payload['tenant']}"
    if job.type in ("two", "both"):
        return f"{tenant},api"
    return "api" if job.type == "load" else "-" if job.type == "free" else tenant


def test_eight_processes_never_exceed_a_limit(database: Database, tmp_path: Path) -> None:
    log = tmp_path / "history.log"
    with database.app() as app:
        app.migrate()
        app.queues.limit("narrow", LIMITS["narrow"])
        chance = random.Random(1)
        jobs = [
            new(
                chance.choice(TYPES[queue]),
                queue=queue,
                payload=json.dumps({"tenant": chance.choice("abc")}),
            )
            for queue in chance.choices(["default", "narrow"], [3, 1], k=600)
        ]
        jobs = [job for job in jobs if (job.type, job.payload) != ("one", '{"tenant": "c"}')]
        ids = [job.id for job in app.engine.insert(jobs)]
        with racers(database, log):
            pass
        found = {job.id: job.status.value for job in app.jobs.search()}
        infos = app.limits.list()
    entries = read(log)
    problems = vars(check_history(entries, ids, found, limits=LIMITS))
    assert {name: what[:3] for name, what in problems.items() if what} == {}
    assert [info for info in infos if info.running or info.waiting] == []
    full = peak_concurrency(entries)
    full["two=a"] = max(full[f"two={tenant}"] for tenant in "abc")  # one of them, as "api" is small
    assert [full[name] for name in ("api", "one=a", "two=a")] == [3, 1, 2]
    assert (
        full["narrow"] > 2
    )  # and at most 5: that was checked above; a busy machine may not fill it
    assert all_took_part(entries)


@contextlib.contextmanager
def racers(database: Database, log: Path) -> Iterator[None]:
    """Start all of them together, and wait until they have ended."""
    command = [sys.executable, "-m", __spec__.name, database.url, database.schema, str(log)]
    running = [
        subprocess.Popen(
            [*command, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        for number in range(RACERS)
    ]
    try:
        for one in running:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        for one in running:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        yield
        assert [one.wait(PATIENCE) for one in running] == [0] * RACERS
    finally:
        for one in running:
            one.kill()
            one.communicate()


def all_took_part(entries: list[HistoryEntry]) -> bool:
    return len({entry.pid for entry in entries if entry.kind == "start"}) == RACERS


def race(engine: Engine, history: HistoryWriter, number: int) -> None:
    """Take a few, hold some of them, end the others, until none are left."""
    chance = random.Random(number)
    worker = f"host-{os.getpid()}-{number}"
    engine.beat(worker, "{}")
    held: list[Job] = []
    deadline = time.monotonic() + PATIENCE
    while held or unfinished(engine):
        assert time.monotonic() < deadline, f"jobs were left: {engine.counts()}"
        engine.promote(100)
        for queue, types in TYPES.items():
            free = chance.randrange(1, 5)
            found = engine.claimer.fetch(queue, free, worker=worker, types=types, rules=RULES)
            for job in found.jobs:
                history.note("start", job.id, job.claim_no, tags=tags(job))
            held += found.jobs
        time.sleep(chance.uniform(0.0, 0.004))
        chance.shuffle(held)
        ended, held = held[len(held) // 3 :], held[: len(held) // 3]
        for job in ended:
            history.note("end", job.id, job.claim_no)
        engine.finish([outcome.completed(job, keep=3600.0) for job in ended])


def unfinished(engine: Engine) -> int:
    return sum(count for status, count in engine.counts().items() if status not in FINISHED)


def main() -> None:
    url, schema, log, number = sys.argv[1:]
    engine = open_engine(url, schema=schema)
    engine.open()
    print("ready", flush=True)
    sys.stdin.readline()
    race(engine, HistoryWriter(log), int(number))
    engine.close()


# limits that the dead have filled


def test_a_limit_filled_by_dead_workers_opens_when_they_are_declared_dead(engine: Engine) -> None:
    rules = {"load": rule("load", Limit(3))}
    loads = engine.insert([new("load") for _ in range(10)])
    for name in ("a", "b", "c"):  # they claim, and are never heard again
        engine.beat(name, "{}")
        [_] = engine.claimer.fetch("default", 1, worker=name, types=["load"], rules=rules).jobs
    seen = [Seen(worker.id, worker.beat_no) for worker in engine.workers()]
    engine.beat("living", "{}")
    assert fetch(engine, rules) == []
    swept = engine.sweep(seen, limit=100)
    assert sorted(swept.buried) == ["a", "b", "c"]
    assert {job.id for job in swept.rescued} == {job.id for job in loads[:3]}
    taken = fetch(engine, rules)
    assert [job.id for job in taken] == [job.id for job in loads[3:6]]
    assert claim_suspect(engine, worker="living", types=["load"]) != []  # without the rules
    finished = run_all(engine, rules, taken)
    assert finished == 9


def test_suspect_jobs_of_dead_workers_run_alone_within_the_limit(engine: Engine) -> None:
    rules = {"load": rule("load", Limit(1, per="tenant"))}
    engine.insert([new("load", payload='{"tenant": "a"}') for _ in range(4)])
    engine.beat("dead", "{}")
    [lost] = engine.claimer.fetch("default", 5, worker="dead", types=["load"], rules=rules).jobs
    engine.sweep([Seen("dead", 1)], limit=100)
    engine.beat("living", "{}")
    [taken] = fetch(engine, rules)
    options = {"worker": "living", "types": ["load"], "rules": rules}
    assert engine.claimer.claim_suspects(["default"], 1, **options) == []
    engine.finish([outcome.completed(taken, keep=60.0)])
    [again] = engine.claimer.claim_suspects(["default"], 1, **options)
    assert (again.id, again.claim_no) == (lost.id, 2)
    assert fetch(engine, rules) == []
    assert run_all(engine, rules, [again]) == 3


def test_other_tasks_run_at_full_rate_while_dead_workers_fill_a_limit(engine: Engine) -> None:
    rules = {"load": rule("load", Limit(3)), "keyed": rule("keyed", Limit(3, per="tenant"))}
    engine.insert([new("load", priority=9) for _ in range(200)])
    engine.insert([new("keyed", priority=9, payload='{"tenant": "a"}') for _ in range(200)])
    for name in ("a", "b", "c"):
        engine.beat(name, "{}")
        options = {"worker": name, "rules": rules}
        assert engine.claimer.fetch("default", 1, types=["load"], **options).jobs
        assert engine.claimer.fetch("default", 1, types=["keyed"], **options).jobs
    others = engine.insert([new("send") for _ in range(100)])
    engine.beat("living", "{}")
    taken = fetch(engine, rules, types=["load", "keyed", "send"], limit=100, times=4)
    assert {job.id for job in taken} == {job.id for job in others}


def fetch(
    engine: Engine,
    rules: dict[str, Rule],
    *,
    types: list[str] | None = None,
    limit: int = 10,
    times: int = 10,
) -> list[Job]:
    """Return what a worker gets that asks until there is no more, at most so many times."""
    jobs: list[Job] = []
    for _ in range(times):
        found = engine.claimer.fetch(
            "default",
            limit - len(jobs),
            worker="living",
            types=types or list(rules),
            rules=rules,
        )
        jobs += found.jobs
        if not found.more or len(jobs) == limit:
            break
    return jobs


def run_all(engine: Engine, rules: dict[str, Rule], taken: list[Job]) -> int:
    """End them, and whatever can be taken then; how many."""
    finished = 0
    while taken:
        engine.finish([outcome.completed(job, keep=60.0) for job in taken])
        finished += len(taken)
        taken = fetch(engine, rules) or engine.claimer.claim_suspects(
            ["default"], 3, worker="living", types=list(rules), rules=rules
        )
    return finished


if __name__ == "__main__":
    main()
