"""What is told of the system itself: figures, health, metrics, the audit log, the description."""

import re
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.access import Access
from holdfast.core.ids import new_id
from holdfast.jobs.job import Status
from holdfast.web.api.system import without_password
from holdfast.web.routing import declared_of
from holdfast.web.security.permissions import PUBLIC
from tests.support.jobs import execute
from tests.support.waiting import until
from tests.support.web import Caller, Site, problem
from tests.web.conftest import run_all
from tests.web.test_jobs import make

_SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\.)*",?)*)\})? (-?[0-9.e+-]+|NaN)')


def samples(text: str) -> dict[str, float]:
    """Parsed as strictly as the format is described: each has its HELP and TYPE before it."""
    assert text.endswith("\n")
    found: dict[str, float] = {}
    known: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# HELP "):
            continue
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert kind in ("gauge", "counter")
            assert name not in known
            known.add(name)
            continue
        match = _SAMPLE.fullmatch(line)
        assert match, line
        assert match[1] in known, line
        assert line.rpartition(" ")[0] not in found
        found[line.rpartition(" ")[0]] = float(match[3])
    return found


def test_metrics(app: Holdfast, admin: Caller):
    app.tasks["add"].using(queue="media").enqueue(a=1)
    done = app.tasks["add"].enqueue(a=1)
    run_all(app, done)
    answer = admin.get("//metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    until(
        lambda: (
            samples(admin.get("//metrics").text).get(
                'holdfast_ended{task="add",outcome="completed"}'
            )
            == 1
        ),
        "the figures",
    )
    found = samples(admin.get("//metrics").text)
    assert found['holdfast_jobs{status="completed"}'] == 1
    assert found['holdfast_queue_depth{queue="media"}'] == 1
    assert found["holdfast_workers"] == 0
    assert found["holdfast_healthy"] in (0, 1)


def test_health_and_ready(app: Holdfast, site: Site, viewer: Caller):
    nobody = site.caller()
    assert nobody.get("//ready").json() == {"ok": True}
    app.tasks["add"].enqueue(a=1)
    answer = nobody.get("//health")
    assert (answer.status_code, answer.json()) == (503, {"ok": False})
    whole = viewer.get("//health").json()
    assert whole["ok"] is False
    assert whole["problems"]
    assert site.somebody("enqueue").get("//health").json() == {"ok": False}
    with app.worker():
        until(lambda: nobody.get("//health").status_code == 200, "health")
    app.close()
    assert nobody.get("//ready").status_code == 503


def test_stats_and_series(app: Holdfast, admin: Caller):
    empty = admin.get("/stats").json()
    assert empty["jobs"] == {status.value: 0 for status in Status}
    assert (empty["window"], empty["workers"], empty["oldest_pending"]) == (3600.0, 0, None)
    assert empty["figures"]["wait"]["p50"] is None
    run_all(app, app.tasks["add"].enqueue(a=1))
    until(lambda: admin.get("/stats").json()["figures"]["completed"] == 1, "the figures")
    told = admin.get("/stats", window="5m").json()
    assert told["by_task"]["add"]["completed"] == 1
    assert told["by_queue"]["default"]["finished"] == 1
    assert told["figures"]["run"]["count"] == 1
    assert sum(point["completed"] for point in admin.get("/series").json()["series"]) == 1
    assert sum(one["completed"] for one in admin.get("/series", type="tick").json()["series"]) == 0
    assert len(admin.get("/series", window="10m").json()["series"]) in (10, 11)


def test_the_system(site: Site, app: Holdfast, admin: Caller):
    told = admin.get("/system").json()
    assert told["engine"] == ("sqlite" if app.url.startswith("sqlite") else "postgres")
    assert told["findings"]
    assert set(told["retention"]) == {"completed", "failed", "cancelled"}
    assert told["settings"]["max_attempts"] == 3


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:s3cr3t@db.example:5432/jobs",
        "postgresql://ann:s3cr3t%40x@db.example/jobs?sslmode=require",
        "postgresql://db.example/jobs?user=ann&password=s3cr3t",
        "postgresql://ann:s3c@r3t@db.example/jobs",
        "postgres://:s3cr3t@/jobs?host=/tmp&passfile=/s3cr3t",
        "postgresql://ann:s3cr3t@h1:5432,[::1],h2:5433/jobs",
        "postgresql://ann:?#s3cr3t@db.example/jobs",
    ],
)
def test_no_password_is_shown(site: Site, app: Holdfast, admin: Caller, url: str):
    app.url, true = url, app.url
    try:
        text = admin.get("/system").text
    finally:
        app.url = true
    assert "s3c" not in text
    assert "ann" not in text
    assert "/jobs" in without_password(url)


def test_the_description(site: Site, admin: Caller):
    told = admin.get("/openapi.json").json()
    assert told["openapi"].startswith("3.")
    assert told["security"] == [{"token": []}]
    assert "/api/v1/jobs/{id}/retry" in told["paths"]
    for path, methods in told["paths"].items():
        for method, operation in methods.items():
            public = operation["x-holdfast-permission"] == PUBLIC
            assert ("security" in operation) == public, f"{method} {path}"
            assert operation["summary"]
            for status, answer in operation["responses"].items():
                if int(status) >= 400 and "application/json" not in answer["content"]:
                    assert set(answer["content"]) == {"application/problem+json"}
    assert site.caller().get("/openapi.json").status_code == 401
    for path in ("//docs", "//redoc", "//openapi.json"):
        assert "swagger" not in site.caller().get(path).text.lower()


# the audit log


def prepared(app: Holdfast) -> dict[str, str]:
    """Something for every verb."""
    recurring = app.tasks["tick"].using(key="a", every="1h").schedule()
    flow = app.chain(app.tasks["add"].call(a=1), app.tasks["tick"].call())
    made, _ = Access(app).create("old", "viewer")
    jobs = {name: app.tasks["add"].enqueue(a=1).id for name in ("one", "two", "three", "old")}
    app.jobs.cancel(jobs["old"])
    with app.worker():
        until(lambda: app.engine.limits(cap=10), "limits")
    return jobs | {"schedule": recurring.id, "flow": flow.id, "token": made.id}


def unsafe(it: dict[str, str]) -> list[tuple[str, str, Any, str]]:
    return [
        ("PATCH", f"/jobs/{it['schedule']}", {"priority": 1}, "edit"),
        ("POST", f"/jobs/{it['schedule']}/run", None, "run_now"),
        ("POST", f"/jobs/{it['one']}/duplicate", None, "duplicate"),
        ("POST", f"/jobs/{it['old']}/retry", None, "retry"),
        ("DELETE", f"/jobs/{it['old']}", None, "cancel"),
        ("POST", f"/jobs/{it['two']}/delete", None, "delete"),
        ("POST", "/bulk", {"action": "cancel", "ids": [it["three"]]}, "bulk"),
        ("POST", "/queues/media/pause", {"for": "1m"}, "pause"),
        ("POST", "/queues/media/resume", None, "resume"),
        ("PUT", "/queues/media/limit", {"concurrency": 1}, "limit_queue"),
        ("POST", "/queues/media/purge", {"confirm": "media"}, "purge"),
        ("PUT", "/limits/stay", {"concurrency": 1}, "set_limit"),
        ("DELETE", "/limits/stay", None, "reset_limit"),
        ("POST", f"/schedules/{it['schedule']}/disable", None, "disable"),
        ("POST", f"/schedules/{it['schedule']}/enable", None, "enable"),
        ("POST", f"/schedules/{it['schedule']}/run", None, "run_schedule"),
        ("PATCH", f"/schedules/{it['schedule']}", {"delay": "1h"}, "reschedule"),
        ("POST", f"/workflows/{it['flow']}/cancel", None, "cancel_workflow"),
        ("POST", f"/workflows/{it['flow']}/retry", None, "retry_workflow"),
        ("POST", "/tokens", {"name": "x", "role": "viewer"}, "create_token"),
        ("DELETE", f"/tokens/{it['token']}", None, "revoke_token"),
        ("DELETE", "/session", None, "log_out"),
    ]


def test_every_change_leaves_one_entry(site: Site, app: Holdfast, admin: Caller):
    it = prepared(app)
    for number, (method, path, body, action) in enumerate(unsafe(it), 1):
        answer = admin.ask(method, path, **({} if body is None else {"json": body}))
        assert answer.status_code < 300, f"{method} {path}: {answer.text}"
        entries = site.access.entries().entries
        assert len(entries) == number, f"{method} {path}"
        last = entries[0]
        assert (last.actor, last.role, last.action) == ("the admin", "admin", action)
        assert (last.address, last.request_id) == ("127.0.0.1", answer.headers["x-request-id"])
        if f"/{it['schedule']}" in path:
            assert last.target == it["schedule"]
    tested = {action for *_, action in unsafe(it)}
    named = {
        route.name  # type: ignore[attr-defined]
        for route in site.server.routes
        if {"POST", "PUT", "PATCH", "DELETE"} & set(getattr(route, "methods", None) or ())
        and declared_of(route) != PUBLIC
    }
    # Enqueues by programs are not written down one by one; the others need what is not here.
    elsewhere = {"enqueue", "release", "stop_operation", "ask_stacks"}
    assert named - tested <= elsewhere | {name for name in named if "stacks" in name}


def test_what_was_refused_leaves_none(site: Site, app: Holdfast, viewer: Caller):
    it = prepared(app)
    nobody = site.caller()
    for method, path, body, _ in unsafe(it):
        if path == "/session":
            continue
        more = {} if body is None else {"json": body}
        assert viewer.ask(method, path, **more).status_code == 403
        assert nobody.ask(method, path, **more).status_code == 401
    assert site.access.entries().entries == []


def test_what_failed_leaves_none(site: Site, admin: Caller):
    assert admin.post(f"/jobs/{new_id()}/retry").status_code == 404
    assert admin.post("/queues/q/purge", {"confirm": "x"}).status_code == 422
    assert site.access.entries().entries == []


def test_a_login_and_an_enqueue_by_hand_are_written_down(site: Site):
    _, secret = site.access.create("ann", "operator")
    browser = site.caller()
    browser.post("/session", {"token": secret})
    made = browser.post("/jobs", {"type": "add", "payload": {"a": 1}}).json()
    site.caller(secret).post("/jobs", {"type": "add", "payload": {"a": 1}})
    entries = site.access.entries().entries
    assert [entry.action for entry in entries] == ["enqueue", "log_in"]
    assert entries[0].detail == {"status": 201, "type": "add", "job": made["id"]}


def test_the_log_in_pages(site: Site, admin: Caller):
    for _ in range(7):
        admin.post("/queues/q/resume")
    seen: list[str] = []
    cursor: dict[str, Any] = {}
    while True:
        page = admin.get("/audit", limit=3, **cursor).json()
        seen += [entry["id"] for entry in page["entries"]]
        if page["next"] is None:
            break
        cursor = {"after": page["next"]}
    assert len(seen) == len(set(seen)) == 7
    assert seen == sorted(seen, reverse=True)
    entry = admin.get("/audit").json()["entries"][0]
    assert set(entry) == {
        *("id", "at", "actor", "role", "action", "target", "detail", "address", "request_id")
    }


def test_the_log_is_only_added_to(site: Site, app: Holdfast, admin: Caller):
    admin.post("/queues/q/resume")
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert admin.ask(method, "/audit").status_code == 405
        assert admin.ask(method, f"/audit/{new_id()}").status_code in (404, 405)
    assert execute(app.engine, "SELECT count(*) FROM {audit}") == [(1,)]


def test_names_that_are_nasty_are_logged_as_text(site: Site, admin: Caller):
    made = make(admin, key="<script>\u202e")
    admin.delete(f"/jobs/{made['id']}")
    assert problem(admin.get("/nothing/%3Cscript%3E"))["detail"]
    assert site.access.entries().entries[0].action == "cancel"
