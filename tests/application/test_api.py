"""The methods of an application: tasks, options, `app.jobs`, `app.queues`, stats; sync and async."""

import asyncio
import dataclasses
import inspect
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from holdfast import (
    Holdfast,
    InvalidArguments,
    InvalidTransition,
    JobNotFound,
    KeyConflict,
    Status,
    UnknownTask,
)
from holdfast.jobs import outcome
from holdfast.jobs.client import Jobs
from holdfast.jobs.queues import Queues
from holdfast.limits.client import Limits
from holdfast.schedules.client import Schedules
from holdfast.tasks.task import Task
from holdfast.tasks.using import Using
from holdfast.workflows.client import Workflows
from tests.support.jobs import claim


@dataclasses.dataclass
class Address:
    street: str
    since: datetime


@pytest.fixture
def send(app: Holdfast) -> Task:
    @app.task(queue="mail", priority=3, max_attempts=5, timeout="2m")
    def send(to: str, copies: int = 1, address: Address | None = None) -> str:
        return f"{to} x{copies}"

    return send


def test_a_task_is_still_a_plain_function(send: Task) -> None:
    assert send("x", copies=2) == "x x2"


def test_enqueue_binds_arguments_and_takes_the_tasks_defaults(app: Holdfast, send: Task) -> None:
    job = send.enqueue("ann", copies=2)
    assert app.jobs.get(job.id) == dataclasses.replace(job, created=False)
    assert (job.type, job.queue, job.priority, job.max_attempts) == ("send", "mail", 3, 5)
    assert (job.payload, job.created, job.status) == ({"to": "ann", "copies": 2}, True, "pending")


def test_types_survive_the_round_trip(app: Holdfast, send: Task) -> None:
    since = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    job = send.enqueue(to="ann", address=Address("Main St", since))
    payload = app.jobs.get(job.id).body.payload
    assert send.arguments.decode(payload)["address"] == Address("Main St", since)


def test_using_sets_options_of_later_jobs(app: Holdfast, send: Task) -> None:
    job = (
        send.using(priority=-2, queue="slow", delay="90s", key="k")
        .using(entity=("movie", 7), max_attempts=1, timeout=None)
        .enqueue("ann")
    )
    found = app.jobs.get(job.id)
    assert (found.priority, found.queue, found.key) == (-2, "slow", "k")
    assert (found.entity, found.max_attempts, found.timeout) == (("movie", 7), 1, 0.0)
    assert found.status == "scheduled"
    assert found.run_at - found.created_at == timedelta(seconds=90)


def test_run_at_is_kept_to_the_microsecond_in_any_timezone(app: Holdfast, send: Task) -> None:
    from zoneinfo import ZoneInfo

    moment = datetime.now(ZoneInfo("Asia/Kathmandu")) + timedelta(days=1)
    job = send.using(run_at=moment).enqueue("ann")
    assert app.jobs.get(job.id).run_at == moment
    assert job.run_at.utcoffset() == timedelta(0)


def test_enqueue_many_is_all_or_nothing(app: Holdfast, send: Task) -> None:
    jobs = send.enqueue_many({"to": f"n{n}"} for n in range(120))
    assert [job.payload["to"] for job in jobs] == [f"n{n}" for n in range(120)]
    with pytest.raises(InvalidArguments, match="copies"):
        send.enqueue_many([{"to": "ok"}, {"to": "bad", "copies": "many"}])
    assert app.jobs.count() == 120
    assert send.enqueue_many([]) == []


def test_enqueue_by_name_with_and_without_a_registered_task(app: Holdfast, send: Task) -> None:
    known = app.enqueue("send", {"to": "ann"}, delay=5)
    assert (known.queue, known.status) == ("mail", "scheduled")
    with pytest.raises(InvalidArguments, match="to: is missing"):
        app.enqueue("send", {})
    foreign = app.enqueue("elsewhere", {"any": ["thing", 1.5, None]}, priority=9)
    assert (foreign.type, foreign.priority, foreign.queue) == ("elsewhere", 9, "default")
    assert app.enqueue("elsewhere").payload == {}


def test_an_unknown_task_names_the_known_ones(app: Holdfast, send: Task) -> None:
    with pytest.raises(UnknownTask, match=r"no task named 'sned'.*registered: send"):
        app.find_task("sned")


def test_the_async_twins_do_the_same(app: Holdfast, send: Task) -> None:
    async def scenario() -> None:
        one = await send.aenqueue("ann")
        two = await send.using(key="k").aenqueue("ben")
        [three] = await send.aenqueue_many([{"to": "cid"}])
        four = await app.aenqueue("send", {"to": "dan"})
        found = [job.id async for job in app.jobs.asearch(queue="mail")]
        assert found == [four.id, three.id, two.id, one.id]
        assert (await app.jobs.aget(one.id)).payload == {"to": "ann"}
        assert (await app.jobs.acancel(one.id)).status == "cancelled"
        assert (await app.jobs.aretry(one.id)).status == "pending"
        assert (await app.jobs.acancel_all(type="send")).changed == 4
        assert await app.jobs.acount(status="cancelled") == 4
        assert (await app.jobs.adelete(four.id)).id == four.id
        await app.queues.apause("mail")
        assert [(q.name, q.paused_at is not None) for q in await app.queues.alist()] == [
            ("mail", True)
        ]
        await app.queues.aresume("mail")
        assert (await app.astats()).jobs[Status.CANCELLED] == 3
        assert await app.jobs.aattempts(one.id) == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "owner", [Jobs, Queues, Limits, Schedules, Workflows, Task, Using, Holdfast]
)
def test_every_method_has_an_async_twin_with_the_same_signature(owner: type) -> None:
    engine_commands = {
        name: member
        for name, member in inspect.getmembers(owner, inspect.isfunction)
        if not name.startswith("_")
    }
    only_sync = {"using", "new_job", "task", "find_task", "detached", "worker", "on"}
    only_sync |= {"lifespan", "migrate", "close", "recurring", "forget"}
    only_sync |= {"call", "follow", "following", "workflow"}
    only_sync |= {"list"} if owner is Schedules else set()
    twins = {f"a{name}": name for name in engine_commands if f"a{name}" in engine_commands}
    twins |= {"async_": "sync"} if "sync" in engine_commands else {}  # "async" is a word of Python
    assert set(engine_commands) == set(twins) | set(twins.values()) | (
        only_sync & set(engine_commands)
    )
    for twin, name in twins.items():
        one, two = (
            inspect.signature(engine_commands[twin]),
            inspect.signature(engine_commands[name]),
        )
        assert list(one.parameters.values()) == list(two.parameters.values()), name


def test_jobs_get_accepts_strings_and_uuids(app: Holdfast, send: Task) -> None:
    job = send.enqueue("ann")
    assert app.jobs.get(UUID(job.id)).id == app.jobs.get(job.id.upper()).id == job.id
    with pytest.raises(JobNotFound, match="no job has the id 00000000"):
        app.jobs.get("00000000-0000-7000-8000-000000000000")


def test_search_iterates_over_all_pages(app: Holdfast, send: Task) -> None:
    made = send.enqueue_many({"to": str(n)} for n in range(250))
    newest_first = [job.id for job in reversed(made)]
    assert [job.id for job in app.jobs.search(type="send")] == newest_first
    assert [job.id for job in app.jobs.search(limit=130)] == newest_first[:130]
    assert [job.id for job in app.jobs.search(status=["pending", "failed"], limit=3)] == (
        newest_first[:3]
    )
    assert list(app.jobs.search(limit=0)) == []
    assert app.jobs.count(status="pending") == 250
    assert app.jobs.count(type="send", queue="mail") == 250
    assert app.jobs.count(type="send", cap=20) == 20


def test_cancel_retry_delete_by_id(app: Holdfast, send: Task) -> None:
    job = send.enqueue("ann")
    assert app.jobs.cancel(job.id).status == "cancelled"
    assert app.jobs.cancel(job.id).status == "cancelled"  # what is done is done
    assert app.jobs.retry(job.id).status == "pending"
    assert app.jobs.delete(job.id).id == job.id
    for verb in (app.jobs.cancel, app.jobs.retry, app.jobs.delete):
        with pytest.raises(JobNotFound):
            verb(job.id)


def test_commands_that_the_status_does_not_allow_are_refused(app: Holdfast, send: Task) -> None:
    send.using(key="k").enqueue("ann")
    [held] = claim(app.engine, queue="mail")
    assert app.jobs.cancel(held.id).cancel_requested
    with pytest.raises(InvalidTransition, match=r"is running: cancel it first"):
        app.jobs.retry(held.id)
    app.engine.finish([outcome.completed(held, "1", keep=60.0)])
    with pytest.raises(InvalidTransition, match="is completed: it is too late"):
        app.jobs.cancel(held.id)
    send.using(key="k").enqueue("ben")
    with pytest.raises(KeyConflict, match='holds its key "k"'):
        app.jobs.retry(held.id)


def test_commands_by_entity_and_by_filter(app: Holdfast, send: Task) -> None:
    for number in range(3):
        send.using(entity=("movie", number % 2)).enqueue("ann")
    send.enqueue("ben")
    assert app.jobs.cancel_all(entity=("movie", 0)).changed == 2
    assert app.jobs.count(status="cancelled") == 2
    assert app.jobs.retry_all(status="cancelled").changed == 2
    assert app.jobs.delete_all(entity=("movie", 1)).changed == 1
    assert app.jobs.delete_all(type="send", queue="mail").changed == 3
    assert app.jobs.count() == 0


def test_a_command_by_filter_changes_more_than_one_batch(app: Holdfast, send: Task) -> None:
    send.enqueue_many({"to": str(n)} for n in range(1203))
    assert app.jobs.cancel_all(type="send").changed == 1203
    assert app.jobs.retry_all(status="cancelled", type="send").changed == 1203
    assert app.jobs.count(status="pending") == 1203


def test_attempts_are_shown_with_the_job(app: Holdfast, send: Task) -> None:
    job = send.enqueue("ann")
    [held] = claim(app.engine, queue="mail")
    app.engine.finish([outcome.failed(held, "ValueError: no", "Traceback: ...", keep=60.0)])
    assert [kept.trace for kept in app.jobs.attempts(job.id)] == ["Traceback: ..."]


def test_stats_and_queues(app: Holdfast, send: Task) -> None:
    send.enqueue_many([{"to": "a"}, {"to": "b"}])
    claim(app.engine, queue="mail")
    app.queues.pause("mail")
    stats = app.stats()
    assert (stats.jobs[Status.PENDING], stats.jobs[Status.RUNNING]) == (1, 1)
    assert stats.jobs[Status.FAILED] == 0
    assert [(queue.name, queue.depth) for queue in stats.queues] == [("mail", 1)]
    assert stats.workers == 1
    assert app.queues.list()[0].paused_at is not None
    app.queues.resume("mail")
    assert app.queues.list()[0].paused_at is None
