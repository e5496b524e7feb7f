"""What is asked of the engines for workflows; they add themselves to the others."""

import json
from dataclasses import replace
from functools import partial

from holdfast.engine import Engine, flows
from holdfast.engine.inspection import LAST_ID
from holdfast.engine.script import Run, Script
from holdfast.ids import new_id
from holdfast.job import Edge, NewJob
from tests.plans.cases import LIMIT, case
from tests.plans.world import FLOW, World


@case("insert_workflow insert insert_edges", needs="")
def _start_workflow(engine: Engine, world: World) -> None:
    id = new_id()
    first = NewJob(id=new_id(), type="t0", payload="{}", workflow_id=id, node="n")
    more = [replace(first, id=new_id(), after=(Edge(first.id),)) for _ in range(LIMIT)]
    script = partial(flows.start, engine.dialect, id, "w", [first, *more])
    assert len(engine.run(script, write=True)) == LIMIT + 1


@case(
    "look_again stirred lock_workflows unseen settle free see state callbacks",
    rows=60 * LIMIT,
    needs="unseen workflow",
)
def _advance(engine: Engine, world: World) -> None:
    """The first jobs, for which all others wait, fail, and others are added."""
    heads = world.flows("blocked", 5)
    engine.run(partial(_look_again, heads), write=True)
    assert engine.advance(LIMIT) == 5  # they wait for nobody
    jobs = [job.id for job in engine.get(heads)]
    engine.cancel(jobs, keep=60.0)
    assert engine.advance(LIMIT) == 5 * (FLOW - 1)


@case("lock_workflows reopen unsettle mark_workflow", rows=20 * LIMIT, needs="workflow")
def _retry_workflow(engine: Engine, world: World) -> None:
    [id] = world.flows("failed", 1)
    assert engine.run(lambda: flows.retry(engine.dialect, id), write=True) == FLOW


@case("lock_workflows members cancel drop", rows=20 * LIMIT, needs="workflow")
def _stop_workflow(engine: Engine, world: World) -> None:
    [id] = world.flows("blocked", 1)
    assert engine.run(lambda: flows.stop(engine.dialect, id, 60.0), write=True) == FLOW


@case("release_node")
def _release_node(engine: Engine, world: World) -> None:
    [id] = world.flows("blocked", 1)
    engine.run(lambda: flows.release(engine.dialect, id, id), write=True)


@case("parents edges workflows tally members", rows=30 * LIMIT, needs="workflow")
def _look_at_workflows(engine: Engine, world: World) -> None:
    ids = world.flows("completed", 5)
    assert len(engine.run(lambda: flows.find(engine.dialect, ids), write=False)) == 5
    page = engine.run(lambda: flows.listing(engine.dialect, LAST_ID, LIMIT), write=False)
    assert [info.total for info in page[1:]] == [FLOW] * (LIMIT - 1)
    jobs = engine.run(lambda: flows.members(engine.dialect, ids[0]), write=False)
    names = [job.id for job in jobs]
    assert len(engine.run(lambda: flows.edges(names), write=False)) == FLOW - 1
    for results in (True, False):
        script = partial(flows.parents, names[-1], results=results)
        assert len(engine.run(script, write=False)) == 1


@case("orphans abandoned prune_workflows", rows=20 * LIMIT)
def _find_orphans(engine: Engine, world: World) -> None:
    engine.find_orphans(LIMIT)
    engine.find_orphans(LIMIT)


def _look_again(ids: list[str]) -> Script[None]:
    yield Run("look_again", {"ids": json.dumps(ids)})
