"""Who may do what: every route, every role, every method. The table is written by hand, so that what is
declared in the code is compared with what was meant."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import Route

from holdfast import Holdfast
from holdfast.core.ids import new_id
from holdfast.web import dashboard
from holdfast.web.routing import Routes, check_declared, declared_of
from tests.support.web import API, Caller, Site, problem
from tests.web.conftest import Open

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
READ = {"jobs.read", "jobs.payload", "events.read", "metrics.read", "system.read"}
OPERATE = READ | {
    *("jobs.enqueue", "jobs.operate", "jobs.delete", "queues.operate", "limits.operate"),
    *("schedules.operate", "workflows.operate", "workers.operate", "audit.read"),
}
MAY = {
    "viewer": READ,
    "operator": OPERATE,
    "admin": OPERATE | {"queues.purge", "tokens.manage"},
    "enqueue": {"jobs.enqueue"},
}
#: What each route needs, as it was meant.
NEEDS = {
    "GET /jobs": "jobs.read",
    "POST /jobs": "jobs.enqueue",
    "GET /jobs/{id}": "jobs.read",
    "GET /jobs/{id}/attempts": "jobs.read",
    "GET /jobs/{id}/why": "jobs.read",
    "GET /jobs/{id}/logs": "jobs.payload",
    "GET /jobs/{id}/parents": "jobs.read",
    "DELETE /jobs/{id}": "jobs.operate",
    "PATCH /jobs/{id}": "jobs.operate",
    "POST /jobs/{id}/retry": "jobs.operate",
    "POST /jobs/{id}/run": "jobs.operate",
    "POST /jobs/{id}/duplicate": "jobs.operate",
    "POST /jobs/{id}/release": "jobs.operate",
    "POST /jobs/{id}/delete": "jobs.delete",
    "GET /export": "jobs.read",
    "POST /bulk": "jobs.operate",
    "GET /bulk/{id}": "jobs.read",
    "DELETE /bulk/{id}": "jobs.operate",
    "GET /queues": "jobs.read",
    "POST /queues/{name:path}/pause": "queues.operate",
    "POST /queues/{name:path}/resume": "queues.operate",
    "PUT /queues/{name:path}/limit": "limits.operate",
    "POST /queues/{name:path}/purge": "queues.purge",
    "GET /limits": "jobs.read",
    "PUT /limits/{name:path}": "limits.operate",
    "DELETE /limits/{name:path}": "limits.operate",
    "GET /schedules": "jobs.read",
    "POST /schedules/{id}/enable": "schedules.operate",
    "POST /schedules/{id}/disable": "schedules.operate",
    "POST /schedules/{id}/run": "schedules.operate",
    "PATCH /schedules/{id}": "schedules.operate",
    "GET /workers": "jobs.read",
    "GET /workers/{id}/stacks": "jobs.payload",  # it tells what the code is doing, as tracebacks do
    "POST /workers/{id}/stacks": "workers.operate",
    "GET /workflows": "jobs.read",
    "GET /workflows/{id}": "jobs.read",
    "POST /workflows/{id}/cancel": "workflows.operate",
    "POST /workflows/{id}/retry": "workflows.operate",
    "GET /tasks": "jobs.read",
    "GET /tasks/{name:path}": "jobs.read",
    "GET /errors": "jobs.read",
    "GET /stats": "jobs.read",
    "GET /health": "jobs.read",
    "GET /series": "jobs.read",
    "GET /system": "system.read",
    "GET /openapi.json": "jobs.read",
    "GET /audit": "audit.read",
    "GET /session": "known",
    "POST /session": "public",
    "DELETE /session": "known",
    "GET /tokens": "tokens.manage",
    "POST /tokens": "tokens.manage",
    "DELETE /tokens/{id}": "tokens.manage",
    "GET /events": "events.read",
    "GET //health": "public",
    "GET //ready": "public",
    "GET //metrics": "metrics.read",
    "GET //static/{version}/{path:path}": "public",
    "GET //{page:path}": "public",
}


def routes(server: FastAPI) -> Iterator[tuple[str, str]]:
    """Every route that answers requests, as `GET /jobs`; those of the root with two slashes."""
    for route in server.routes:
        methods = getattr(route, "methods", None)
        if methods is None:
            continue  # a socket, which has its own tests
        path = route.path  # type: ignore[attr-defined]
        name = path.removeprefix(API) if path.startswith(API) else f"/{path}"
        for method in methods:
            yield method, name


def concrete(path: str) -> str:
    if path == "/events":
        return "/events?after=never"  # a stream would go on: this gets through, and no further
    for part, value in {
        "{id}": new_id(),
        "{name:path}": "default",
        "{version}": "1",
        "{path:path}": "x.js",
        "{page:path}": "jobs",
    }.items():
        path = path.replace(part, value)
    return path


def test_every_route_needs_what_it_was_meant_to(site: Site):
    declared = {
        f"{method} {name}": declared_of(route)
        for route in site.server.routes
        for method, name in routes(_only(route))
    }
    unknown = {name: need for name, need in declared.items() if name not in NEEDS}
    assert unknown == {}, "new routes: write down here what they need"
    assert {name: need for name, need in declared.items() if NEEDS[name] != need} == {}


def _only(route: Any) -> FastAPI:
    alone = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    alone.router.routes[:] = [route]
    return alone


@pytest.mark.parametrize("role", [*MAY, "nobody", "expired", "revoked", "unknown"])
def test_every_role_at_every_route_with_every_method(site: Site, app: Holdfast, role: str):
    caller = somebody(site, app, role)
    known = set(routes(site.server))
    wrong = []
    for path in sorted({path for _, path in known}):
        for method in METHODS:
            address = concrete(path)
            status = caller.ask(method, address).status_code
            expected = allowed(role, method, path, known)
            if not fits(status, expected, method, path):
                wrong.append(f"{role}: {method} {path} -> {status}, not {expected}")
    assert wrong == []


def somebody(site: Site, app: Holdfast, role: str) -> Caller:
    site.web.gate._failures._gap = site.web.gate._failures._ahead = (
        0.0  # guesses have their own tests
    )
    if role in MAY:
        return site.somebody(role)
    if role == "nobody":
        return site.caller()
    if role == "unknown":
        return site.caller("hf_" + "a" * 43)
    made, secret = site.access.create("gone", "admin", expires=0.001 if role == "expired" else None)
    if role == "revoked":
        site.access.revoke(made.id)
    return site.caller(secret)


def allowed(role: str, method: str, path: str, known: set[tuple[str, str]]) -> str:
    """What is to come of it: it is refused (401, 403, 405), or it gets through."""
    if (method, path) not in known:
        return "405"
    need = NEEDS[f"{method} {path}"]
    if need == "public":
        return "through"
    if role not in MAY:
        return "401"
    return "through" if need == "known" or need in MAY[role] else "403"


def fits(status: int, expected: str, method: str, path: str) -> bool:
    if expected == "405":
        # A route that takes any path may stand behind one that is only for another method.
        return status in (401, 403, 404, 405)
    if expected == "through":
        if path == "/session" and method == "POST":
            return status == 422  # there is no body
        return status not in (401, 403, 405)
    return status == int(expected)


@pytest.mark.parametrize(
    ("scope", "body", "status"),
    [
        ({"tasks": ["add"]}, {"type": "add", "payload": {"a": 1}}, 201),
        ({"tasks": ["add"]}, {"type": "tick"}, 403),
        ({"tasks": ["add"]}, {"type": "adder"}, 403),
        ({}, {"type": "adder"}, 404),
        ({"queues": ["media"]}, {"type": "add", "payload": {"a": 1}}, 403),
        ({"queues": ["media"]}, {"type": "add", "payload": {"a": 1}, "queue": "media"}, 201),
        ({"queues": ["media"]}, {"type": "add", "payload": {"a": 1}, "queue": "other"}, 403),
        ({"tasks": ["add"], "queues": ["default"]}, {"type": "add", "payload": {"a": 1}}, 201),
    ],
)
def test_a_bound_token_enqueues_only_what_it_may(
    site: Site, app: Holdfast, scope: Any, body: Any, status: int
):
    caller = site.somebody("enqueue", **scope)
    answer = caller.post("/jobs", body)
    assert answer.status_code == status, answer.text
    assert app.jobs.count() == (1 if status == 201 else 0)
    if status == 201:
        assert (answer.json()["payload"], answer.json()["hidden"]) == (None, ["payload", "result"])


def test_a_bound_token_does_not_learn_which_tasks_there_are(site: Site):
    caller = site.somebody("enqueue", tasks=["add"])
    answer = caller.post("/jobs", {"type": "nothing"})
    assert answer.status_code == 403
    assert "enrich" not in answer.text


def test_a_bound_token_cannot_see_or_change_a_job_through_a_key(site: Site, app: Holdfast):
    made = app.tasks["echo"].using(key="k").enqueue(password="x", n=1)
    caller = site.somebody("enqueue")
    answer = caller.post("/jobs", {"type": "echo", "payload": {"n": 2}, "key": "k"})
    assert answer.status_code == 200
    assert answer.json()["id"] == made.id
    assert answer.json()["payload"] is None


def test_a_route_that_declares_nothing_prevents_the_server(site: Site):
    server = site.server

    def forgotten() -> None: ...

    server.router.routes.append(APIRoute("/x", forgotten))
    with pytest.raises(AssertionError, match="/x"):
        check_declared(server)
    server.router.routes[-1] = Route("/y", forgotten)
    with pytest.raises(AssertionError, match="/y"):
        check_declared(server)
    server.router.routes.pop()
    check_declared(server)


def test_a_route_with_a_permission_that_does_not_exist(site: Site):
    more = Routes("more")

    @more.get("/z", may="jobs.everything", answer=None)
    def z() -> None: ...

    more.join(site.server)
    with pytest.raises(AssertionError, match="/z"):
        check_declared(site.server)


NAMES = ("health", "metrics", "ready", "static", "session", "public", "api")


@pytest.mark.parametrize("name", NAMES)
def test_names_open_nothing(site: Site, app: Holdfast, name: str):
    app.task(name=name)(lambda: None)
    job = app.tasks[name].using(queue=name, key=name, entity=(name, name)).enqueue()
    nobody, enqueue = site.caller(), site.somebody("enqueue")
    for caller, status in ((nobody, 401), (enqueue, 403)):
        assert caller.get(f"/tasks/{name}").status_code == status
        assert caller.put(f"/limits/{name}", {"concurrency": 1}).status_code == status
        assert caller.post(f"/queues/{name}/pause", {}).status_code == status
        assert caller.post(f"/queues/{name}/purge", {"confirm": name}).status_code == status
        assert caller.get("/jobs", queue=name, type=name, key=name).status_code == status
        assert caller.get(f"/tasks/x/{name}").status_code == status
        assert caller.get(f"/jobs/{name}").status_code == status
    assert app.jobs.get(job.id).status == "pending"
    assert not app.stats().queues or all(queue.paused_at is None for queue in app.stats().queues)


@pytest.mark.parametrize(
    "path",
    [
        "/queues/..%2fhealth/pause",
        "/queues/%2e%2e%2f%2e%2e%2fhealth/pause",
        "/jobs/..%2f..%2f..%2fhealth",
        "/tasks/..%2f..%2fhealth",
        "/tasks/..%2f",
        "/limits/..%2f..%2f..%2fmetrics",
        "/jobs/health",
        "/tokens/..%2fsession",
    ],
)
def test_paths_that_climb_open_nothing(site: Site, path: str):
    nobody = site.caller()
    for method in METHODS:
        status = nobody.ask(method, path).status_code
        assert status in (401, 404, 405), f"{method} {path}: {status}"
    for method in ("GET", "POST", "PUT", "DELETE"):
        assert site.somebody("viewer").ask(method, path).status_code in (403, 404, 405, 422)


@pytest.mark.parametrize(
    "path", ["//static/1/..%2f..%2f..%2fserver.py", "//static/1/%2fetc%2fpasswd", "//static/1/%00"]
)
def test_files_outside_are_not_served(site: Site, path: str):
    answer = site.caller().ask("GET", path)
    assert answer.status_code == 404
    assert "import" not in answer.text


def test_read_only(open_site: Open, app: Holdfast):
    site = open_site(read_only=True)
    job = app.tasks["add"].enqueue(a=1)
    admin = site.somebody("admin")
    assert admin.get(f"/jobs/{job.id}").json()["payload"] == {"a": 1}
    assert admin.get("/session").json()["read_only"] is True
    known = set(routes(site.server))
    for method, path in sorted(known):
        if method in ("GET", "HEAD") or path in ("/session",):
            continue
        answer = admin.ask(method, concrete(path))
        assert answer.status_code == 403, f"{method} {path}"
        assert "read-only" in problem(answer)["detail"]
    assert admin.get("/tokens").status_code == 403
    assert app.jobs.get(job.id).status == "pending"


def test_every_role_of_the_table_is_a_role(site: Site):
    for role, permissions in MAY.items():
        told = site.somebody(role).get("/session").json()
        assert (told["role"], set(told["permissions"])) == (role, permissions)
        assert told["auth"] == "token"


def test_the_application_is_made_anew_for_each_server(app: Holdfast):
    assert dashboard(app) is not dashboard(app)
