"""`app.workflows`: look at workflows, and change what happens to them."""

from collections.abc import Mapping
from functools import partial
from typing import Any
from uuid import UUID

from holdfast.aio import Runner, Step, Steps
from holdfast.engine import Parent, WorkflowInfo, flows
from holdfast.engine.inspection import LAST_ID, get
from holdfast.errors import InvalidTransition, JobNotFound
from holdfast.ids import parse_id
from holdfast.job import CALLBACK, Job, Status

# A method is named `list`.
_Infos = list[WorkflowInfo]
_Jobs = list[Job]
_Parents = list[Parent]


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
        found: _Infos = yield Step(lambda: flows.find(self._dialect, [known]), write=False)
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
        found: _Infos = yield Step(lambda: flows.listing(self._dialect, edge, limit), write=False)
        return found

    def jobs(self, id: str | UUID) -> _Jobs:
        """Its jobs in the order in which they were added, without payloads and results."""
        return self._runner.go(self._jobs(id))

    async def ajobs(self, id: str | UUID) -> _Jobs:
        return await self._runner.ago(self._jobs(id))

    def _jobs(self, id: str | UUID) -> Steps[_Jobs]:
        known = (yield from self._get(id)).id
        found: _Jobs = yield Step(lambda: flows.members(self._dialect, known), write=False)
        return [job for job in found if not (job.node or "").startswith(CALLBACK)]

    def parents(self, id: str | UUID) -> _Parents:
        """Whom a job waits for, or waited for, and what came of them."""
        return self._runner.go(self._parents(id))

    async def aparents(self, id: str | UUID) -> _Parents:
        return await self._runner.ago(self._parents(id))

    def _parents(self, id: str | UUID) -> Steps[_Parents]:
        known = parse_id(id)
        found: _Parents = yield Step(partial(flows.parents, known), write=False)
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
        done: int = yield Step(lambda: flows.stop(self._dialect, known, keep))
        return done

    def retry(self, id: str | UUID, *, tx: Any = None) -> int:
        """Do again what failed or was cancelled, and what waited for that; how many jobs. What has
        completed is not done again."""
        return self._runner.go(self._retry(id), tx)

    async def aretry(self, id: str | UUID, *, tx: Any = None) -> int:
        return await self._runner.ago(self._retry(id), tx)

    def _retry(self, id: str | UUID) -> Steps[int]:
        known = (yield from self._get(id)).id
        done: int = yield Step(lambda: flows.retry(self._dialect, known))
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
            yield Step(lambda: flows.release(self._dialect, known, workflow))
        )
        if not released:
            raise InvalidTransition(
                f"job {known} ({found[0].status}) is not held by a failed job of its workflow"
            )
