"""Workflows: jobs that wait for other jobs."""

from datetime import datetime

from fastapi import Request
from pydantic import BaseModel

from holdfast.web.api.parameters import After, Id, Limit, Web
from holdfast.web.models import Job
from holdfast.web.replies import Json, listed
from holdfast.web.routing import Routes
from holdfast.web.security.permissions import Permission

routes = Routes("workflows")


class Workflow(BaseModel):
    id: str
    name: str
    status: str
    created_at: datetime
    finished_at: datetime | None
    counts: dict[str, int]


class Edge(BaseModel):
    child: str
    parent: str
    policy: str
    outcome: str | None


class WholeWorkflow(BaseModel):
    workflow: Workflow
    jobs: list[Job]
    edges: list[Edge]


@routes.get(
    "/workflows", may=Permission.JOBS_READ, answer={"workflows": list[Workflow], "next": str | None}
)
def list_workflows(web: Web, after: After = None, limit: Limit = 50) -> Json:
    """A page of workflows, the newest first."""
    found = web.app.workflows.list(before=after, limit=limit)
    last = found[-1].id if len(found) == limit else None
    return Json({"workflows": found, "next": last})


@routes.get("/workflows/{id}", may=Permission.JOBS_READ, answer=WholeWorkflow)
def get_workflow(web: Web, id: Id) -> Json:
    """A workflow, with its jobs and which job waits for which."""
    found = web.app.workflows.get(id)
    jobs = [listed(job) for job in web.app.workflows.jobs(id)]
    edges = [
        {"child": child, "parent": parent, "policy": policy, "outcome": outcome or None}
        for child, parent, policy, outcome in web.app.workflows.edges(id)
    ]
    return Json({"workflow": found, "jobs": jobs, "edges": edges})


@routes.post("/workflows/{id}/cancel", may=Permission.WORKFLOWS_OPERATE, answer={"changed": int})
def cancel_workflow(web: Web, id: Id, request: Request) -> Json:
    """Cancel every unfinished job of a workflow."""
    request.state.audit = changed = {"changed": web.app.workflows.cancel(id)}
    return Json(changed)


@routes.post("/workflows/{id}/retry", may=Permission.WORKFLOWS_OPERATE, answer={"changed": int})
def retry_workflow(web: Web, id: Id, request: Request) -> Json:
    """Run the failed and cancelled jobs of a workflow again, and those that waited for them."""
    request.state.audit = changed = {"changed": web.app.workflows.retry(id)}
    return Json(changed)
