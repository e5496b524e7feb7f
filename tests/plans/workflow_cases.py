"""Cases for the statements of workflows; importing this module registers them."""

import json
from dataclasses import replace
from functools import partial

from holdfast.core.ids import new_id
from holdfast.engine.engine import Engine
from holdfast.engine.script import Run, Script
from holdfast.jobs.job import Edge, NewJob
from holdfast.jobs.read import LAST_ID
from holdfast.workflows import scripts as workflow_scripts
from tests.plans.cases import LIMIT, case
from tests.plans.dataset import FLOW, Dataset
from tests.support import engine_commands


@case("insert_workflow insert insert_edges", needs="")
def _start_workflow(engine: Engine, dataset: Dataset) -> None:
    id = new_id()
    first = NewJob(id=new_id(), type="t0", payload="{}", workflow_id=id, node="n")
    more = [replace(first, id=new_id(), after=(Edge(first.id),)) for _ in range(LIMIT)]
    script = partial(workflow_scripts.start, engine.dialect, id, "w", [first, *more])
    assert len(engine.run(script, write=True)) == LIMIT + 1


@case(
    "follow_up_again changed_workflows lock_workflows changed_jobs record_outcomes free "
    "mark_followed_up workflow_states callbacks",
    rows=60 * LIMIT,
    needs="unseen workflow",
)
def _advance(engine: Engine, dataset: Dataset) -> None:
    """The first jobs, for which all others wait, fail, and others are added."""
    heads = dataset.flows("blocked", 5)
    engine.run(partial(_look_again, heads), write=True)
    assert engine.maintenance.advance_workflows(LIMIT) == 5  # they wait for no job
    jobs = [job.id for job in engine.get(heads)]
    engine_commands.cancel(engine, jobs, keep=60.0)
    assert engine.maintenance.advance_workflows(LIMIT) == 5 * (FLOW - 1)


@case("lock_workflows reopen clear_outcomes mark_workflow", rows=20 * LIMIT, needs="workflow")
def _retry_workflow(engine: Engine, dataset: Dataset) -> None:
    [id] = dataset.flows("failed", 1)
    assert engine.run(lambda: workflow_scripts.retry(engine.dialect, id), write=True) == FLOW


@case("lock_workflows members cancel drop", rows=20 * LIMIT, needs="workflow")
def _stop_workflow(engine: Engine, dataset: Dataset) -> None:
    [id] = dataset.flows("blocked", 1)
    assert engine.run(lambda: workflow_scripts.stop(engine.dialect, id, 60.0), write=True) == FLOW


@case("release_node")
def _release_node(engine: Engine, dataset: Dataset) -> None:
    [id] = dataset.flows("blocked", 1)
    engine.run(lambda: workflow_scripts.release(engine.dialect, id, id), write=True)


@case("parents edges workflows workflow_counts members", rows=30 * LIMIT, needs="workflow")
def _look_at_workflows(engine: Engine, dataset: Dataset) -> None:
    ids = dataset.flows("completed", 5)
    assert len(engine.run(lambda: workflow_scripts.find(engine.dialect, ids), write=False)) == 5
    page = engine.run(lambda: workflow_scripts.listing(engine.dialect, LAST_ID, LIMIT), write=False)
    assert [info.total for info in page[1:]] == [FLOW] * (LIMIT - 1)
    jobs = engine.run(lambda: workflow_scripts.members(engine.dialect, ids[0]), write=False)
    names = [job.id for job in jobs]
    assert len(engine.run(lambda: workflow_scripts.edges(names), write=False)) == FLOW - 1
    for results in (True, False):
        script = partial(workflow_scripts.parents, names[-1], results=results)
        assert len(engine.run(script, write=False)) == 1


@case("orphans abandoned prune_workflows", rows=20 * LIMIT)
def _find_orphans(engine: Engine, dataset: Dataset) -> None:
    engine.maintenance.find_orphans(LIMIT)
    engine.maintenance.find_orphans(LIMIT)


def _look_again(ids: list[str]) -> Script[None]:
    yield Run("follow_up_again", {"ids": json.dumps(ids)})
