"""Limits, checked at claim: whole, shared, per key, per queue, rates; on both engines."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import Holdfast, InvalidInput, Limit
from holdfast.core.clock import FakeClock
from holdfast.engine.engine import Engine
from holdfast.engine.records import Seen
from holdfast.jobs import outcome
from holdfast.jobs.job import Job, Status
from holdfast.limits.admission import Candidate, admit
from holdfast.limits.limit import Rule
from tests.support import engine_commands
from tests.support.engine_commands import claim_as
from tests.support.jobs import WORKER, new


def rule(task: str = "send", *limits: Limit) -> Rule:
    from holdfast.limits.limit import make_rule

    made = make_rule(task, limits, ["n", "tenant"], lambda payload: {})
    assert made is not None
    return made


def fetch(
    engine: Engine,
    limit: int = 10,
    *,
    rules: dict[str, Rule],
    worker: str = WORKER,
    queue: str = "default",
    types: Sequence[str] = (),
) -> list[Job]:
    """What a worker gets that asks until there is no more."""
    engine.beat(worker, "{}")
    jobs: list[Job] = []
    while len(jobs) < limit:
        found = engine.claimer.fetch(
            queue, limit - len(jobs), worker=worker, types=types or list(rules), rules=rules
        )
        jobs += found.jobs
        if not found.more:
            break
    return jobs


def complete(engine: Engine, *jobs: Job) -> None:
    engine.finish([outcome.completed(job, keep=60.0) for job in jobs])


def status(engine: Engine, job: Job) -> Status:
    return engine.get([job.id])[0].status


def test_no_more_jobs_run_than_the_limit_allows(engine: Engine):
    rules = {"send": rule("send", Limit(3))}
    jobs = engine.insert([new() for _ in range(5)])
    assert [job.id for job in fetch(engine, rules=rules)] == [job.id for job in jobs[:3]]
    assert fetch(engine, rules=rules, worker="other") == []


def test_a_finish_releases_the_next_job(engine: Engine):
    rules = {"send": rule("send", Limit(2))}
    jobs = engine.insert([new() for _ in range(4)])
    first, second = fetch(engine, rules=rules)
    complete(engine, first)
    assert [job.id for job in fetch(engine, rules=rules)] == [jobs[2].id]
    complete(engine, second)
    assert [job.id for job in fetch(engine, rules=rules)] == [jobs[3].id]


def test_every_outcome_frees_capacity(engine: Engine):
    rules = {"send": rule("send", Limit(1, per="tenant"))}
    ends = [
        lambda job: outcome.retry_later(job, "E: no", delay=3600.0),
        lambda job: outcome.failed(job, "E: no", keep=60.0),
        lambda job: outcome.snoozed(job, delay=3600.0),
        lambda job: outcome.stopped(job, keep=60.0),
        lambda job: outcome.completed(job, keep=60.0),
    ]
    engine.insert([new() for _ in range(len(ends) + 1)])
    for end in ends:
        [job] = fetch(engine, rules=rules)
        engine.finish([end(job)])
    assert len(fetch(engine, rules=rules)) == 1


def test_a_limit_shared_by_tasks(engine: Engine):
    shared = Limit(3, name="api")
    rules = {"send": rule("send", shared), "load": rule("load", shared)}
    engine.insert([new("send"), new("load"), new("send"), new("load")])
    taken = fetch(engine, rules=rules)
    assert [job.type for job in taken] == ["send", "load", "send"]
    complete(engine, taken[0])
    assert [job.type for job in fetch(engine, rules=rules)] == ["load"]


def test_a_limit_shared_by_two_queues_of_which_one_is_paused(engine: Engine):
    shared = Limit(2, name="api")
    rules = {"send": rule("send", shared), "load": rule("load", shared)}
    engine.insert([new("send", queue="a") for _ in range(3)])
    engine.insert([new("load", queue="b") for _ in range(3)])
    engine_commands.pause(engine, "a", True)
    assert fetch(engine, rules=rules, queue="a") == []
    held = fetch(engine, rules=rules, queue="b")
    assert len(held) == 2
    engine_commands.pause(engine, "a", False)
    assert fetch(engine, rules=rules, queue="a") == []
    complete(engine, held[0])
    assert len(fetch(engine, rules=rules, queue="a")) == 1
    assert fetch(engine, rules=rules, queue="b") == []


def test_other_tasks_run_while_a_limit_is_reached(engine: Engine):
    rules = {"send": rule("send", Limit(1))}
    engine.insert([new("send") for _ in range(50)])
    others = engine.insert([new("load") for _ in range(3)])
    taken = fetch(engine, rules=rules, types=["send", "load"])
    assert Counter(job.type for job in taken) == {"send": 1, "load": 3}
    assert {job.id for job in others} < {job.id for job in taken}


def test_priority_holds_across_limited_and_unlimited_tasks(engine: Engine):
    rules = {"send": rule("send", Limit(2))}
    engine.insert([new("load", priority=5), new("send", priority=7), new("send", priority=1)])
    engine.insert([new("load", priority=3), new("send", priority=9)])
    taken = fetch(engine, 4, rules=rules, types=["send", "load"])
    assert [(job.type, job.priority) for job in taken] == [
        *(("send", 9), ("send", 7), ("load", 5), ("load", 3))
    ]


@pytest.mark.parametrize("limit", [Limit(1), Limit(1, per="tenant")], ids=["whole", "keyed"])
def test_a_higher_priority_that_comes_later_runs_first(engine: Engine, limit: Limit):
    rules = {"send": rule("send", limit)}
    engine.insert([new(), new()])
    [first] = fetch(engine, rules=rules)
    [late] = engine.insert([new(priority=10)])
    assert fetch(engine, rules=rules) == []
    complete(engine, first)
    assert [job.id for job in fetch(engine, rules=rules)] == [late.id]


# keys


def keyed(*tenants: Any) -> list[Any]:
    return [new(payload=f'{{"tenant": "{tenant}"}}') for tenant in tenants]


def test_each_key_has_its_own_capacity(engine: Engine):
    rules = {"send": rule("send", Limit(2, per="tenant"))}
    jobs = engine.insert(keyed(*"aaaabbc"))
    taken = fetch(engine, rules=rules)
    assert Counter(job.limit_key for job in taken) == {
        "send/tenant=a": 2,
        "send/tenant=b": 2,
        "send/tenant=c": 1,
    }
    waiting = [status(engine, job) for job in jobs[2:4]]
    assert waiting == [Status.BLOCKED, Status.BLOCKED]
    complete(engine, taken[0])
    [third] = fetch(engine, rules=rules)
    assert third.id == jobs[2].id


def test_limit_keys_by_several_arguments_and_by_a_function(engine: Engine):
    rules = {
        "send": rule("send", Limit(1, per=("n", "tenant"))),
        "load": rule("load", Limit(1, per=lambda **_: "all")),
    }
    engine.insert([new(payload=p) for p in ('{"n":1,"tenant":"a"}', '{"n":2,"tenant":"a"}')])
    engine.insert([new("load"), new("load")])
    taken = fetch(engine, rules=rules)
    assert sorted(str(job.limit_key) for job in taken) == [
        "load/lambda=all",
        'send/n.tenant=[1, "a"]',
        'send/n.tenant=[2, "a"]',
    ]


def test_a_limit_key_that_cannot_be_computed_fails_the_job(engine: Engine):
    def wrong(**_: Any) -> str:
        raise RuntimeError("no tenant")

    rules = {"send": rule("send", Limit(1, per=wrong))}
    engine.insert([new()])
    [job] = fetch(engine, rules=rules)
    assert "no tenant" in str(job.verdict)


def test_a_dead_workers_jobs_count_until_they_are_rescued(engine: Engine):
    rules = {"send": rule("send", Limit(2, per="tenant"))}
    engine.insert(keyed(*"aaaa"))
    assert len(fetch(engine, rules=rules, worker="dead")) == 2
    assert fetch(engine, rules=rules) == []
    engine.leave("dead")
    assert len(engine.sweep([Seen("dead", None)], limit=10).rescued) == 2
    assert len(fetch(engine, rules=rules)) == 2
    assert fetch(engine, rules=rules) == []


def test_a_deleted_job_frees_capacity(engine: Engine):
    rules = {"send": rule("send", Limit(1, per="tenant"))}
    jobs = engine.insert(keyed("a", "a"))
    [held] = fetch(engine, rules=rules)
    assert fetch(engine, rules=rules) == []
    engine_commands.delete(engine, [held.id])
    assert [job.id for job in fetch(engine, rules=rules)] == [jobs[1].id]


def test_unreported_free_capacity_is_found(app: Holdfast):
    engine = app.engine
    rules = {"send": rule("send", Limit(1, per="tenant"))}
    jobs = engine.insert(keyed("a", "a", "b", "b"))
    fetch(engine, rules=rules)
    waiting = [job for job in jobs if status(engine, job) is Status.BLOCKED]
    app.limits.set("send/tenant", 2)
    engine.promote(100)
    assert {job.id for job in fetch(engine, rules=rules)} == {job.id for job in waiting}


def test_repair_releases_jobs_after_a_lost_notification(engine: Engine):
    rules = {"send": rule("send", Limit(1, per="tenant"))}
    engine.insert(keyed("a", "a", "b", "b"))
    held = fetch(engine, rules=rules)
    finishes = [outcome.completed(job, keep=60.0) for job in held]
    for finish in finishes:
        finish.limit_key = None  # type: ignore[misc]
    engine.finish(finishes)
    assert fetch(engine, rules=rules) == []
    assert engine.maintenance.repair_limits(1) + engine.maintenance.repair_limits(1) == 2
    assert len(fetch(engine, rules=rules)) == 2


def test_fair_keys_take_turns(engine: Engine, clock: FakeClock):
    rules = {"send": rule("send", Limit(5, per="tenant", fair=True))}
    engine.insert(keyed(*"aaaaaa", *"bb", "c"))
    clock.advance(1)
    order = []
    for _ in range(9):
        [job] = fetch(engine, 1, rules=rules)
        order.append(str(job.limit_key)[-1])
        clock.advance(1)
        complete(engine, job)
    assert order[:3] == ["a", "b", "c"]
    assert order == ["a", "b", "c", "a", "b", "a", "a", "a", "a"]


# queues


def test_a_queue_has_its_own_limit(app: Holdfast):
    engine = app.engine
    app.queues.limit("default", 2)
    engine.insert([new("send"), new("load"), new("send")])
    held = fetch(engine, rules={}, types=["send", "load"])
    assert [job.type for job in held] == ["send", "load"]
    complete(engine, held[0])
    assert len(fetch(engine, rules={}, types=["send", "load"])) == 1
    app.queues.limit("default")
    engine.insert([new("load") for _ in range(3)])
    assert len(fetch(engine, rules={}, types=["send", "load"])) == 3


def test_a_queues_limit_counts_jobs_that_run_already(app: Holdfast):
    engine = app.engine
    engine.insert([new() for _ in range(4)])
    held = fetch(engine, 3, rules={}, types=["send"])
    app.queues.limit("default", 3)
    assert claim_as(engine, "default", 1, worker=WORKER, types=["send"]) == []
    assert fetch(engine, rules={}, types=["send"]) == []
    complete(engine, held[0])
    assert len(fetch(engine, rules={}, types=["send"])) == 1


# rates


def test_a_rate_bounds_the_starts_in_every_period(engine: Engine, clock: FakeClock):
    rules = {"send": rule("send", Limit(rate="3/m"))}
    engine.insert([new() for _ in range(10)])
    assert len(fetch(engine, rules=rules)) == 3
    found = engine.claimer.fetch("default", 5, worker=WORKER, types=["send"], rules=rules)
    assert found.jobs == []
    assert found.due == pytest.approx(60.6, abs=0.7)
    clock.advance(59)
    assert fetch(engine, rules=rules) == []
    clock.advance(2)
    assert len(fetch(engine, rules=rules)) == 3


def test_a_rate_per_key_parks_and_releases_jobs(engine: Engine, clock: FakeClock):
    rules = {"send": rule("send", Limit(rate="1/m", per="tenant"))}
    engine.insert(keyed("a", "a", "b"))
    assert len(fetch(engine, rules=rules)) == 2
    assert fetch(engine, rules=rules) == []
    assert engine.next_due() == pytest.approx(60.6, abs=0.7)
    clock.advance(61)
    assert engine.promote(10).moved == 1
    assert len(fetch(engine, rules=rules)) == 1


# changing and listing


def test_limits_are_rows_that_can_be_changed(app: Holdfast):
    engine = app.engine
    rules = {"send": rule("send", Limit(2, rate="100/m"))}
    engine.insert([new() for _ in range(6)])
    assert len(fetch(engine, rules=rules)) == 2
    [info] = app.limits.list()
    assert (info.name, info.concurrency, info.rate, info.running) == ("send", 2, "100/m", 2)
    app.limits.set("send", 4)
    assert app.limits.list()[0].changed
    assert len(fetch(engine, rules=rules)) == 2
    app.limits.reset("send")
    assert app.limits.list()[0].concurrency == 2
    assert fetch(engine, rules=rules) == []


def test_an_operators_limit_survives_a_change_in_the_code(app: Holdfast):
    engine = app.engine
    limited = rule("send", Limit(2))
    engine.declare(limited.declared)
    app.limits.set("send", 1)
    engine.declare(limited.declared)
    assert app.limits.list()[0].concurrency == 1


def test_an_unknown_limit_is_refused(app: Holdfast):
    with pytest.raises(InvalidInput, match="no limit named 'nope'"):
        app.limits.set("nope", 1)
    with pytest.raises(InvalidInput, match="give a concurrency"):
        app.limits.set("nope")


def test_an_unreadable_limit_is_not_treated_as_unlimited():
    limited = rule("send", Limit(1))
    unknown = admit([Candidate("job", limited, None)], 5, {}, None, {})
    assert (unknown.take, unknown.park) == ([], [])
