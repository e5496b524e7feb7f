"""The REST sections of two designs that Holdfast serves, as they are written there, in our words:
`processing` is `running`, ids are strings. Rows E (a media manager) and B (video transcoding)."""

from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.core.ids import new_id
from holdfast.jobs.job import Status
from tests.support.jobs import in_status
from tests.support.waiting import wait_for_status
from tests.support.web import Caller, Site
from tests.web.conftest import Gate, ended, run_all

CREATE = {
    "type": "enrich-metadata",
    "priority": 1,
    "payload": {"entity_type": "movie", "entity_id": 123, "manual": True},
}


# row E


def test_create_job(app: Holdfast, operator: Caller):
    answer = operator.post("/jobs", CREATE)
    assert answer.status_code == 201
    job = answer.json()
    assert (job["type"], job["priority"], job["status"]) == ("enrich-metadata", 1, "pending")
    assert (job["entity_type"], job["entity_id"]) == ("movie", 123)
    assert job["payload"] == CREATE["payload"]
    run_all(app, job["id"])
    done = operator.get(f"/jobs/{job['id']}").json()
    assert done["status"] == "completed"
    assert done["result"] == {"entity_type": "movie", "entity_id": 123, "manual": True}


@pytest.mark.parametrize("id", [123, "123", "tt0133093", 2**60])
def test_the_entity_of_a_payload_keeps_its_type(app: Holdfast, operator: Caller, id: Any):
    payload = {"entity_type": "movie", "entity_id": id}
    job = operator.post("/jobs", {"type": "enrich-metadata", "payload": payload}).json()
    assert job["entity_id"] == id
    assert type(job["entity_id"]) is type(id)
    assert [one.id for one in app.jobs.search(entity=("movie", id))] == [job["id"]]


def test_what_is_no_entity_is_only_payload(app: Holdfast, operator: Caller):
    for payload in (
        {"entity_type": "movie"},
        {"entity_type": 7, "entity_id": 7},
        {"entity_type": "movie", "entity_id": [1]},
        {"entity_type": "a movie", "entity_id": 1},
        {"entity_type": "movie", "entity_id": True},
        {"entity_type": "movie", "entity_id": "\x00"},
    ):
        answer = operator.post("/jobs", {"type": "echo", "payload": payload})
        assert answer.status_code == 201, answer.text
        assert answer.json()["entity_type"] is None
        assert app.jobs.get(answer.json()["id"]).payload == payload


def test_list_jobs(app: Holdfast, operator: Caller, gate: Gate):
    stays = app.tasks["stay"].enqueue(n=1)
    other = operator.post("/jobs", CREATE).json()
    app.task(name="enrich-slowly")(app.tasks["stay"].handler)
    running = app.enqueue("enrich-slowly", {"n": 2})
    with app.worker():
        wait_for_status(app, running, "running")
        wait_for_status(app, stays, "running")
        ended(app, other["id"])
        answer = operator.ask("GET", "/jobs?status=running&type=enrich").json()
        assert [job["id"] for job in answer["jobs"]] == [running.id]
        answer = operator.ask("GET", "/jobs?type=enrich").json()
        assert {job["type"] for job in answer["jobs"]} == {"enrich-metadata", "enrich-slowly"}
        assert answer["stats"]["running"] == 2
        gate.open.set()


def test_cancel_job(app: Holdfast, operator: Caller):
    job = operator.post("/jobs", CREATE).json()
    assert operator.delete(f"/jobs/{job['id']}").json()["status"] == "cancelled"
    assert app.jobs.get(job["id"]).status == "cancelled"


def test_retry_failed_job(app: Holdfast, operator: Caller):
    job = app.tasks["fail"].enqueue()
    run_all(app, job)
    assert app.jobs.get(job.id).status == "failed"
    again = operator.post(f"/jobs/{job.id}/retry")
    assert (again.status_code, again.json()["status"], again.json()["attempts"]) == (
        *(200, "pending"),
        0,
    )


# row B


def test_an_empty_admin_list_has_stats(viewer: Caller):
    told = viewer.get("/jobs").json()
    assert told["jobs"] == []
    for status in ("pending", "running", "completed", "failed"):
        assert told["stats"][status] == 0


def test_an_admin_list(app: Holdfast, viewer: Caller):
    for status in (Status.PENDING, Status.RUNNING, Status.COMPLETED, Status.FAILED):
        in_status(app.engine, status, type=f"video-{status}")
    app.tasks["add"].enqueue_many([{"a": 1}] * 120)
    told = viewer.get("/jobs").json()
    assert len(told["jobs"]) == 100
    created = [job["created_at"] for job in told["jobs"]]
    assert [job["id"] for job in told["jobs"]] == sorted(
        (job["id"] for job in told["jobs"]), reverse=True
    )
    assert len(created) == 100
    assert told["stats"]["pending"] == 121
    assert (told["stats"]["running"], told["stats"]["completed"], told["stats"]["failed"]) == (
        *(1, 1),
        1,
    )
    failed = viewer.get("/jobs", status="failed").json()
    assert [job["type"] for job in failed["jobs"]] == ["video-failed"]
    assert failed["stats"] == told["stats"]


def test_retry_resets_attempts_and_work_begins_at_once(app: Holdfast, operator: Caller):
    job = app.tasks["fail"].enqueue()
    run_all(app, job)
    before = app.jobs.get(job.id)
    assert (before.attempts, before.error is not None) == (2, True)
    with app.worker(queues=["other"]):
        told = operator.post(f"/jobs/{job.id}/retry").json()
        assert (told["status"], told["attempts"], told["error"]) == ("pending", 0, None)
        assert (told["started_at"], told["completed_at"]) == (None, None)
    run_all(app, job)
    assert app.jobs.get(job.id).attempts == 2


def test_retry_of_nothing(operator: Caller):
    answer = operator.post(f"/jobs/{new_id()}/retry")
    assert answer.status_code == 404
    assert "no job" in answer.json()["detail"]


def test_no_auth_check_is_left_to_do(site: Site):
    """The design says: `TODO: Add auth check`."""
    nobody = site.caller()
    assert nobody.get("/jobs").status_code == 401
    assert nobody.post(f"/jobs/{new_id()}/retry").status_code == 401
