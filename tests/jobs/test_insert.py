"""Inserting: what is written, what the caller learns, and keys."""

import dataclasses
from datetime import timedelta

import pytest

from holdfast import InvalidArguments, KeyConflict, Status
from holdfast.core.clock import FakeClock
from holdfast.engine.engine import Engine
from holdfast.engine.records import Filter
from holdfast.jobs import outcome
from holdfast.jobs.job import FINISHED
from tests.conftest import Database
from tests.support import engine_commands
from tests.support.jobs import claim, execute, in_status, insert, new, running
from tests.support.threads import in_threads


def test_insert_returns_the_written_rows(engine: Engine, clock: FakeClock) -> None:
    made = engine.insert(
        [
            new(priority=7, queue="media", entity_type="movie", entity_id="7", max_attempts=9),
            new(delay=90.0, key="k", timeout=2.5),
            new(run_at=clock.now() + timedelta(days=1)),
            new(run_at=clock.now() - timedelta(days=1)),
        ]
    )
    read = engine.get([job.id for job in made])
    assert [job.status for job in read] == ["pending", "scheduled", "scheduled", "pending"]
    assert all(job.created for job in made)
    assert [dataclasses.replace(job, created=False) for job in made] == read
    assert read[1].run_at - clock.now() == timedelta(seconds=90)
    assert read[0].entity == ("movie", 7)


def test_a_batch_keeps_its_order(engine: Engine) -> None:
    made = engine.insert([new(payload=f'{{"n":{n}}}') for n in range(1000)])
    assert [job.payload["n"] for job in claim(engine, 1000)] == list(range(1000))
    assert all(job.status is Status.PENDING for job in made)


def test_a_repeated_insert_creates_no_duplicate(engine: Engine) -> None:
    """The reply to a commit was lost, and the client sends the same ids again."""
    jobs = [new(), new(key="k")]
    many = [new() for _ in range(100)]
    first = engine.insert(jobs), engine.insert(many)
    second = engine.insert(jobs), engine.insert(many)
    assert [[job.id for job in part] for part in first] == [[job.id for job in p] for p in second]
    assert all(job.created for part in second for job in part)
    assert len(engine.search(Filter(), limit=500).jobs) == 102


def test_unusual_but_valid_text_survives(engine: Engine) -> None:
    payload = (
        '{"nul":"\\u0000","emoji":"🎬","quote":"\'\\"; --","big":123456789012345678901234567890}'
    )
    job = insert(engine, payload=payload, key="'; DROP TABLE jobs; --\u2028", queue="a.b:c/d-e")
    assert engine.get([job.id])[0].body == job.body
    assert job.payload["nul"] == "\x00"
    assert job.payload["big"] == 123456789012345678901234567890


def test_a_live_key_returns_the_existing_job(engine: Engine) -> None:
    first = insert(engine, key="k", payload='{"n":1}')
    second = insert(engine, key="k", payload='{"n":2}')
    assert (second.id, second.created, second.payload) == (first.id, False, {"n": 1})


def test_keys_are_unique_per_task(engine: Engine) -> None:
    assert insert(engine, "send", key="k").created
    assert insert(engine, "fetch", key="k").created


@pytest.mark.parametrize("status", sorted(FINISHED))
def test_a_finished_job_frees_its_key(engine: Engine, status: Status) -> None:
    old = in_status(engine, status, key="k")
    fresh = insert(engine, key="k")
    assert fresh.created
    assert fresh.id != old.id


@pytest.mark.parametrize("status", sorted(set(Status) - FINISHED))
def test_an_unfinished_job_holds_its_key(engine: Engine, status: Status) -> None:
    job = in_status(engine, status, key="k")
    assert insert(engine, key="k").id == job.id
    with pytest.raises(KeyConflict, match=f"{job.id}.*holds the key 'k'"):
        insert(engine, key="k", on_conflict="raise")


def test_the_same_key_twice_in_one_insert(engine: Engine) -> None:
    one, two = engine.insert([new(key="k", payload='{"n":1}'), new(key="k", payload='{"n":2}')])
    assert (one.created, two.created, one.id) == (True, False, two.id)
    one, two = engine.insert(
        [new(key="j", payload='{"n":1}'), new(key="j", payload='{"n":2}', on_conflict="replace")]
    )
    assert one.id == two.id
    assert two.payload == {"n": 2}


def test_a_raised_conflict_writes_nothing_of_its_insert(engine: Engine) -> None:
    insert(engine, key="k")
    with pytest.raises(KeyConflict):
        engine.insert([new(), new(key="k", on_conflict="raise"), new()])
    assert len(engine.search(Filter()).jobs) == 1


def test_replace_takes_the_new_payload_and_keeps_the_time(engine: Engine, clock: FakeClock) -> None:
    first = insert(engine, key="k", delay=60.0)
    clock.advance(10)
    again = insert(
        engine, key="k", on_conflict="replace", payload='{"n":2}', priority=5, delay=500.0
    )
    assert (again.id, again.created) == (first.id, False)
    assert (again.payload, again.priority, again.rank) == ({"n": 2}, 5, -5)
    assert (again.run_at, again.status) == (first.run_at, "scheduled")


def test_debounce_postpones_the_run(engine: Engine, clock: FakeClock) -> None:
    first = insert(engine, key="k", delay=60.0)
    for _ in range(5):
        clock.advance(50)
        last = insert(engine, key="k", on_conflict="debounce", payload='{"n":2}', delay=60.0)
    assert (last.id, last.payload) == (first.id, {"n": 2})
    assert last.run_at - clock.now() == timedelta(seconds=60)
    assert engine.promote(10).moved == 0
    clock.advance(60)
    assert engine.promote(10).moved == 1


@pytest.mark.parametrize("policy", ["replace", "debounce"])
def test_a_newer_request_for_a_running_job_makes_it_run_again(
    engine: Engine, clock: FakeClock, policy: str
) -> None:
    held = running(engine, key="k", payload='{"n":1}')
    found = insert(engine, key="k", payload='{"n":2}', on_conflict=policy, delay=30.0)
    assert (found.id, found.status, found.created) == (held.id, "running", False)
    engine.finish([outcome.completed(held, "1", keep=60.0)])
    after = engine.get([held.id])[0]
    assert after.payload == {"n": 2}
    assert (after.attempts, after.result, after.completed_at) == (0, None, None)
    if policy == "debounce":
        assert after.status == "scheduled"
        clock.advance(30)
        engine.promote(10)
    [again] = claim(engine)
    assert (again.id, again.payload, again.claim_no) == (held.id, {"n": 2}, 2)
    engine.finish([outcome.completed(again, "2", keep=60.0)])
    assert engine.get([held.id])[0].result == 2


def test_a_cancel_after_a_newer_request_wins_and_before_it_loses(engine: Engine) -> None:
    first = running(engine, key="a")
    insert(engine, key="a", on_conflict="replace")
    engine_commands.cancel(engine, [first.id], keep=60.0)
    engine.finish([outcome.released(first)])
    assert engine.get([first.id])[0].status == "cancelled"

    second = running(engine, key="b")
    engine_commands.cancel(engine, [second.id], keep=60.0)
    insert(engine, key="b", on_conflict="replace")
    engine.finish([outcome.stopped(second, keep=60.0)])
    after = engine.get([second.id])[0]
    assert (after.status, after.cancel_requested) == ("pending", False)


def test_concurrent_inserts_share_commits_and_lose_no_job(database: Database) -> None:
    engine = database.engine()

    def work(number: int) -> list[str]:
        return [insert(engine, payload=f'{{"n":{number}}}').id for _ in range(20)]

    ids = [id for part in in_threads(32, work) for id in part]
    assert len(set(ids)) == 640
    assert {job.id for job in engine.get(ids)} == set(ids)


def test_one_invalid_member_of_a_group_harms_no_other(database: Database) -> None:
    """Requests that share a commit: those that must fail fail alone."""
    engine = database.engine()
    insert(engine, key="taken")

    def work(number: int) -> str:
        if number % 2:
            with pytest.raises(KeyConflict):
                engine.insert([new(), new(key="taken", on_conflict="raise")])
            return ""
        return insert(engine).id

    made = [id for id in in_threads(32, work) if id]
    assert len(made) == 16
    assert len(engine.search(Filter(), limit=100).jobs) == 17


def test_a_member_refused_by_the_database_harms_no_other(database: Database) -> None:
    """Past the checks of the API: a priority that no column holds."""
    engine = database.engine()

    def work(number: int) -> object:
        if number % 4 == 0:
            with pytest.raises(InvalidArguments, match="cannot store a value"):
                insert(engine, priority=2**70)
            return None
        return insert(engine)

    in_threads(16, work)
    assert len(engine.search(Filter(), limit=100).jobs) == 12


def test_the_key_index_decides_between_concurrent_inserts(engine: Engine) -> None:
    """Whatever a verb does, the database itself refuses two live jobs of one key."""
    insert(engine, key="k")
    other = insert(engine)
    with pytest.raises(Exception, match=r"(?i)unique"):
        execute(engine, "UPDATE {jobs} SET key = 'k' WHERE id = :id", id=other.id)
