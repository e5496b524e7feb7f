"""`app.health()` and `holdfast health`: every reason why no work is done has its sentence."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Holdfast, InvalidInput
from holdfast.core.clock import FakeClock
from holdfast.engine.engine import Engine
from holdfast.monitoring.health import Health
from tests.cli.command import Command
from tests.conftest import Database
from tests.support.jobs import WORKER, execute, insert, running


@pytest.fixture
def app(database: Database, clock: FakeClock) -> Holdfast:
    return database.app(clock=clock)


def live(engine: Engine, **told: object) -> None:
    engine.beat(WORKER, json.dumps({"queues": ["default"], "tasks": ["send"], **told}))


def problem(health: Health) -> str:
    assert not health.ok
    [text] = health.problems
    return text


def test_nothing_to_do_needs_no_worker(app: Holdfast):
    health = app.health()
    assert (health.ok, health.problems, health.workers) == (True, [], 0)
    assert health.oldest_pending is None


def test_work_that_is_done_is_well(app: Holdfast):
    live(app.engine)
    insert(app.engine)
    running(app.engine)
    live(app.engine)
    assert app.health().ok
    assert app.health().workers == 1


def test_jobs_without_a_worker(app: Holdfast, clock: FakeClock):
    insert(app.engine)
    assert problem(app.health()).startswith("no worker lives, while 1 jobs are pending")
    running(app.engine)
    clock.advance(16)
    lost = app.health()
    assert any("and 2 running" in text for text in lost.problems)
    assert lost.silent_workers == [WORKER]
    assert any("silent for 16 s" in text for text in lost.problems)


def test_types_that_nobody_knows(app: Holdfast):
    live(app.engine)
    for _ in range(3):
        insert(app.engine)
        insert(app.engine, "transcode", priority=7)
    health = app.health()
    assert "no live worker knows task 'transcode'" in problem(health)
    assert health.unknown_types == ["transcode"]
    live(app.engine, tasks=["send", "transcode"])
    assert app.health().ok


def test_a_worker_that_does_not_tell_its_tasks_is_believed(app: Holdfast):
    app.engine.beat(WORKER, "{}")
    insert(app.engine, "anything", queue="anywhere")
    assert app.health().ok


def test_queues_that_nobody_serves(app: Holdfast):
    live(app.engine)
    insert(app.engine, queue="media")
    assert "no live worker serves queue 'media'" in problem(app.health())
    assert app.health().unknown_types == []


def test_a_worker_that_drains_serves_nobody(app: Holdfast):
    live(app.engine, draining=True)
    insert(app.engine)
    assert "no live worker serves queue 'default'" in problem(app.health())


def test_age(app: Holdfast, clock: FakeClock):
    insert(app.engine, priority=-1)
    clock.advance(50)
    for _ in range(3):
        insert(app.engine, priority=9)
    clock.advance(10)
    live(app.engine)
    assert app.health().oldest_pending == 60.0
    assert app.health(max_age="2m").ok
    assert "has been due for 60 s, over the limit of 59 s" in problem(app.health(max_age=59))
    with pytest.raises(InvalidInput, match="max_age"):
        app.health(max_age="soon")


def test_a_job_is_as_old_as_its_due_time(app: Holdfast, clock: FakeClock):
    insert(app.engine, delay=3600.0)
    clock.advance(3700)
    live(app.engine)
    for _ in range(2):  # once as scheduled, which nobody has made pending
        assert "has been due for 100 s" in problem(app.health(max_age="1m"))
        assert app.health(max_age="5m").ok
        assert app.health().oldest_pending == 100.0
        app.engine.promote(10)


def test_a_due_job_that_nobody_makes_pending(app: Holdfast, clock: FakeClock):
    insert(app.engine, delay=60.0)
    assert app.health().ok
    clock.advance(61)
    assert "no worker lives" in problem(app.health())


def test_paused_queues(app: Holdfast):
    live(app.engine)
    app.queues.pause("default")
    empty = app.health()
    assert empty.ok
    assert [text.split(":")[0][:23] for text in empty.warnings] == ["queue 'default' is paus"]
    insert(app.engine)
    assert "with 1 jobs pending" in problem(app.health())
    assert app.health().paused_queues == ["default"]


def test_stuck_jobs(app: Holdfast):
    live(app.engine, jobs=[{"id": "07", "type": "send", "stuck": True}])
    health = app.health()
    assert "job 07 (send) is past its timeout" in problem(health)
    assert health.stuck_jobs == ["07"]


def test_a_database_out_of_reach_is_a_problem(tmp_path: object):
    with Holdfast("postgresql://127.0.0.1:1/x") as app:
        assert "127.0.0.1" in problem(app.health())
    with Holdfast(f"sqlite:///{tmp_path}/none/jobs.db") as app:
        assert "none" in problem(app.health())


def test_tables_that_are_missing_are_a_problem(bare_database: Database):
    app = bare_database.app(auto_migrate=False)
    assert "holdfast migrate" in problem(app.health())


async def _ahealth(app: Holdfast) -> Health:
    return await app.ahealth(max_age=5)


def test_the_async_twin(app: Holdfast):
    import asyncio

    insert(app.engine)
    assert "no worker lives" in problem(asyncio.run(_ahealth(app)))


# the walk over what is pending


def test_the_backlog_is_every_kind_with_its_longest_waiting(app: Holdfast, clock: FakeClock):
    made: dict[tuple[str, str, int], datetime] = {}
    for _ in range(3):
        for queue in ("a", "b"):
            for type in ("x", "y"):
                for priority in (-3, 0, 5):
                    job = insert(app.engine, type, queue=queue, priority=priority)
                    made.setdefault((queue, type, priority), job.run_at)
                    clock.advance(1)
    suspect = insert(app.engine, "x", queue="a", priority=5)
    execute(app.engine, "UPDATE {jobs} SET suspect = (1 = 1) WHERE id = :id", id=suspect.id)
    found = app.engine.backlog()
    expected = [(queue, type, due) for (queue, type, _), due in made.items()]
    assert sorted(found) == sorted([*expected, ("a", "x", suspect.run_at)])
    assert app.engine.backlog(limit=5) == found[:5]


def explain(database: Database, sql: str, params: dict[str, object]) -> list[str]:
    import psycopg

    with psycopg.connect(database.url) as connection:
        connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
        return [row[0] for row in connection.execute(f"EXPLAIN {sql}", params)]


# the command


def test_the_command(command: Command, now: Engine):
    healthy = command("health")
    assert (healthy.code, healthy.out.split()[0]) == (0, "healthy")
    insert(now)
    sick = command("health", "--json")
    assert sick.code == 1
    told = sick.json
    assert list(told) == [
        *("ok", "problems", "warnings", "checks", "jobs", "workers", "oldest_pending"),
        *("unknown_types", "paused_queues", "stuck_jobs", "silent_workers"),
    ]
    names = ["name", "ok", "detail", "measured", "threshold", "warning"]
    assert [list(check) for check in told["checks"]] == [names] * 16
    assert [check["name"] for check in told["checks"] if not check["ok"]] == ["workers"]
    assert (told["ok"], told["jobs"]["pending"], len(told["problems"])) == (False, 1, 1)
    assert command("health").out.startswith("problem  no worker lives")


@pytest.mark.parametrize("limit", ["60", "60s", "1m"])
def test_the_commands_limit(command: Command, now: Engine, limit: str):
    past = command.database.engine(FakeClock(datetime.now(UTC) - timedelta(minutes=5)))
    insert(past)
    live(now)
    assert command("health").code == 0
    assert command("health", "--max-age", limit).code == 1
    assert command("health", HOLDFAST_HEALTH_MAX_AGE=limit).code == 1
    assert command("health", "--max-age", "soon").code == 2
    assert command("health", "--max-age", "none", HOLDFAST_HEALTH_MAX_AGE=limit).code == 0
    assert command("health", "--stall", "1m").code == 1
    assert command("health", "--expected-workers", "2").code == 1
    assert command("health", "--failure-rate", "7").code == 2


@pytest.mark.parametrize("url", ["sqlite:///none.db", "postgresql://127.0.0.1:1/x"])
def test_the_command_about_an_absent_database(
    local: Command, url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(local.cwd)
    files = sorted(local.cwd.iterdir())
    absent = local("health", "--json", HOLDFAST_URL=url)
    assert absent.code == 1
    assert absent.json["ok"] is False
    assert [check["name"] for check in absent.json["checks"]] == ["database"]
    assert sorted(local.cwd.iterdir()) == files
