"""`app.workflows`: read workflows, cancel them, retry them, and release jobs that are held."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from holdfast.core.ids import parse_id
from holdfast.engine.records import Parent, WorkflowInfo
from holdfast.engine.steps import Runner, Steps, read_step, write_step
from holdfast.errors import InvalidTransition, JobNotFound
from holdfast.jobs.job import CALLBACK, Job, NewJob, Status
from holdfast.jobs.read import LAST_ID, get
from holdfast.tasks.middleware import Middleware, wrap_enqueue
from holdfast.workflows import scripts as workflow_scripts
from holdfast.workflows.builder import Workflow
from holdfast.workflows.rules import Settled

# A method is named `list`.
_Infos = list[WorkflowInfo]
_Jobs = list[Job]
_Parents = list[Parent]
_Edges = list[Settled]


class Workflows:
    """Workflows by their ids. Methods that change something take a caller's transaction: `tx=`."""

    def __init__(
        self,
        runner: Runner,
        retention: Mapping[Status, float],
        middleware: Sequence[Middleware] = (),
    ) -> None:
        self._runner = runner
        self._dialect = runner.engine.dialect
        self._retention = retention
        self._middleware = middleware

    def on(self, runner: Runner) -> "Workflows":
        """Return the same for another database."""
        return Workflows(runner, self._retention, self._middleware)

    def start(self, flow: Workflow, jobs: Sequence[NewJob]) -> list[Job]:
        """Insert a workflow with its jobs, at the end of its `with`."""

        def insert(jobs: Sequence[NewJob]) -> _Jobs:
            return self._runner.go(self._start(flow, jobs), flow.tx)

        return wrap_enqueue(self._middleware, insert)(jobs)

    async def astart(self, flow: Workflow, jobs: Sequence[NewJob]) -> list[Job]:
        if flow.tx is None:
            return await self._runner.hop(lambda: self.start(flow, jobs))
        return await self._runner.ago(self._start(flow, jobs), flow.tx)

    def _start(self, flow: Workflow, jobs: Sequence[NewJob]) -> Steps[_Jobs]:
        hint = {job.queue for job in jobs if not job.waits} if flow.notify else set()
        return write_step(
            lambda: workflow_scripts.start(self._dialect, flow.id, flow.name, jobs, hint=hint)
        )

    # reading

    def get(self, id: str | UUID) -> WorkflowInfo:
        """Return a workflow: its status and the numbers of its jobs. Raises JobNotFound."""
        return self._runner.go(self._get(id))

    async def aget(self, id: str | UUID) -> WorkflowInfo:
        return await self._runner.ago(self._get(id))

    def _get(self, id: str | UUID) -> Steps[WorkflowInfo]:
        known = parse_id(id)
        found = yield from read_step(lambda: workflow_scripts.find(self._dialect, [known]))
        if not found:
            raise JobNotFound(f"there is no workflow {known}: it was pruned, or never made")
        return found[0]

    def list(self, *, before: str | UUID | None = None, limit: int = 100) -> _Infos:
        """Return workflows, the newest first. `before`: only those older than that one."""
        return self._runner.go(self._list(before, limit))

    async def alist(self, *, before: str | UUID | None = None, limit: int = 100) -> _Infos:
        return await self._runner.ago(self._list(before, limit))

    def _list(self, before: str | UUID | None, limit: int) -> Steps[_Infos]:
        edge = LAST_ID if before is None else parse_id(before)
        return read_step(lambda: workflow_scripts.listing(self._dialect, edge, limit))

    def jobs(self, id: str | UUID) -> _Jobs:
        """Return the jobs of a workflow in the order in which they were added, without payloads and
        results."""
        return self._runner.go(self._jobs(id))

    async def ajobs(self, id: str | UUID) -> _Jobs:
        return await self._runner.ago(self._jobs(id))

    def _jobs(self, id: str | UUID) -> Steps[_Jobs]:
        known = (yield from self._get(id)).id
        found = yield from read_step(lambda: workflow_scripts.members(self._dialect, known))
        return [job for job in found if not (job.node or "").startswith(CALLBACK)]

    def parents(self, id: str | UUID) -> _Parents:
        """Return the jobs that a job waits for, or waited for, and how each of them ended."""
        return self._runner.go(self._parents(id))

    async def aparents(self, id: str | UUID) -> _Parents:
        return await self._runner.ago(self._parents(id))

    def _parents(self, id: str | UUID) -> Steps[_Parents]:
        return read_step(partial(workflow_scripts.parents, parse_id(id)))

    def edges(self, id: str | UUID) -> _Edges:
        """Return which job of a workflow waits for which; the outcome is "" while it waits."""
        return self._runner.go(self._edges(id))

    async def aedges(self, id: str | UUID) -> _Edges:
        return await self._runner.ago(self._edges(id))

    def _edges(self, id: str | UUID) -> Steps[_Edges]:
        ids = [job.id for job in (yield from self._jobs(id))]
        return (yield from read_step(lambda: workflow_scripts.edges(ids)))

    # changing

    def cancel(self, id: str | UUID, *, tx: Any = None) -> int:
        """Cancel the jobs that are not finished, and return their number. Running jobs are asked to
        stop."""
        return self._runner.go(self._cancel(id), tx)

    async def acancel(self, id: str | UUID, *, tx: Any = None) -> int:
        return await self._runner.ago(self._cancel(id), tx)

    def _cancel(self, id: str | UUID) -> Steps[int]:
        known = (yield from self._get(id)).id
        keep = self._retention[Status.CANCELLED]
        return (yield from write_step(lambda: workflow_scripts.stop(self._dialect, known, keep)))

    def retry(self, id: str | UUID, *, tx: Any = None) -> int:
        """Run again the jobs that failed or were cancelled, and those that waited for them; return
        their number. Completed jobs do not run again."""
        return self._runner.go(self._retry(id), tx)

    async def aretry(self, id: str | UUID, *, tx: Any = None) -> int:
        return await self._runner.ago(self._retry(id), tx)

    def _retry(self, id: str | UUID) -> Steps[int]:
        known = (yield from self._get(id)).id
        return (yield from write_step(lambda: workflow_scripts.retry(self._dialect, known)))

    def release(self, job: str | UUID, *, tx: Any = None) -> None:
        """Let a job run that is held (`on_parent_failure="hold"`) since another job failed."""
        self._runner.go(self._release(job), tx)

    async def arelease(self, job: str | UUID, *, tx: Any = None) -> None:
        await self._runner.ago(self._release(job), tx)

    def _release(self, id: str | UUID) -> Steps[None]:
        known = parse_id(id)
        found = yield from read_step(lambda: get(self._dialect, [known]))
        if not found:
            raise JobNotFound(f"there is no job {known}: it was pruned, deleted, or never made")
        workflow = found[0].workflow_id
        released = workflow is not None and (
            yield from write_step(lambda: workflow_scripts.release(self._dialect, known, workflow))
        )
        if not released:
            raise InvalidTransition(
                f"job {known} ({found[0].status}) is not held by a failed job of its workflow"
            )
