"""Workflows: jobs that wait for other jobs, on both engines."""

import contextlib
import sqlite3
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from holdfast import (
    Context,
    Discard,
    Holdfast,
    HoldfastError,
    InvalidInput,
    InvalidTransition,
    JobNotFound,
)
from holdfast.jobs.job import Job, Status
from holdfast.testing import drain
from holdfast.workflows.builder import Node, Workflow
from tests.conftest import Database


class Lab:
    """An application with a task that records its calls, and fails if a test asks for it."""

    def __init__(self, app: Holdfast) -> None:
        self.app = app
        self.ran: list[str] = []
        self.bad: set[str] = set()
        self.results: dict[str, dict[str, Any]] = {}

        @app.task(max_attempts=1)
        def step(ctx: Context, name: str) -> str:
            self.ran.append(name)
            self.results[name] = ctx.results
            if name in self.bad:
                raise Discard(f"{name} is bad")
            return f"<{name}>"

        self.step = step

    def add(self, flow: Workflow, name: str, *after: Any, policy: str = "cancel") -> Node:
        options = {"after": list(after), "on_parent_failure": policy, "node": name}
        return flow.add(self.step.using(**options), name=name)

    def drain(self) -> list[str]:
        before = len(self.ran)
        drain(self.app, raise_errors=False)
        return self.ran[before:]

    def statuses(self, flow: Workflow) -> dict[str, str]:
        return {str(job.node): job.status.value for job in self.app.workflows.jobs(flow.id)}


@pytest.fixture
def lab(database: Database) -> Lab:
    return Lab(database.app())


def connect(database: Database) -> Any:
    if database.kind == "sqlite":
        return sqlite3.connect(database.path, isolation_level=None)
    return psycopg.connect(database.url, autocommit=True)


def diamond(lab: Lab, policy: str = "cancel") -> Workflow:
    with lab.app.workflow("diamond") as flow:
        top = lab.add(flow, "top")
        left, right = lab.add(flow, "left", top), lab.add(flow, "right", top, policy=policy)
        lab.add(flow, "bottom", left, right, policy=policy)
    return flow


def test_a_child_starts_when_its_parents_have_finished(lab: Lab) -> None:
    flow = diamond(lab)
    assert lab.statuses(flow) == {
        "top": "pending",
        "left": "blocked",
        "right": "blocked",
        "bottom": "blocked",
    }
    assert lab.drain() == ["top", "left", "right", "bottom"]
    assert set(lab.statuses(flow).values()) == {"completed"}
    assert lab.results["bottom"] == {"left": "<left>", "right": "<right>"}
    info = lab.app.workflows.get(flow.id)
    assert (info.status, info.progress, info.total) == (Status.COMPLETED, 100.0, 4)
    assert info.finished_at is not None


def test_no_job_exists_when_the_block_fails(lab: Lab) -> None:
    with contextlib.suppress(ZeroDivisionError), lab.app.workflow() as flow:
        lab.add(flow, "top")
        raise ZeroDivisionError
    with pytest.raises(JobNotFound, match="no workflow"):
        lab.app.workflows.get(flow.id)
    assert lab.drain() == []


@pytest.mark.parametrize("commits", [True, False])
def test_a_workflow_is_made_in_the_callers_transaction(
    database: Database, lab: Lab, commits: bool
) -> None:
    lab.app.engine.open()
    with contextlib.closing(connect(database)) as connection:
        connection.execute("BEGIN")
        with lab.app.workflow(tx=connection) as flow:
            lab.add(flow, "second", lab.add(flow, "first"))
        connection.execute("COMMIT" if commits else "ROLLBACK")
    assert lab.drain() == (["first", "second"] if commits else [])
    assert [one.id for one in lab.app.workflows.list()] == ([flow.id] if commits else [])


def test_a_failure_cancels_its_dependents_with_the_reason(lab: Lab) -> None:
    lab.bad = {"left"}
    flow = diamond(lab)
    assert lab.drain() == ["top", "left", "right"]
    assert lab.statuses(flow)["bottom"] == "cancelled"
    [bottom] = [job for job in lab.app.workflows.jobs(flow.id) if job.node == "bottom"]
    assert bottom.error == "Cancelled: left, which it waited for, failed"
    assert bottom.completed_at is not None
    assert bottom.keep_until is not None
    assert lab.app.workflows.get(flow.id).status is Status.FAILED


def test_a_failure_cancels_all_descendants(lab: Lab) -> None:
    lab.bad = {"top"}
    flow = diamond(lab)
    assert lab.drain() == ["top"]
    assert lab.statuses(flow) == {"top": "failed"} | dict.fromkeys(
        ("left", "right", "bottom"), "cancelled"
    )


def test_the_continue_policy_runs_a_job_after_a_failure(lab: Lab) -> None:
    lab.bad = {"left"}
    flow = diamond(lab, "continue")
    assert lab.drain() == ["top", "left", "right", "bottom"]
    assert lab.results["bottom"] == {"left": None, "right": "<right>"}
    assert lab.app.workflows.get(flow.id).status is Status.FAILED


def test_the_hold_policy_waits_until_the_failed_job_is_retried(lab: Lab) -> None:
    lab.bad = {"left"}
    flow = diamond(lab, "hold")
    assert lab.drain() == ["top", "left", "right"]
    [left] = [job for job in lab.app.workflows.jobs(flow.id) if job.node == "left"]
    [bottom] = [job for job in lab.app.workflows.jobs(flow.id) if job.node == "bottom"]
    assert lab.app.jobs.why(bottom.id) == [
        "held: left, which it waits for, failed; retry that one, or release this one"
    ]
    lab.bad = set()
    lab.app.jobs.retry(left.id)
    assert lab.drain() == ["left", "bottom"]
    assert lab.app.workflows.get(flow.id).status is Status.COMPLETED


def test_a_retried_job_makes_a_finished_workflow_run_again(lab: Lab) -> None:
    lab.bad = {"top"}
    flow = diamond(lab)
    lab.drain()
    assert lab.app.workflows.get(flow.id).status is Status.FAILED
    lab.app.jobs.retry(lab.app.workflows.jobs(flow.id)[0].id)
    lab.app.engine.maintenance.advance_workflows(100)
    info = lab.app.workflows.get(flow.id)
    assert (info.status, info.finished_at) == (Status.RUNNING, None)
    lab.bad = set()
    assert lab.drain() == ["top"]
    assert lab.app.workflows.get(flow.id).status is Status.CANCELLED  # as those that waited are


def test_a_held_job_can_be_released(lab: Lab) -> None:
    lab.bad = {"left"}
    flow = diamond(lab, "hold")
    lab.drain()
    [bottom] = [job for job in lab.app.workflows.jobs(flow.id) if job.node == "bottom"]
    lab.app.workflows.release(bottom.id)
    assert lab.drain() == ["bottom"]
    with pytest.raises(InvalidTransition, match="not held"):
        lab.app.workflows.release(bottom.id)


def test_each_edge_has_its_own_policy(lab: Lab) -> None:
    lab.bad = {"optional"}
    with lab.app.workflow() as flow:
        optional, needed = lab.add(flow, "optional"), lab.add(flow, "needed")
        lab.add(flow, "end", needed, (optional, "continue"))
    assert lab.drain() == ["optional", "needed", "end"]
    assert lab.results["end"] == {"needed": "<needed>", "optional": None}


def test_a_workflow_is_retried_from_its_failed_job(lab: Lab) -> None:
    lab.bad = {"left"}
    with lab.app.workflow() as flow:
        top = lab.add(flow, "top")
        left, right = lab.add(flow, "left", top), lab.add(flow, "right", top)
        bottom = lab.add(flow, "bottom", left, right)
        lab.add(flow, "last", bottom)
        flow.on_completed(lab.step, name="all done")
        flow.on_failed(lab.step, name="something failed")
    assert lab.drain() == ["top", "left", "right", "something failed"]
    lab.bad = set()
    assert lab.app.workflows.retry(flow.id) == 4  # left, bottom, last, and the callback
    assert lab.app.workflows.get(flow.id).status is Status.RUNNING
    assert lab.drain() == ["left", "bottom", "last", "all done"]
    assert lab.results["bottom"] == {"left": "<left>", "right": "<right>"}


def test_cancel_ends_all_jobs_of_a_workflow(lab: Lab) -> None:
    flow = diamond(lab)
    assert lab.app.workflows.cancel(flow.id) == 4
    assert lab.drain() == []
    assert set(lab.statuses(flow).values()) == {"cancelled"}
    assert lab.app.workflows.get(flow.id).status is Status.CANCELLED


@pytest.mark.parametrize("act", ["cancel", "delete"])
def test_a_cancelled_or_deleted_parent_counts_as_failed(lab: Lab, act: str) -> None:
    flow = diamond(lab)
    [top] = [job for job in lab.app.workflows.jobs(flow.id) if job.node == "top"]
    getattr(lab.app.jobs, act)(top.id)
    lab.app.engine.maintenance.find_orphans(100)
    assert lab.drain() == []
    reason = {"cancel": "was cancelled", "delete": "was deleted"}[act]
    errors = {job.node: job.error for job in lab.app.workflows.jobs(flow.id)}
    assert reason in str(errors["left"])
    assert {lab.statuses(flow)[node] for node in ("left", "right", "bottom")} == {"cancelled"}


def test_a_workflow_whose_last_job_is_deleted_ends(lab: Lab) -> None:
    with lab.app.workflow() as flow:
        lab.add(flow, "done")
        last = flow.add(lab.step.using(delay="1h"), name="deleted")
        flow.on_finished(lab.step, name="finished")
    assert lab.drain() == ["done"]
    lab.app.jobs.delete(last.id)
    lab.app.engine.maintenance.find_orphans(100)
    assert lab.drain() == ["finished"]
    assert lab.app.workflows.get(flow.id).status is Status.COMPLETED


@pytest.mark.parametrize(
    ("bad", "expected"),
    [((), ["completed", "finished"]), (("a",), ["failed", "finished"])],
    ids=["all completed", "one failed"],
)
def test_callbacks_run_when_a_workflow_ends(
    lab: Lab, bad: tuple[str, ...], expected: list[str]
) -> None:
    lab.bad = set(bad)
    flow = lab.app.batch(
        [lab.step.call(name=name) for name in "ab"],
        on_completed=lab.step.call(name="completed"),
        on_failed=lab.step.call(name="failed"),
        on_finished=lab.step.call(name="finished"),
    )
    ran = lab.drain()
    assert sorted(ran[:2]) == ["a", "b"] or ran == ["a", "failed", "b", "finished"]
    assert sorted(set(ran) - {"a", "b"}) == expected
    assert lab.app.workflows.get(flow.id).total == 2
    assert lab.app.engine.maintenance.advance_workflows(100) == 0


def test_a_chain_runs_in_order(lab: Lab) -> None:
    flow = lab.app.chain(*(lab.step.call(name=name) for name in "abc"))
    assert lab.drain() == ["a", "b", "c"]
    assert lab.results["c"] == {"step": "<b>"}
    assert lab.app.workflows.get(flow.id).name == "chain"


def test_jobs_can_be_added_while_a_workflow_runs(database: Database) -> None:
    app = database.app()
    ran: list[Any] = []

    @app.task
    def tile(number: int) -> int:
        ran.append(number)
        return number

    @app.task
    def total(ctx: Context) -> int:
        ran.append(sum(ctx.results.values()))
        return sum(ctx.results.values())

    @app.task
    def scan(ctx: Context) -> None:
        tiles = [ctx.workflow.add(tile, number=number) for number in range(3)]
        ctx.workflow.add(total.using(after=[*tiles]))
        ctx.workflow.add(tile.using(after=[ctx.job], node="own"), number=10)

    with app.workflow() as flow:
        flow.add(scan)
        flow.on_finished(tile, number=99)
    drain(app)
    assert ran == [0, 1, 2, 10, 3, 99] or sorted(ran) == [0, 1, 2, 3, 10, 99]
    assert ran[-1] == 99
    assert app.workflows.get(flow.id).total == 6


def test_jobs_added_by_a_failed_run_do_not_exist(database: Database) -> None:
    app = database.app()

    @app.task(max_attempts=1)
    def scan(ctx: Context) -> None:
        ctx.workflow.add(scan)
        raise ValueError("no")

    with app.workflow() as flow:
        flow.add(scan)
    drain(app, raise_errors=False)
    assert app.workflows.get(flow.id).total == 1


def test_a_delay_begins_when_the_workflow_is_made(lab: Lab) -> None:
    with lab.app.workflow() as flow:
        first = lab.add(flow, "first")
        flow.add(lab.step.using(after=[first], delay="1h"), name="later")
    assert lab.drain() == ["first"]
    assert lab.statuses(flow)["step"] == "scheduled"


def test_why_names_the_parents_that_a_job_waits_for(lab: Lab) -> None:
    flow = diamond(lab)
    jobs = {job.node: job for job in lab.app.workflows.jobs(flow.id)}
    assert lab.app.jobs.why(jobs["bottom"].id) == [
        "waits for 2 jobs: left (blocked), right (blocked)"
    ]


def test_many_parents_and_children(lab: Lab) -> None:
    with lab.app.workflow() as flow:
        top = lab.add(flow, "top")
        middle = [lab.add(flow, f"m{number}", top) for number in range(60)]
        lab.add(flow, "bottom", *middle)
    ran = lab.drain()
    assert (ran[0], ran[-1], len(ran)) == ("top", "bottom", 62)
    assert list(lab.results["bottom"]) == [f"m{number}" for number in range(60)]


def test_workflows_are_listed_newest_first(lab: Lab) -> None:
    flows = [diamond(lab) for _ in range(3)]
    ids = [flow.id for flow in reversed(flows)]
    assert [one.id for one in lab.app.workflows.list()] == ids
    assert [one.id for one in lab.app.workflows.list(before=ids[0], limit=1)] == ids[1:2]


BAD: dict[str, tuple[Callable[[Lab, Workflow], object], str]] = {
    "a key": (lambda lab, flow: flow.add(lab.step.using(key="k"), name="x"), "no key="),
    "a transaction": (lambda lab, flow: flow.add(lab.step.using(tx=1), name="x"), "no tx="),
    "no task": (lambda lab, flow: flow.add(print), "give a task"),  # type: ignore[arg-type]
    "unknown policy": (
        lambda lab, flow: lab.add(flow, "x", lab.add(flow, "y"), policy="maybe"),
        "choose one of cancel, continue, hold",
    ),
    "a stranger": (
        lambda lab, flow: lab.add(flow, "x", lab.step.enqueue(name="y").id),
        "no job of this workflow",
    ),
    "twice the same": (
        lambda lab, flow: (lambda y: lab.add(flow, "x", y, y))(lab.add(flow, "y")),
        "names a job twice",
    ),
    "a reserved name": (lambda lab, flow: lab.add(flow, "@x"), "a name is"),
    "outside": (lambda lab, flow: lab.step.using(after=[]).enqueue(name="x"), "of a workflow"),
    "arguments": (lambda lab, flow: flow.add(lab.step, names="x"), "names"),
    "a waiting callback": (
        lambda lab, flow: flow.on_failed(lab.step.using(after=[lab.add(flow, "y")]), name="x"),
        "no after=",
    ),
}


@pytest.mark.parametrize("act", BAD)
def test_bad_input_changes_nothing(lab: Lab, act: str) -> None:
    build, message = BAD[act]

    def make() -> None:
        with lab.app.workflow() as flow:
            lab.add(flow, "good")
            build(lab, flow)

    with pytest.raises(HoldfastError, match=message):
        make()
    assert lab.app.workflows.list() == []


def test_an_empty_workflow_is_refused(lab: Lab) -> None:
    with pytest.raises(InvalidInput, match="has no jobs"), lab.app.workflow() as flow:
        flow.on_finished(lab.step, name="x")
    with pytest.raises(InvalidInput, match="belongs to no workflow"):
        _ = detached_context(lab).workflow


def detached_context(lab: Lab) -> Context:
    return lab.app.detached(lab.step)


# then=


def test_a_then_task_gets_the_result_or_the_arguments(database: Database) -> None:
    app = database.app()
    ran: list[Any] = []

    @app.task
    def publish(id: int, title: str = "") -> None:
        ran.append((id, title))

    @app.task(then=publish)
    def enrich(id: int) -> dict[str, Any] | None:
        return {"id": id, "title": "t"} if id else None

    enrich.using(priority=7, entity=("movie", 3)).enqueue(id=1)
    enrich.enqueue(id=0)
    done = drain(app)
    assert ran == [(1, "t"), (0, "")]
    published = [job for job in done if job.type == "publish"]
    assert [(job.priority, job.entity) for job in published] == [(7, ("movie", 3)), (0, None)]


def test_a_then_function_chooses_the_next_job(database: Database) -> None:
    app = database.app()
    ran: list[str] = []

    @app.task
    def after(name: str) -> None:
        ran.append(name)

    def choose(job: Job, result: int) -> Any:
        if result == 1:
            return after.using(priority=3, entity=("e", 1)).call(name=f"one of {job.payload['n']}")
        return [after.call(name=str(number)) for number in range(result)] or None

    @app.task(then=choose)
    def count(n: int) -> int:
        return n

    for number in (0, 1, 2):
        count.using(priority=9).enqueue(n=number)
    done = drain(app)
    assert sorted(ran) == ["0", "1", "one of 1"]
    assert {(job.priority, job.entity) for job in done if job.type == "after"} == {
        (9, None),
        (3, ("e", 1)),
    }


@pytest.mark.parametrize("bad", [lambda job, result: 1 / 0, lambda job, result: ["no call"]])
def test_a_failing_then_function_fails_the_run(database: Database, bad: Any) -> None:
    app = database.app()

    @app.task(then=bad, max_attempts=1)
    def step() -> None: ...

    job = step.enqueue()
    drain(app, raise_errors=False)
    found = app.jobs.get(job.id)
    assert found.status is Status.FAILED
    assert "ZeroDivisionError" in str(found.error) or "task.call" in str(found.error)


def test_a_then_task_without_arguments_is_refused(database: Database) -> None:
    app = database.app()

    @app.task
    def after(name: str) -> None: ...

    @app.task(then=after, max_attempts=1)
    def step() -> int:
        return 3

    job = step.enqueue()
    drain(app, raise_errors=False)
    assert "no mapping of arguments" in str(app.jobs.get(job.id).error)
    with pytest.raises(InvalidInput, match="then="):
        app.task(then=5, name="x")(lambda: None)  # type: ignore[call-overload]


def test_enqueued_jobs_inherit_priority_and_entity(database: Database) -> None:
    app = database.app()

    @app.task
    def after() -> None: ...

    @app.task
    def step(ctx: Context) -> None:
        ctx.enqueue(after)
        ctx.enqueue(after.using(priority=1, entity=("other", "x")))

    step.using(priority=5, entity=("movie", 7)).enqueue()
    done = drain(app)
    assert [(job.priority, job.entity) for job in done[1:]] == [
        (5, ("movie", 7)),
        (1, ("other", "x")),
    ]
