"""`app.workflow()`, `chain` and `batch`; and `app.workflows`: look at them, and change what happens."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from holdfast.core.ids import parse_id
from holdfast.engine.engine import Engine
from holdfast.engine.records import Parent, WorkflowInfo
from holdfast.engine.steps import Runner, Step, Steps
from holdfast.errors import InvalidTransition, JobNotFound
from holdfast.jobs.job import CALLBACK, Job, NewJob, Status
from holdfast.jobs.read import LAST_ID, get
from holdfast.tasks.middleware import Middleware, wrap_enqueue
from holdfast.tasks.task import Call
from holdfast.workflows import scripts as workflow_scripts
from holdfast.workflows.builder import Workflow
from holdfast.workflows.rules import Settled

# A method is named `list`.
_Infos = list[WorkflowInfo]
_Jobs = list[Job]
_Parents = list[Parent]
_Edges = list[Settled]


class Workflows:
    """Every verb that changes something also runs in a caller's transaction: `tx=`."""

    def __init__(self, runner: Runner, retention: Mapping[Status, float]) -> None:
        self._runner = runner
        self._dialect = runner.engine.dialect
        self._retention = retention

    # looking

    def get(self, id: str | UUID) -> WorkflowInfo:
        """How it stands; raises JobNotFound."""
        return self._runner.go(self._get(id))

    async def aget(self, id: str | UUID) -> WorkflowInfo:
        return await self._runner.ago(self._get(id))

    def _get(self, id: str | UUID) -> Steps[WorkflowInfo]:
        known = parse_id(id)
        found: _Infos = yield Step(
            lambda: workflow_scripts.find(self._dialect, [known]), write=False
        )
        if not found:
            raise JobNotFound(f"there is no workflow {known}: it was pruned, or never made")
        return found[0]

    def list(self, *, before: str | UUID | None = None, limit: int = 100) -> _Infos:
        """The newest first; `before`: those older than that one."""
        return self._runner.go(self._list(before, limit))

    async def alist(self, *, before: str | UUID | None = None, limit: int = 100) -> _Infos:
        return await self._runner.ago(self._list(before, limit))

    def _list(self, before: str | UUID | None, limit: int) -> Steps[_Infos]:
        edge = LAST_ID if before is None else parse_id(before)
        found: _Infos = yield Step(
            lambda: workflow_scripts.listing(self._dialect, edge, limit), write=False
        )
        return found

    def jobs(self, id: str | UUID) -> _Jobs:
        """Its jobs in the order in which they were added, without payloads and results."""
        return self._runner.go(self._jobs(id))

    async def ajobs(self, id: str | UUID) -> _Jobs:
        return await self._runner.ago(self._jobs(id))

    def _jobs(self, id: str | UUID) -> Steps[_Jobs]:
        known = (yield from self._get(id)).id
        found: _Jobs = yield Step(
            lambda: workflow_scripts.members(self._dialect, known), write=False
        )
        return [job for job in found if not (job.node or "").startswith(CALLBACK)]

    def parents(self, id: str | UUID) -> _Parents:
        """Whom a job waits for, or waited for, and what came of them."""
        return self._runner.go(self._parents(id))

    async def aparents(self, id: str | UUID) -> _Parents:
        return await self._runner.ago(self._parents(id))

    def _parents(self, id: str | UUID) -> Steps[_Parents]:
        known = parse_id(id)
        found: _Parents = yield Step(partial(workflow_scripts.parents, known), write=False)
        return found

    def edges(self, id: str | UUID) -> _Edges:
        """Who waits for whom in it; an outcome is "" while the parent is waited for."""
        return self._runner.go(self._edges(id))

    async def aedges(self, id: str | UUID) -> _Edges:
        return await self._runner.ago(self._edges(id))

    def _edges(self, id: str | UUID) -> Steps[_Edges]:
        ids = [job.id for job in (yield from self._jobs(id))]
        found: _Edges = yield Step(lambda: workflow_scripts.edges(ids), write=False)
        return found

    # changing

    def cancel(self, id: str | UUID, *, tx: Any = None) -> int:
        """Cancel what is not finished; how many jobs. Those that run are asked to stop."""
        return self._runner.go(self._cancel(id), tx)

    async def acancel(self, id: str | UUID, *, tx: Any = None) -> int:
        return await self._runner.ago(self._cancel(id), tx)

    def _cancel(self, id: str | UUID) -> Steps[int]:
        known = (yield from self._get(id)).id
        keep = self._retention[Status.CANCELLED]
        done: int = yield Step(lambda: workflow_scripts.stop(self._dialect, known, keep))
        return done

    def retry(self, id: str | UUID, *, tx: Any = None) -> int:
        """Do again what failed or was cancelled, and what waited for that; how many jobs. What has
        completed is not done again."""
        return self._runner.go(self._retry(id), tx)

    async def aretry(self, id: str | UUID, *, tx: Any = None) -> int:
        return await self._runner.ago(self._retry(id), tx)

    def _retry(self, id: str | UUID) -> Steps[int]:
        known = (yield from self._get(id)).id
        done: int = yield Step(lambda: workflow_scripts.retry(self._dialect, known))
        return done

    def release(self, job: str | UUID, *, tx: Any = None) -> None:
        """Let a job run that is held (`on_parent_failure="hold"`) because another has failed."""
        self._runner.go(self._release(job), tx)

    async def arelease(self, job: str | UUID, *, tx: Any = None) -> None:
        await self._runner.ago(self._release(job), tx)

    def _release(self, id: str | UUID) -> Steps[None]:
        known = parse_id(id)
        found: _Jobs = yield Step(lambda: get(self._dialect, [known]), write=False)
        if not found:
            raise JobNotFound(f"there is no job {known}: it was pruned, deleted, or never made")
        workflow = found[0].workflow_id
        released = workflow is not None and (
            yield Step(lambda: workflow_scripts.release(self._dialect, known, workflow))
        )
        if not released:
            raise InvalidTransition(
                f"job {known} ({found[0].status}) is not held by a failed job of its workflow"
            )


class Composing:
    """What the application offers to write workflows down."""

    engine: Engine
    runner: Runner
    middleware: tuple[Middleware, ...]

    def workflow(self, name: str = "workflow", *, tx: Any = None, notify: bool = True) -> Workflow:
        """Jobs that wait for other jobs: `with app.workflow() as flow: ...`; all of them are inserted
        at its end, in one transaction."""
        return Workflow(self, name, tx=tx, notify=notify)

    def chain(self, *calls: Call, name: str = "chain", tx: Any = None) -> Workflow:
        """Jobs that run one after the other: `app.chain(scan.call(...), tile.call(...))`."""
        with self.workflow(name, tx=tx) as flow:
            return flow.chain(calls)

    async def achain(self, *calls: Call, name: str = "chain", tx: Any = None) -> Workflow:
        async with self.workflow(name, tx=tx) as flow:
            return flow.chain(calls)

    def batch(
        self,
        calls: Sequence[Call],
        *,
        name: str = "batch",
        on_completed: Call | None = None,
        on_failed: Call | None = None,
        on_finished: Call | None = None,
        tx: Any = None,
    ) -> Workflow:
        """Jobs that run at the same time, and what follows when all completed, one failed, all are
        finished."""
        follow = {"on_completed": on_completed, "on_failed": on_failed, "on_finished": on_finished}
        with self.workflow(name, tx=tx) as flow:
            return flow.batch(calls, **follow)

    async def abatch(
        self,
        calls: Sequence[Call],
        *,
        name: str = "batch",
        on_completed: Call | None = None,
        on_failed: Call | None = None,
        on_finished: Call | None = None,
        tx: Any = None,
    ) -> Workflow:
        follow = {"on_completed": on_completed, "on_failed": on_failed, "on_finished": on_finished}
        async with self.workflow(name, tx=tx) as flow:
            return flow.batch(calls, **follow)

    def start(self, flow: Workflow, jobs: Sequence[NewJob]) -> list[Job]:
        """What a workflow calls at the end of its `with`."""

        def insert(jobs: Sequence[NewJob]) -> list[Job]:
            return self.runner.go(_starting(self.engine, flow, jobs), flow.tx)

        return (wrap_enqueue(self.middleware, insert) if self.middleware else insert)(jobs)

    async def astart(self, flow: Workflow, jobs: Sequence[NewJob]) -> list[Job]:
        if flow.tx is None:
            return await self.runner.hop(lambda: self.start(flow, jobs))
        return await self.runner.ago(_starting(self.engine, flow, jobs), flow.tx)


def _starting(engine: Engine, flow: Workflow, jobs: Sequence[NewJob]) -> Steps[list[Job]]:
    queues = {job.queue for job in jobs if not job.waits} if flow.notify else set()
    made: list[Job] = yield Step(
        lambda: workflow_scripts.start(engine.dialect, flow.id, flow.name, jobs, hint=queues)
    )
    return made
