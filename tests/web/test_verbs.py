"""What is done to one job over REST: cancel, retry, edit, run, duplicate, release, delete."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.core.ids import new_id
from holdfast.jobs.job import Status
from tests.support.jobs import execute, in_status
from tests.support.waiting import wait_for_status
from tests.support.web import Caller, problem
from tests.web.conftest import Gate, ended, run_all
from tests.web.test_jobs import make


def test_cancel_a_waiting_job(app: Holdfast, admin: Caller):
    made = make(admin)
    job = admin.delete(f"/jobs/{made['id']}")
    assert job.status_code == 200
    assert job.json()["status"] == "cancelled"
    assert app.jobs.get(made["id"]).status == "cancelled"


def test_cancel_a_running_job(app: Holdfast, admin: Caller, gate: Gate):
    made = make(admin, "stay", {"n": 1})
    with app.worker():
        wait_for_status(app, app.jobs.get(made["id"]), "running")
        asked = admin.delete(f"/jobs/{made['id']}").json()
        assert asked["cancel_requested"] or asked["status"] == "cancelled"
        assert ended(app, made["id"]).status == "cancelled"
        assert not gate.open.is_set()


def test_a_finished_job_is_not_cancelled(app: Holdfast, admin: Caller):
    made = make(admin)
    run_all(app, made["id"])
    answer = admin.delete(f"/jobs/{made['id']}")
    assert answer.status_code == 409
    assert "completed" in problem(answer)["detail"]


def test_retry_resets_a_failed_job(app: Holdfast, admin: Caller):
    made = make(admin, "fail", {"reason": "x"})
    run_all(app, made["id"])
    job = admin.post(f"/jobs/{made['id']}/retry").json()
    assert (job["status"], job["attempts"], job["error"]) == ("pending", 0, None)
    assert (job["started_at"], job["completed_at"], job["worker_id"]) == (None, None, None)
    run_all(app, made["id"])
    assert app.jobs.get(made["id"]).attempts == 2


def test_retry_of_a_running_job_is_refused(app: Holdfast, admin: Caller):
    job = in_status(app.engine, Status.RUNNING)
    answer = admin.post(f"/jobs/{job.id}/retry")
    assert answer.status_code == 409
    assert "running" in problem(answer)["detail"]


def test_retry_beside_a_live_job_of_its_key_is_refused(app: Holdfast, admin: Caller):
    made = make(admin, key="k")
    admin.delete(f"/jobs/{made['id']}")
    make(admin, key="k")
    answer = admin.post(f"/jobs/{made['id']}/retry")
    assert answer.status_code == 409
    assert "k" in problem(answer)["detail"]


def test_edit(app: Holdfast, admin: Caller):
    made = make(admin)
    job = admin.patch(f"/jobs/{made['id']}", {"priority": 9, "queue": "media"}).json()
    assert (job["priority"], job["queue"], job["status"]) == (9, "media", "pending")
    job = admin.patch(f"/jobs/{made['id']}", {"delay": "2h"}).json()
    assert job["status"] == "scheduled"
    away = datetime.fromisoformat(job["run_at"]) - datetime.fromisoformat(job["updated_at"])
    assert away == pytest.approx(timedelta(hours=2), abs=timedelta(seconds=1))
    job = admin.patch(f"/jobs/{made['id']}", {"run_at": "2099-01-01T00:00:00"}).json()
    assert job["run_at"] == "2099-01-01T00:00:00.000000Z"
    assert app.jobs.get(made["id"]).priority == 9


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"status": "completed"}, "body.status"),
        ({"priority": 1.5}, "body.priority"),
        ({"queue": ""}, "body.queue"),
    ],
)
def test_a_wrong_edit_is_named(admin: Caller, body: Any, field: str):
    made = make(admin)
    answer = admin.patch(f"/jobs/{made['id']}", body)
    assert answer.status_code == 422
    assert problem(answer)["errors"][0]["field"] == field


def test_an_empty_edit_and_one_too_late(app: Holdfast, admin: Caller):
    made = make(admin)
    assert admin.patch(f"/jobs/{made['id']}", {}).status_code == 422
    both = {"delay": 1, "run_at": "2099-01-01T00:00:00Z"}
    assert admin.patch(f"/jobs/{made['id']}", both).status_code == 422
    job = in_status(app.engine, Status.RUNNING)
    assert admin.patch(f"/jobs/{job.id}", {"priority": 1}).status_code == 409


def test_run_now(app: Holdfast, admin: Caller):
    made = make(admin, delay="1h", payload={"a": 4})
    job = admin.post(f"/jobs/{made['id']}/run").json()
    assert job["status"] == "pending"
    run_all(app, made["id"])
    assert app.jobs.get(made["id"]).result == 4
    assert admin.post(f"/jobs/{made['id']}/run").status_code == 409


def test_run_now_of_a_recurring_job(app: Holdfast, admin: Caller):
    job = app.tasks["tick"].using(key="a", every="1h").schedule(name="a")
    told = admin.post(f"/jobs/{job.id}/run")
    assert told.status_code == 200
    assert told.json()["status"] == "pending"


def test_duplicate(app: Holdfast, admin: Caller):
    made = make(admin, payload={"a": 1}, key="k", priority=4, queue="media", entity=["movie", "7"])
    answer = admin.post(f"/jobs/{made['id']}/duplicate", {})
    assert answer.status_code == 201
    copy = answer.json()
    assert copy["id"] != made["id"]
    assert copy["key"] is None
    for name in ("type", "payload", "priority", "queue", "entity_type", "entity_id"):
        assert copy[name] == made[name]
    other = admin.post(f"/jobs/{made['id']}/duplicate", {"payload": {"a": 2}}).json()
    assert other["payload"] == {"a": 2}
    wrong = admin.post(f"/jobs/{made['id']}/duplicate", {"payload": {"a": "x"}})
    assert wrong.status_code == 422
    assert [one["field"] for one in problem(wrong)["errors"]] == ["body.payload.a"]


def test_duplicate_without_a_body(admin: Caller):
    made = make(admin)
    assert admin.post(f"/jobs/{made['id']}/duplicate").status_code == 201


def test_delete(app: Holdfast, admin: Caller):
    made = make(admin, payload={"a": 3})
    gone = admin.post(f"/jobs/{made['id']}/delete").json()
    assert gone["payload"] == {"a": 3}
    assert admin.get(f"/jobs/{made['id']}").status_code == 404
    assert execute(app.engine, "SELECT count(*) FROM {jobs}") == [(0,)]


def test_release(app: Holdfast, admin: Caller):
    with app.workflow() as flow:
        first = flow.add(app.tasks["refuse"])
        flow.add(app.tasks["add"].using(after=[first], on_parent_failure="hold"), a=1)
    jobs = app.workflows.jobs(flow.id)
    held = next(job for job in jobs if job.type == "add")
    root = next(job for job in jobs if job.type == "refuse")
    too_early = admin.post(f"/jobs/{held.id}/release")
    assert too_early.status_code == 409
    run_all(app, root)
    with app.worker():
        wait_for_status(app, held, "blocked")
        from tests.support.waiting import until

        answer = until(lambda: _released(admin, held.id), "the release")
        assert answer["status"] in ("pending", "running", "completed")
        assert ended(app, held).status == "completed"


def _released(admin: Caller, id: str) -> Any:
    """It is held once the end of its parent has been drawn."""
    answer = admin.post(f"/jobs/{id}/release")
    return answer.json() if answer.status_code == 200 else None


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("DELETE", "", None),
        ("PATCH", "", {"priority": 1}),
        ("POST", "/retry", None),
        ("POST", "/run", None),
        ("POST", "/duplicate", {}),
        ("POST", "/release", None),
        ("POST", "/delete", None),
    ],
)
def test_nobodys_job(admin: Caller, method: str, path: str, body: Any):
    more = {} if body is None else {"json": body}
    answer = admin.ask(method, f"/jobs/{new_id()}{path}", **more)
    assert answer.status_code == 404
    assert "no job" in problem(answer)["detail"]
    assert admin.ask(method, f"/jobs/7{path}", **more).status_code == 422
