"""`app.workflow()`: build a workflow, whose jobs are inserted in one transaction.

with app.workflow() as flow:
    scan = flow.add(scan_source, model="hrrr")
    flow.add(build_tile.using(after=[scan]), region="ne")
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from holdfast.core import validation
from holdfast.core.ids import new_id, parse_id
from holdfast.errors import InvalidInput
from holdfast.jobs.job import CALLBACK, Edge, Job, NewJob, OnParentFailure
from holdfast.tasks.options import Options
from holdfast.tasks.using import BaseTask, Call
from holdfast.workflows import rules as workflow_rules

if TYPE_CHECKING:
    from holdfast.workflows.client import Workflows

AnyTask = BaseTask[Any]  #: a task, or one with options


class Node(NamedTuple):
    """A job of a workflow: what `after=` takes."""

    id: str
    name: str
    workflow_id: str


class Workflow:
    """A workflow that is being built: its jobs are inserted at the end of its `with`."""

    def __init__(
        self, client: "Workflows", name: str = "workflow", *, tx: Any = None, notify: bool = True
    ) -> None:
        self.id = new_id()  #: by which `app.workflows` finds it
        self.name = validation.name(name, "workflow")  #: as it was given
        self.tx = tx
        self.notify = notify
        self._client = client
        self._jobs: list[NewJob] = []

    def __repr__(self) -> str:
        return f"<Workflow {self.name} {self.id}: {len(self._jobs)} jobs>"

    def add(self, task: AnyTask, /, *args: Any, **kwargs: Any) -> Node:
        """Add a job. One of `task.using(after=[node, ...])` waits for these jobs."""
        return self._put(make_node(self.id, task, args, kwargs))

    def add_many(self, task: AnyTask, /, calls: Iterable[Mapping[str, Any]]) -> list[Node]:
        """Add a job for each mapping of arguments."""
        return [self._put(make_node(self.id, task, (), call)) for call in calls]

    def on_completed(self, task: AnyTask, /, *args: Any, **kwargs: Any) -> Node:
        """Add a callback: a job that runs when all other jobs have completed."""
        return self._callback(workflow_rules.ON_COMPLETED, task, args, kwargs)

    def on_failed(self, task: AnyTask, /, *args: Any, **kwargs: Any) -> Node:
        """Add a callback: a job that runs when the first job has failed for good."""
        return self._callback(workflow_rules.ON_FAILED, task, args, kwargs)

    def on_finished(self, task: AnyTask, /, *args: Any, **kwargs: Any) -> Node:
        """Add a callback: a job that runs when all other jobs are finished, however they ended."""
        return self._callback(workflow_rules.ON_FINISHED, task, args, kwargs)

    def _callback(
        self, name: str, task: AnyTask, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Node:
        job = make_node(self.id, task, args, kwargs)
        if job.after:
            raise InvalidInput(f"{name[1:]}: a callback takes no after=: it waits for all")
        return self._put(replace(job, node=name))

    def _put(self, job: NewJob) -> Node:
        known = {other.id for other in self._jobs}
        for edge in job.after:
            if edge.parent not in known:
                raise InvalidInput(
                    f"after={edge.parent!r}: no job of this workflow; add that one first"
                )
        self._jobs.append(job)
        return Node(job.id, job.node or job.type, self.id)

    # inserted when the `with` ends without an error

    def __enter__(self) -> "Workflow":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._client.start(self, self._checked())

    async def __aenter__(self) -> "Workflow":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self._client.astart(self, self._checked())

    def _checked(self) -> list[NewJob]:
        if all((job.node or "").startswith(CALLBACK) for job in self._jobs):
            raise InvalidInput(f"the workflow {self.name!r} has no jobs: add some")
        return self._jobs

    # short forms

    def chain(self, calls: Sequence[Call]) -> "Workflow":
        """Add jobs that run one after the other."""
        before: list[Node] = []
        for call in calls:
            before = [self.add(call.task.using(after=before), *call.args, **call.kwargs)]
        return self

    def batch(
        self,
        calls: Sequence[Call],
        on_completed: Call | None = None,
        on_failed: Call | None = None,
        on_finished: Call | None = None,
    ) -> "Workflow":
        """Add jobs that run at the same time, and callbacks."""
        for call in calls:
            self.add(call.task, *call.args, **call.kwargs)
        for name, callback in (
            (workflow_rules.ON_COMPLETED, on_completed),
            (workflow_rules.ON_FAILED, on_failed),
            (workflow_rules.ON_FINISHED, on_finished),
        ):
            if callback is not None:
                self._callback(name, callback.task, callback.args, callback.kwargs)
        return self


class Running:
    """`ctx.workflow`: the workflow of the running job."""

    def __init__(self, job: Job, put: Callable[[NewJob], None]) -> None:
        self.id = str(job.workflow_id)
        self._job = job
        self._put = put

    def add(self, task: AnyTask, /, *args: Any, **kwargs: Any) -> Node:
        """Add a job together with the completion of the running one, or not at all. `after=` may name
        jobs of this workflow, also the running one."""
        job = make_node(self.id, task, args, kwargs, next_task_of=self._job)
        self._put(job)
        return Node(job.id, job.node or job.type, self.id)


def make_node(
    workflow: str,
    task: AnyTask,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    next_task_of: Job | None = None,
) -> NewJob:
    """Return the job of a workflow that a call would add. Raises InvalidInput for options that jobs of
    a workflow do not take."""
    if not isinstance(task, BaseTask):
        raise InvalidInput(f"a workflow was given {task!r}: give a task, or task.using(...)")
    options = task.options
    unique = options.key is not None or options.idempotency_key is not None
    if unique or options.tx is not None:
        raise InvalidInput(
            "a job of a workflow takes no key=, no idempotency_key= and no tx=: it is always a new "
            "one, and the whole workflow is inserted at once: app.workflow(tx=...)"
        )
    plain = Options()
    alone = task.using(**{name: getattr(plain, name) for name in _WORKFLOW_OPTIONS})
    job = alone.new_job(args, kwargs, next_task_of=next_task_of)
    node = validation.name(options.node or task.task.name, "node")
    after = tuple(_edge(one, options.on_parent_failure, workflow) for one in options.after or ())
    if len({edge.parent for edge in after}) < len(after):
        raise InvalidInput("after= names a job twice")
    return replace(job, workflow_id=workflow, node=node, after=after)


_WORKFLOW_OPTIONS = ("after", "on_parent_failure", "node")


def _edge(given: Any, policy: OnParentFailure, workflow: str) -> Edge:
    if type(given) is tuple and len(given) == 2:
        given, policy = given
    if policy not in get_args(OnParentFailure):
        raise InvalidInput(
            f"on_parent_failure={policy!r}: choose one of {', '.join(get_args(OnParentFailure))}"
        )
    home = getattr(given, "workflow_id", workflow)
    if isinstance(given, Node | Job) and home != workflow:
        raise InvalidInput(f"after={given.id!r}: that is no job of this workflow")
    return Edge(given.id if isinstance(given, Node | Job) else parse_id(given), policy)
