"""Queues, limits, schedules, workers, workflows and tasks over REST."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.core.ids import new_id
from tests.support.waiting import until, wait_for_status
from tests.support.web import Caller, problem
from tests.web.conftest import Gate, run_all


def named(found: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(one for one in found if one["name"] == name)


# queues and limits


def test_queues(app: Holdfast, admin: Caller):
    assert admin.get("/queues").json() == {"queues": []}
    done = app.tasks["add"].enqueue(a=1)
    run_all(app, done)
    app.tasks["add"].using(queue="media").enqueue_many([{"a": 1}] * 3)
    found = admin.get("/queues").json()["queues"]
    media, default = named(found, "media"), named(found, "default")
    assert (media["pending"], media["running"], media["paused_at"]) == (3, 0, None)
    assert media["oldest"] >= 0
    assert media["drain"] is None
    assert (default["pending"], default["drain"], default["workers"]) == (0, 0.0, 0)
    until(
        lambda: (
            named(admin.get("/queues").json()["queues"], "default")["figures"]["completed"] == 1
        ),
        "the figures",
    )
    assert len(default["series"]) in (60, 61)


def test_pause_and_resume(app: Holdfast, admin: Caller):
    app.tasks["add"].using(queue="a/b").enqueue(a=1)
    assert admin.post("/queues/a/b/pause").status_code == 200
    queue = named(admin.get("/queues").json()["queues"], "a/b")
    assert queue["paused_at"]
    assert queue["resume_at"] is None
    admin.post("/queues/a/b/pause", {"for": "10m"})
    queue = named(admin.get("/queues").json()["queues"], "a/b")
    away = datetime.fromisoformat(queue["resume_at"]) - app.engine.now()
    assert timedelta(minutes=9) < away <= timedelta(minutes=10)
    admin.post("/queues/a/b/pause", {"until": "2099-01-01T00:00:00"})
    queue = named(admin.get("/queues").json()["queues"], "a/b")
    assert queue["resume_at"] == "2099-01-01T00:00:00.000000Z"
    both = {"for": 1, "until": "2099-01-01T00:00:00Z"}
    assert admin.post("/queues/a/b/pause", both).status_code == 422
    assert admin.post("/queues/a/b/resume").status_code == 200
    assert named(admin.get("/queues").json()["queues"], "a/b")["paused_at"] is None


def test_the_limit_of_a_queue(app: Holdfast, admin: Caller):
    app.tasks["add"].using(queue="media").enqueue(a=1)
    limit = {"concurrency": 2, "rate": "10/1m"}
    assert admin.put("/queues/media/limit", limit).status_code == 200
    queue = named(admin.get("/queues").json()["queues"], "media")
    assert (queue["concurrency"], queue["rate"]) == (2, "10/m")
    assert admin.put("/queues/media/limit", {}).status_code == 200
    queue = named(admin.get("/queues").json()["queues"], "media")
    assert (queue["concurrency"], queue["rate"]) == (None, None)
    assert admin.put("/queues/media/limit", {"rate": "often"}).status_code == 422
    assert admin.put("/queues/media/limit", {"concurrency": -1}).status_code == 422


def test_purge(app: Holdfast, admin: Caller, operator: Caller):
    app.tasks["add"].using(queue="media").enqueue_many([{"a": 1}] * 3)
    assert operator.post("/queues/media/purge", {"confirm": "media"}).status_code == 403
    wrong = admin.post("/queues/media/purge", {"confirm": "medai"})
    assert wrong.status_code == 422
    assert "media" in problem(wrong)["detail"]
    assert app.jobs.count() == 3
    assert admin.post("/queues/media/purge", {"confirm": "media"}).json() == {"deleted": 3}
    assert app.jobs.count() == 0


def test_limits(app: Holdfast, admin: Caller):
    with app.worker():
        until(lambda: admin.get("/limits").json()["limits"], "the limit of the code")
    [limit] = admin.get("/limits").json()["limits"]
    assert (limit["name"], limit["concurrency"], limit["set"]) == ("stay", 5, False)
    assert limit["tasks"] == ["stay"]
    assert admin.put("/limits/stay", {"concurrency": 2}).status_code == 200
    [limit] = admin.get("/limits").json()["limits"]
    assert (limit["concurrency"], limit["set"]) == (2, True)
    assert admin.delete("/limits/stay").status_code == 200
    [limit] = admin.get("/limits").json()["limits"]
    assert (limit["concurrency"], limit["set"]) == (5, False)
    assert admin.put("/limits/nothing", {"concurrency": 2}).status_code == 404
    assert admin.delete("/limits/nothing").status_code == 404


# schedules


def test_schedules(app: Holdfast, admin: Caller):
    first = app.tasks["tick"].using(key="a", cron="0 3 * * *", timezone="Europe/Paris").schedule()
    app.tasks["tick"].using(key="b", every="1h").schedule(name="b")
    page = admin.get("/schedules", limit=1).json()
    [told] = page["schedules"]
    assert told["id"] == first.id == page["next"]
    assert (told["timezone"], told["enabled"], told["history"]) == ("Europe/Paris", True, [])
    assert "03:00" in told["words"]
    runs = [datetime.fromisoformat(moment) for moment in told["next_runs"]]
    assert len(runs) == 5
    assert runs == sorted(runs)
    assert told["next_runs"][0] == told["run_at"]
    page = admin.get("/schedules", limit=1, after=page["next"]).json()
    assert [one["key"] for one in page["schedules"]] == ["b"]
    assert "payload" not in page["schedules"][0]


def test_the_verbs_of_a_schedule(app: Holdfast, admin: Caller):
    row = app.tasks["tick"].using(key="a", every="1h").schedule()
    assert admin.post(f"/schedules/{row.id}/disable").json()["enabled"] is False
    [told] = admin.get("/schedules").json()["schedules"]
    assert told["next_runs"] == []
    assert admin.post(f"/schedules/{row.id}/enable").json()["enabled"] is True
    moment = "2099-01-01T00:00:00.000000Z"
    assert admin.patch(f"/schedules/{row.id}", {"run_at": moment}).json()["run_at"] == moment
    assert admin.patch(f"/schedules/{row.id}", {"delay": "1m"}).json()["run_at"] < moment
    assert admin.patch(f"/schedules/{row.id}", {}).status_code == 422
    assert admin.patch(f"/schedules/{row.id}", {"delay": 1, "run_at": moment}).status_code == 422
    job = app.tasks["add"].enqueue(a=1)
    assert admin.post(f"/schedules/{job.id}/enable").status_code == 409
    assert admin.post(f"/schedules/{new_id()}/enable").status_code == 404


def test_a_schedule_that_fails_has_a_history(app: Holdfast, admin: Caller):
    row = app.tasks["fail"].using(key="a", every="1h").schedule()
    with app.worker():
        admin.post(f"/schedules/{row.id}/run")
        until(lambda: app.jobs.get(row.id).consecutive_failures, "a failed run")
    [told] = admin.get("/schedules").json()["schedules"]
    assert told["history"][0]["status"] == "failed"
    assert told["history"][0]["seconds"] >= 0
    assert "RuntimeError" in told["history"][0]["error"]
    assert told["last_error"]


# workers


def test_workers(app: Holdfast, admin: Caller, gate: Gate):
    assert admin.get("/workers").json() == {"workers": []}
    job = app.tasks["stay"].enqueue(n=1)
    with app.worker() as worker:
        wait_for_status(app, job, "running")
        [told] = admin.get("/workers").json()["workers"]
        assert (told["id"], told["state"]) == (worker.id, "live")
        assert told["beat_age"] >= 0
        assert "stay" in told["tasks"]
        assert named(admin.get("/tasks").json()["tasks"], "stay")["workers"] == 1
        gate.open.set()
    [told] = admin.get("/workers").json()["workers"]
    assert told["state"] == "left"


# workflows


def test_workflows(app: Holdfast, admin: Caller):
    flows = [
        app.chain(app.tasks["add"].call(a=1), app.tasks["tick"].call(), name=f"w{n}")
        for n in range(3)
    ]
    page = admin.get("/workflows", limit=2).json()
    assert [one["name"] for one in page["workflows"]] == ["w2", "w1"]
    last = admin.get("/workflows", limit=2, after=page["next"]).json()
    assert [one["name"] for one in last["workflows"]] == ["w0"]
    whole = admin.get(f"/workflows/{flows[0].id}").json()
    assert whole["workflow"]["status"] == "running"
    assert sum(whole["workflow"]["counts"].values()) == 2
    first, second = sorted(whole["jobs"], key=lambda job: job["id"])
    assert whole["edges"] == [
        {"child": second["id"], "parent": first["id"], "policy": "cancel", "outcome": None}
    ]
    assert "payload" not in first
    assert first["workflow_id"] == flows[0].id
    assert admin.post(f"/workflows/{flows[0].id}/cancel").json() == {"changed": 2}
    assert admin.post(f"/workflows/{flows[0].id}/retry").json() == {"changed": 2}
    for part in ("", "/cancel", "/retry"):
        method = "POST" if part else "GET"
        assert admin.ask(method, f"/workflows/{new_id()}{part}").status_code == 404


# tasks


def test_tasks(app: Holdfast, admin: Caller):
    job = app.tasks["add"].enqueue(a=1)
    run_all(app, job)
    found = admin.get("/tasks").json()["tasks"]
    assert [task["name"] for task in found] == sorted(app.tasks)
    add, enrich, stay = (named(found, name) for name in ("add", "enrich-metadata", "stay"))
    assert (add["queue"], add["priority"], add["max_attempts"]) == ("default", 0, 3)
    assert enrich["doc"] == "Fetch what is known about an entity."
    assert add["schema"]["properties"]["a"]["type"] == "integer"
    assert add["schema"]["required"] == ["a"]
    assert stay["concurrency"] == 5
    until(lambda: admin.get("/tasks/add").json()["figures"]["completed"] == 1, "the figures")
    told = admin.get("/tasks/add", window="1h").json()
    assert sum(bar["count"] for bar in told["histograms"]["run"]) == 1
    assert sum(bar["count"] for bar in told["histograms"]["wait"]) == 1
    assert all(bar["from"] < bar["to"] for bar in told["histograms"]["run"])
    assert sum(point["completed"] for point in told["series"]) == 1
    assert admin.get("/tasks/nothing").status_code == 404


@pytest.mark.parametrize("name", ["a/b", "a.b:c", "x/histograms"])
def test_names_with_slashes(app: Holdfast, admin: Caller, name: str):
    app.task(name=name)(lambda: None)
    assert admin.get(f"/tasks/{name}").json()["name"] == name
