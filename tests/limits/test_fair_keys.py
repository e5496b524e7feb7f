"""Limits whose keys take turns (`fair=True`): a key with waiting jobs and free capacity has a job in
line after every claim, end and change, and the keys start in rotation. On both engines, without a
worker, so that nothing is repaired unless the test says so."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from holdfast import Limit
from holdfast.core.clock import FakeClock, to_microseconds
from holdfast.engine.engine import Engine
from holdfast.engine.records import Seen
from holdfast.jobs import outcome
from holdfast.jobs.job import Job
from holdfast.limits.limit import Rule, make_rule, parse_rate, tokens
from tests.conftest import Database
from tests.support import engine_commands
from tests.support.jobs import WORKER, Execute, executing, new

TENANTS = "abcd"
LIMITS = {
    "one": [Limit(1, per="tenant", fair=True)],
    "three": [Limit(3, per="tenant", fair=True)],
    "turns only": [Limit(per="tenant", fair=True)],
    "rate": [Limit(rate="3/s", per="tenant", fair=True)],
    "both": [Limit(2, rate="3/s", per="tenant", fair=True)],
    "whole": [Limit(2, per="tenant", fair=True), Limit(2)],
    "whole rate": [Limit(2, per="tenant", fair=True), Limit(rate="5/s")],
}
OPERATIONS = ["insert", "fetch", "fetch", "end", "end", "time", "promote", "cancel", "edit"]


def rules_of(name: str) -> Mapping[str, Rule]:
    rule = make_rule("send", LIMITS[name], ["tenant"], lambda payload: {})
    assert rule is not None
    return {"send": rule}


@dataclass
class Program:
    """Random operations on an engine, and what must hold after each."""

    engine: Engine
    clock: FakeClock
    limit: Limit
    rules: Mapping[str, Rule]
    priorities: int
    execute: Execute
    held: list[Job] = field(default_factory=list)
    tenants: dict[str, str] = field(default_factory=dict)  #: of each job

    def __post_init__(self) -> None:
        for table in ("jobs", "keys", "workers"):
            self.execute(f"DELETE FROM {{{table}}}")
        self.engine.beat(WORKER, "{}")

    def do(self, operation: str, pick: Random) -> None:
        self.clock.advance(0.001)
        getattr(self, operation)(pick)
        self.check(operation)

    def insert(self, pick: Random) -> None:
        tenant = pick.choice(TENANTS)
        jobs = [
            new(payload=json.dumps({"tenant": tenant}), priority=pick.randrange(self.priorities))
            for _ in range(pick.choice([1, 3, 12]))
        ]
        self.engine.insert(jobs)
        self.tenants |= {job.id: tenant for job in jobs}

    def fetch(self, pick: Random) -> None:
        free = pick.choice([1, 2, 5])
        found = self.engine.claimer.fetch(
            "default", free, worker=WORKER, types=["send"], rules=self.rules
        )
        self.held += found.jobs

    def end(self, pick: Random) -> None:
        if self.held:
            job = self.held.pop(pick.randrange(len(self.held)))
            kind = pick.choice(["completed", "completed", "retried", "snoozed"])
            if kind == "completed":
                self.engine.finish([outcome.completed(job, keep=60.0)])
            elif kind == "retried":
                self.engine.finish([outcome.retry_later(job, "E: no", delay=0.3)])
            else:
                self.engine.finish([outcome.snoozed(job, delay=0.3)])

    def time(self, pick: Random) -> None:
        self.clock.advance(pick.choice([0.1, 0.4, 1.1]))

    def promote(self, pick: Random) -> None:
        self.engine.promote(100)

    def cancel(self, pick: Random) -> None:
        if ids := self.ids("pending", "blocked"):
            engine_commands.cancel(self.engine, [pick.choice(ids)], keep=60.0)
            self.engine.maintenance.repair_limits(
                100
            )  # the job may have had the turn: within seconds, a worker does this

    def edit(self, pick: Random) -> None:
        """Put a job off, also the one that has the turn."""
        if ids := self.ids("pending", "blocked"):
            self.execute(
                "UPDATE {jobs} SET status = 'scheduled' WHERE id = :id AND limit_key IS NOT NULL",
                id=pick.choice(ids),
            )
            self.engine.maintenance.repair_limits(100)

    def ids(self, *statuses: str) -> list[str]:
        return [id for id, status in self.jobs() if status in statuses]

    def jobs(self) -> list[tuple[str, str]]:
        """Each unfinished one with its status, the newest first."""
        rows = self.execute(
            "SELECT id, status FROM {jobs} WHERE status NOT IN ('completed', 'cancelled', 'failed')"
            " ORDER BY id DESC"
        )
        return [(str(id), status) for id, status in rows]

    # what holds

    def check(self, after: str) -> None:
        of: dict[str, Counter[str]] = {}
        for id, status in self.jobs():
            of.setdefault(f"send/tenant={self.tenants[id]}", Counter())[status] += 1
        for key, name, starts, wake_at in self.keys():
            mine = of.get(key, Counter())
            if key == name or not mine["blocked"]:
                continue
            where = f"after {after}: {key}: {mine}"
            running = mine["running"]
            assert self.limit.concurrency is None or running <= self.limit.concurrency, where
            if self.limit.concurrency is not None and running == self.limit.concurrency:
                continue
            spent = self.is_spent(starts)
            assert mine["pending"] or (wake_at is not None and (spent or wake_at)), where

    def is_spent(self, starts: str | None) -> bool:
        if self.limit.rate is None:
            return False
        now = to_microseconds(self.clock.now())
        return not tokens(parse_rate(self.limit.rate), json.loads(starts or "[]"), now).left

    def keys(self) -> list[tuple[str, str, str | None, bool | None]]:
        """Each key; whether it is due by time already, None: no time is written."""
        rows = self.execute("SELECT key, name, starts, wake_at FROM {keys} ORDER BY key")
        now = self.engine.dialect.time(self.clock.now())
        return [(key, name, starts, self.is_past(at, now)) for key, name, starts, at in rows]

    def is_past(self, at: object, now: object) -> bool | None:
        if at is None:
            return None
        if isinstance(at, int) and isinstance(now, int):
            return at <= now
        return at <= self.clock.now()  # type: ignore[operator, no-any-return]

    def run_dry(self) -> None:
        """Everything that is left runs, without any repair."""
        for _ in range(2000):
            if not self.held and not self.ids("pending", "blocked", "scheduled", "retrying"):
                return
            self.clock.advance(0.4)
            self.engine.promote(100)
            self.engine.finish([outcome.completed(job, keep=60.0) for job in self.held])
            self.held = []
            self.fetch(Random(1))
        raise AssertionError(f"jobs wait for ever: {self.engine.counts()}")


@pytest.mark.parametrize("name", LIMITS)
def test_a_key_with_waiting_jobs_and_capacity_has_a_pending_job(
    database: Database, name: str
) -> None:
    clock = FakeClock()
    engine = database.engine(clock)
    engine.open()
    rules = rules_of(name)
    engine.declare(rules["send"].declared)

    @settings(
        max_examples=10 if database.kind == "sqlite" else 5,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(seed=st.integers(0, 10**9), priorities=st.sampled_from([1, 1, 3]))
    def run(seed: int, priorities: int) -> None:
        program = Program(engine, clock, LIMITS[name][0], rules, priorities, execute)
        pick = Random(seed)
        for _ in range(40):
            program.do(pick.choice(OPERATIONS), pick)
        program.run_dry()

    with executing(engine) as execute:
        run()


def each_start(
    engine: Engine, clock: FakeClock, rules: Mapping[str, Rule], free: int
) -> Iterator[str]:
    """Run one after the other, as a worker with so many slots does; the tenant of each start."""
    held: list[Job] = []
    while True:
        clock.advance(0.001)
        found = engine.claimer.fetch(
            "default", free - len(held), worker=WORKER, types=["send"], rules=rules
        )
        held += found.jobs
        yield from (job.payload["tenant"] for job in found.jobs)
        if held and (len(held) >= free or not found.more):
            clock.advance(0.001)
            engine.finish([outcome.completed(held.pop(0), keep=60.0)])
        elif not held and not found.more:
            return


def unfair(starts: list[str], waiting: Mapping[str, int]) -> list[str]:
    """Starts of a tenant, since whose last one another with work did not start."""
    left, since, wrong = Counter(waiting), dict[str, set[str]](), []
    for number, tenant in enumerate(starts):
        missed = {other for other, count in left.items() if count and other != tenant}
        if tenant in since and missed - since[tenant]:
            wrong.append(f"{number}: {tenant} again before {sorted(missed - since[tenant])}")
        left[tenant] -= 1
        for seen in since.values():
            seen.add(tenant)
        since[tenant] = set()
    return wrong


@pytest.mark.parametrize(
    ("name", "slots"),
    [("one", 1), ("three", 1), ("three", 3), ("turns only", 1), ("turns only", 5), ("whole", 1)],
)
@pytest.mark.parametrize("aging", [None, 60.0], ids=["", "aging"])
def test_the_keys_start_in_rotation(
    engine: Engine, clock: FakeClock, name: str, slots: int, aging: float | None
) -> None:
    waiting = {"a": 250, "b": 20, "c": 9, "d": 1}
    for tenant, count in waiting.items():
        job = {"payload": json.dumps({"tenant": tenant}), "aging": aging}
        engine.insert([new(**job) for _ in range(count)])
        clock.advance(1)
    engine.beat(WORKER, "{}")
    starts = list(each_start(engine, clock, rules_of(name), slots))
    assert Counter(starts) == waiting
    assert unfair(starts, waiting) == []


def test_a_key_whose_next_job_has_a_low_priority_does_not_lose_its_turn(
    engine: Engine, clock: FakeClock
) -> None:
    """Its job in line has a low priority and waits behind another key's; its urgent one does not."""
    rules = rules_of("one")
    engine.beat(WORKER, "{}")
    low = [new(payload='{"tenant": "a"}') for _ in range(3)]
    engine.insert(low)
    starts = each_start(engine, clock, rules, 1)
    assert next(starts) == "a"
    engine.insert([new(payload='{"tenant": "b"}', priority=9) for _ in range(20)])
    assert [next(starts) for _ in range(3)] == ["b"] * 3
    engine.insert([new(payload='{"tenant": "a"}', priority=9) for _ in range(3)])
    assert Counter(next(starts) for _ in range(6)) == {"a": 3, "b": 3}


def test_the_last_start_of_a_rate_does_not_end_earlier_parked_jobs(
    engine: Engine, clock: FakeClock
) -> None:
    """The claim that takes the last start parks no job, but the key is still woken."""
    rules = rules_of("both")
    engine.beat(WORKER, "{}")
    engine.insert([new(payload='{"tenant": "a"}') for _ in range(9)])
    options = {"worker": WORKER, "types": ["send"], "rules": rules}
    [first] = engine.claimer.fetch("default", 1, **options).jobs  # and the others are parked
    for _ in range(2):
        engine.finish([outcome.completed(first, keep=60.0)])
        clock.advance(0.001)
        [first] = engine.claimer.fetch("default", 1, **options).jobs
    assert engine.next_due() is not None  # `first` runs on, and there is a slot for another
    clock.advance(1.1)
    assert engine.promote(10).moved == 1
    assert len(engine.claimer.fetch("default", 1, **options).jobs) == 1


def test_a_job_whose_process_died_does_not_wait_for_its_keys_turn(
    engine: Engine, clock: FakeClock
) -> None:
    rules = rules_of("three")
    engine.insert([new(payload='{"tenant": "a"}') for _ in range(5)])
    engine.beat("dead", "{}")
    [lost] = engine.claimer.fetch("default", 1, worker="dead", types=["send"], rules=rules).jobs
    engine.sweep([Seen("dead", 1)], limit=100)
    engine.beat(WORKER, "{}")
    [again] = engine.claimer.claim_suspects(
        ["default"], 1, worker=WORKER, types=["send"], rules=rules
    )
    assert again.id == lost.id


def shared_rules(*types: str) -> dict[str, Rule]:
    limit = Limit(1, per="tenant", fair=True, name="tenant")
    rules = {type: make_rule(type, [limit], ["tenant"], lambda payload: {}) for type in types}
    return {type: rule for type, rule in rules.items() if rule is not None}


@pytest.mark.parametrize("served", [True, False], ids=["served", "not served"])
def test_a_turn_that_no_live_worker_can_use_ends(
    engine: Engine, clock: FakeClock, served: bool
) -> None:
    """Two tasks share the keys, and the workers of one are gone: it must not hold up the other."""
    rules = shared_rules("a", "b")
    engine.declare([row for rule in rules.values() for row in rule.declared])
    engine.beat("of-a", '{"tasks": ["a"], "queues": ["default"]}')
    engine.beat(WORKER, '{"tasks": ["b"], "queues": ["default"]}')
    engine.insert([new("b", payload='{"tenant": "x"}')])
    options = {"worker": WORKER, "types": ["b"], "rules": rules}
    [first] = engine.claimer.fetch("default", 1, **options).jobs
    urgent = new("a", payload='{"tenant": "x"}', priority=9)
    engine.insert([urgent, *(new("b", payload='{"tenant": "x"}') for _ in range(3))])
    both = {"worker": "of-a", "types": ["a", "b"], "rules": rules}
    assert engine.claimer.fetch("default", 5, **both).jobs == []  # parks them all: the key is full
    engine.finish([outcome.completed(first, keep=60.0)])  # and the urgent one gets the turn
    assert engine.get([urgent.id])[0].status == "pending"
    if not served:
        engine.leave("of-a")
        engine.sweep([Seen("of-a", None)], limit=10)

    def look() -> list[Job]:
        engine.maintenance.repair_limits(100)
        return engine.claimer.fetch("default", 5, **options).jobs

    clock.advance(29)
    assert look() == []
    clock.advance(2)
    assert [job.type for job in look()] == ([] if served else ["b"])
