"""Workflows: jobs that wait for other jobs."""

from fastapi import Request

from holdfast.web.api.parameters import After, Id, Limit, Web
from holdfast.web.api.presenting import as_json, listed
from holdfast.web.replies import Json
from holdfast.web.responses import Changed, WholeWorkflow, Workflows
from holdfast.web.routing import Routes
from holdfast.web.security.permissions import Permission

routes = Routes("workflows")


@routes.get("/workflows", may=Permission.JOBS_READ, answer=Workflows)
def list_workflows(web: Web, after: After = None, limit: Limit = 50) -> Json:
    """The newest first."""
    found = web.app.workflows.list(before=after, limit=limit)
    last = found[-1].id if len(found) == limit else None
    return Json(as_json({"workflows": found, "next": last}))


@routes.get("/workflows/{id}", may=Permission.JOBS_READ, answer=WholeWorkflow)
def get_workflow(web: Web, id: Id) -> Json:
    """One, with its jobs and who waits for whom."""
    found = web.app.workflows.get(id)
    edges = [
        {"child": child, "parent": parent, "policy": policy, "outcome": outcome or None}
        for child, parent, policy, outcome in web.app.workflows.edges(id)
    ]
    return Json(
        {
            "workflow": as_json(found),
            "jobs": [listed(job) for job in web.app.workflows.jobs(id)],
            "edges": edges,
        }
    )


@routes.post("/workflows/{id}/cancel", may=Permission.WORKFLOWS_OPERATE, answer=Changed)
def cancel_workflow(web: Web, id: Id, request: Request) -> Json:
    """Cancel what is not finished."""
    changed = web.app.workflows.cancel(id)
    request.state.audit = {"changed": changed}
    return Json({"changed": changed})


@routes.post("/workflows/{id}/retry", may=Permission.WORKFLOWS_OPERATE, answer=Changed)
def retry_workflow(web: Web, id: Id, request: Request) -> Json:
    """Do again what failed or was cancelled, and what waited for that."""
    changed = web.app.workflows.retry(id)
    request.state.audit = {"changed": changed}
    return Json({"changed": changed})
