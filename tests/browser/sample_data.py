"""Data for every page: jobs of every status, a workflow whose middle failed, a schedule that
ran, a paused queue, a limit, tokens, and an audit log."""

from dataclasses import dataclass

from holdfast import Holdfast
from tests.browser.application import GATES
from tests.browser.site import Site, finish, new


@dataclass(frozen=True)
class SampleData:
    failed: str
    running: str
    waiting: str
    completed: str
    workflow: str
    gate: str

    @property
    def paths(self) -> dict[str, str]:
        """Every page, by name."""
        return {
            "overview": "/",
            "jobs": "/jobs",
            "job-failed": f"/jobs/{self.failed}",
            "job-running": f"/jobs/{self.running}",
            "job-waiting": f"/jobs/{self.waiting}",
            "job-completed": f"/jobs/{self.completed}",
            "errors": "/errors",
            "workflows": "/workflows",
            "workflow": f"/workflows/{self.workflow}",
            "waterfall": f"/workflows/{self.workflow}?view=waterfall",
            "schedules": "/schedules",
            "queues": "/queues",
            "queue": "/queues/media",
            "tasks": "/tasks",
            "task": "/tasks/order",
            "workers": "/workers",
            "activity": "/activity",
            "audit": "/activity?tab=audit",
            "system": "/system",
        }


def make_flow(app: Holdfast, gate: str, name: str = "publish", node: str = "cut") -> str:
    """A workflow whose middle job fails until a gate is open."""
    add, mend = app.find_task("add"), app.find_task("mend")
    with app.workflow(name) as flow:
        first = flow.add(add.using(node="fetch"), a=1)
        middle = flow.add(mend.using(after=[first], node=node), gate=gate)
        flow.add(add.using(after=[first], node="index"), a=2)
        flow.add(add.using(after=[middle], node="ship", on_parent_failure="hold"), a=3)
    return flow.id


def create_sample_data(site: Site) -> SampleData:
    """Needs a worker for the queues default and media."""
    app, gate = site.app, new()
    app.queues.pause("later")
    waiting = app.enqueue("add", {"a": 1}, queue="later", key="once", entity=("movie", 7))
    running = app.enqueue("render", {"title": "a long film", "gate": gate})
    value = {"id": 2**60 + 1, "tags": ["one", "two"], "deep": {"er": {"and": [1, None, True]}}}
    completed = app.enqueue("echo", {"value": value})
    broken = [app.enqueue("crash", {"reason": f"disk {n} is full"}) for n in range(3)]
    app.enqueue("add", {"a": 1}, delay="2h")
    app.enqueue("stumble")
    gone = app.enqueue("add", {"a": 1}, delay="1h")
    app.jobs.cancel(gone.id)
    flow = make_flow(app, gate)
    site.access.create("a reader", "viewer")
    finish(
        site, completed, *broken, *(job for job in app.workflows.jobs(flow) if job.node != "ship")
    )
    return SampleData(broken[0].id, running.id, waiting.id, completed.id, flow, gate)


def release(sample: SampleData) -> None:
    GATES[sample.gate].set()
