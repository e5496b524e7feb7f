"""Jobs over REST: made, listed, looked at. Numbers are exact, pages have no gaps."""

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.core.ids import new_id
from holdfast.jobs.job import Status
from holdfast.jobs.job_json import FIELDS
from tests.support.jobs import execute
from tests.support.waiting import until
from tests.support.web import Caller, problem
from tests.web.conftest import Gate, ended, run_all

BODIES = ("payload", "result")
LARGE = 2**53 + 1
HUGE = 10**30


def make(caller: Caller, type: str = "add", payload: Any = None, **more: Any) -> dict[str, Any]:
    answer = caller.post("/jobs", {"type": type, "payload": payload or {"a": 1}, **more})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def next_moment() -> str:
    """Which is after everything that was made, and before what will be: to the millisecond."""
    last = time.time_ns() // 1_000_000
    until(lambda: time.time_ns() // 1_000_000 > last + 1, "the next millisecond")
    return datetime.fromtimestamp((last + 1) / 1000, UTC).isoformat()


# making


def test_a_created_job_is_returned_whole(app: Holdfast, admin: Caller):
    made = make(admin, payload={"a": 1, "b": 2})
    assert set(made) == {*FIELDS, "cancel_requested", "hidden", "created"}
    assert made["created"] is True
    assert made["hidden"] == []
    assert (made["type"], made["status"], made["attempts"]) == ("add", "pending", 0)
    assert (made["payload"], made["result"]) == ({"a": 1, "b": 2}, None)
    assert made["created_at"].endswith("Z")
    assert app.jobs.get(made["id"]).payload == {"a": 1, "b": 2}


def test_every_option_of_a_new_job(app: Holdfast, admin: Caller):
    made = make(
        admin,
        priority=-5,
        queue="media",
        key="k:1",
        delay="1h",
        expires=7200,
        max_attempts=7,
        timeout="10s",
        entity=["movie", 7],
    )
    assert (made["priority"], made["queue"], made["key"]) == (-5, "media", "k:1")
    assert (made["status"], made["max_attempts"]) == ("scheduled", 7)
    assert (made["entity_type"], made["entity_id"]) == ("movie", 7)
    created, run, expires = (
        datetime.fromisoformat(made[name]) for name in ("created_at", "run_at", "expires_at")
    )
    assert run - created == pytest.approx(timedelta(hours=1), abs=timedelta(seconds=1))
    assert expires - created == pytest.approx(timedelta(hours=2), abs=timedelta(seconds=1))


def test_a_moment_without_an_offset_is_utc(admin: Caller):
    made = make(admin, run_at="2099-01-02T03:04:05")
    assert made["run_at"] == "2099-01-02T03:04:05.000000Z"
    made = make(admin, run_at="2099-01-02T03:04:05+02:00")
    assert made["run_at"] == "2099-01-02T01:04:05.000000Z"


def test_a_live_key_is_found_instead(admin: Caller):
    first = make(admin, key="once")
    answer = admin.post("/jobs", {"type": "add", "payload": {"a": 2}, "key": "once"})
    assert answer.status_code == 200
    assert answer.json()["created"] is False
    assert answer.json()["id"] == first["id"]
    answer = admin.post(
        "/jobs", {"type": "add", "payload": {"a": 2}, "key": "once", "on_conflict": "raise"}
    )
    assert answer.status_code == 409
    assert "once" in problem(answer)["detail"]


@pytest.mark.parametrize("policy", ["existing", "replace", "debounce", "raise"])
def test_the_key_of_a_recurring_job_is_refused(app: Holdfast, admin: Caller, policy: str):
    row = app.tasks["add"].using(key="daily", every="1d").schedule(1)
    body = {"type": "add", "payload": {"a": 2}, "key": "daily", "on_conflict": policy}
    answer = admin.post("/jobs", body)
    assert answer.status_code == 409
    assert f"the recurring job {row.id}" in problem(answer)["detail"]
    assert app.schedules.get("add", "daily").payload["a"] == 1


def test_an_idempotency_key_makes_one_job_whatever_has_become_of_it(app: Holdfast, admin: Caller):
    once = {"headers": {"Idempotency-Key": "order-7"}}
    first = admin.post("/jobs", {"type": "add", "payload": {"a": 1}}, **once)
    assert first.status_code == 201
    assert (first.json()["created"], first.json()["idempotency_key"]) == (True, "order-7")
    run_all(app, first.json()["id"])
    again = admin.post("/jobs", {"type": "add", "payload": {"a": 2}}, **once)
    assert again.status_code == 200
    assert again.json() == admin.get(f"/jobs/{first.json()['id']}").json() | {"created": False}
    assert again.json()["status"] == "completed"
    assert app.jobs.count() == 1
    assert make(admin)["idempotency_key"] is None


@pytest.mark.parametrize("value", ["", "x" * 501, "caf\u00e9", "a\tb"])
def test_an_idempotency_key_that_is_refused(app: Holdfast, admin: Caller, value: str):
    headers = {"Idempotency-Key": value.encode()}
    answer = admin.post("/jobs", {"type": "add", "payload": {"a": 1}}, headers=headers)
    assert answer.status_code == 422
    assert problem(answer)["errors"][0]["field"] == "header.Idempotency-Key"
    assert app.jobs.count() == 0


def test_the_description_tells_of_the_idempotency_key(admin: Caller):
    described = admin.get("/openapi.json").json()["paths"]["/api/v1/jobs"]["post"]
    [header] = [one for one in described["parameters"] if one["in"] == "header"]
    assert (header["name"], header["required"]) == ("Idempotency-Key", False)
    assert "200 instead of 201" in header["description"]
    assert {"200", "201", "422"} <= set(described["responses"])


def test_an_unknown_task_is_refused(admin: Caller):
    answer = admin.post("/jobs", {"type": "os.system", "payload": {}})
    assert answer.status_code == 404
    assert "os.system" in problem(answer)["detail"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "body.type"),
        ({"type": "a b"}, "body.type"),
        ({"type": "add", "payload": []}, "body.payload"),
        ({"type": "add", "priority": 2**63}, "body.priority"),
        ({"type": "add", "priorty": 1}, "body.priorty"),
        ({"type": "add", "payload": {"a": "x"}}, "body.payload.a"),
        ({"type": "add", "payload": {}}, "body.payload.a"),
        ({"type": "add", "payload": {"a": 1, "c": 2}}, "body.payload.c"),
        ({"type": "add", "max_attempts": 0}, "body.max_attempts"),
        ({"type": "add", "entity": ["movie"]}, "body.entity.1"),
    ],
)
def test_what_does_not_fit_is_named(admin: Caller, body: Any, field: str):
    answer = admin.post("/jobs", body)
    assert answer.status_code == 422
    assert field in [one["field"] for one in problem(answer)["errors"]]


def test_half_an_entity_is_refused(admin: Caller):
    answer = admin.post("/jobs", {"type": "add", "payload": {"a": 1}, "entity_type": "movie"})
    assert answer.status_code == 422
    assert "entity_id" in problem(answer)["detail"]


@pytest.mark.parametrize("number", [LARGE, -LARGE, 2**63 - 1, HUGE])
def test_integers_are_exact_both_ways(app: Holdfast, admin: Caller, number: int):
    made = make(admin, "echo", {"n": number, "deep": [{"n": number}]})
    run_all(app, made["id"])
    answer = admin.get(f"/jobs/{made['id']}")
    assert f'"n":{number}' in answer.text
    assert answer.json()["payload"] == {"n": number, "deep": [{"n": number}]}
    assert answer.json()["result"] == {"n": number, "deep": [{"n": number}]}


@pytest.mark.parametrize("id", [LARGE, HUGE, -7, str(LARGE), "7", "0x7", 'a"b', "ünï"])
def test_entity_ids_keep_their_type_both_ways(admin: Caller, id: int | str):
    made = make(admin, entity=["movie", id])
    assert made["entity_id"] == id
    assert type(made["entity_id"]) is type(id)
    written = id if isinstance(id, int) else json.dumps(id, ensure_ascii=False)
    listed = admin.get("/jobs", entity=f"movie:{written}").json()["jobs"]
    assert [(job["id"], job["entity_id"]) for job in listed] == [(made["id"], id)]


def test_the_number_and_the_text_of_an_entity_are_two(admin: Caller):
    number, text = make(admin, entity=["movie", 7]), make(admin, entity=["movie", "7"])
    assert [one["id"] for one in admin.get("/jobs", entity="movie:7").json()["jobs"]] == [
        number["id"]
    ]
    assert [one["id"] for one in admin.get("/jobs", entity='movie:"7"').json()["jobs"]] == [
        text["id"]
    ]


# listing


def test_a_list_on_an_empty_database(admin: Caller):
    answer = admin.get("/jobs").json()
    assert answer == {
        "jobs": [],
        "next": None,
        "stats": {status.value: 0 for status in Status},
        "cap": answer["cap"],
    }


def test_lists_leave_bodies_out_and_are_newest_first(admin: Caller):
    made = [make(admin, payload={"a": number}) for number in range(3)]
    jobs = admin.get("/jobs").json()["jobs"]
    assert [job["id"] for job in jobs] == [job["id"] for job in reversed(made)]
    assert set(jobs[0]) == {*FIELDS, "cancel_requested"} - {*BODIES}


def test_filters(app: Holdfast, admin: Caller):
    media = make(admin, queue="media", key="k")
    moment = next_moment()
    about = make(admin, "enrich-metadata", {"entity_type": "movie", "entity_id": 7})
    later = make(admin, delay="1h")

    def found(**params: Any) -> list[str]:
        answer = admin.get("/jobs", **params)
        assert answer.status_code == 200, answer.text
        return [job["id"] for job in answer.json()["jobs"]]

    assert found(queue="media") == [media["id"]]
    assert found(key="k") == [media["id"]]
    assert found(type="enrich") == [about["id"]]
    assert found(entity="movie:7") == [about["id"]]
    assert found(status="scheduled") == [later["id"]]
    assert found(status=["scheduled", "pending"], type="add") == [later["id"], media["id"]]
    assert found(since=moment) == [later["id"], about["id"]]
    assert found(until=moment) == [media["id"]]
    assert found(worker="nobody") == []
    assert found(queue="media", type="enrich") == []


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"status": "done"}, "query.status.0"),
        ({"limit": 0}, "query.limit"),
        ({"limit": 1001}, "query.limit"),
        ({"after": "x"}, "query.after"),
        ({"colour": "red"}, "query.colour"),
        ({"since": "yesterday"}, "query.since"),
        ({"type": "a b"}, "query.type"),
    ],
)
def test_wrong_filters_are_named(admin: Caller, params: dict[str, Any], field: str):
    answer = admin.get("/jobs", **params)
    assert answer.status_code == 422
    assert [one["field"] for one in problem(answer)["errors"]] == [field]


def test_pages_have_no_gaps_while_jobs_are_added(app: Holdfast, admin: Caller):
    before = [job.id for job in app.tasks["add"].enqueue_many([{"a": n} for n in range(25)])]
    seen: list[str] = []
    cursor: dict[str, Any] = {}
    while True:
        page = admin.get("/jobs", limit=4, **cursor).json()
        seen += [job["id"] for job in page["jobs"]]
        app.tasks["add"].enqueue_many([{"a": 1}, {"a": 2}])
        if page["next"] is None:
            break
        cursor = {"after": page["next"]}
    assert seen == sorted(before, reverse=True)


def test_counts_are_capped(app: Holdfast, admin: Caller):
    cap = admin.get("/jobs").json()["cap"]
    app.tasks["add"].enqueue_many([{"a": 1}] * (cap + 5))
    told = admin.get("/jobs", limit=1).json()
    assert told["stats"]["pending"] == cap
    assert len(told["jobs"]) == 1


# looking


def test_a_finished_job(app: Holdfast, admin: Caller):
    made = make(admin, payload={"a": 2, "b": 3})
    run_all(app, made["id"])
    job = admin.get(f"/jobs/{made['id']}").json()
    assert (job["status"], job["result"], job["attempts"], job["error"]) == (
        "completed",
        5,
        1,
        None,
    )
    assert job["completed_at"] >= job["started_at"]
    assert admin.get(f"/jobs/{made['id']}/why").json() == {"reasons": []}


def test_attempts_newest_first_with_their_traces(app: Holdfast, admin: Caller):
    made = make(admin, "fail", {"reason": "broken"})
    run_all(app, made["id"])
    job = admin.get(f"/jobs/{made['id']}").json()
    assert (job["status"], job["error"]) == ("failed", "RuntimeError: broken (attempt 2)")
    runs = admin.get(f"/jobs/{made['id']}/attempts").json()["attempts"]
    assert [(run["attempt"], run["error"]) for run in runs] == [
        (2, "RuntimeError: broken (attempt 2)"),
        (1, "RuntimeError: broken (attempt 1)"),
    ]
    assert set(runs[0]) == {
        *("attempt", "status", "worker_id", "started_at", "finished_at", "error", "trace")
    }
    assert "Traceback" in runs[0]["trace"]


def test_a_running_job(app: Holdfast, admin: Caller, gate: Gate):
    made = make(admin, "stay", {"n": 1})
    with app.worker() as worker:
        until(lambda: admin.get(f"/jobs/{made['id']}").json()["message"] == "staying", "progress")
        job = admin.get(f"/jobs/{made['id']}").json()
        assert (job["status"], job["progress"]) == ("running", 50.0)
        assert job["worker_id"] == worker.id
        assert [one["id"] for one in admin.get("/jobs", worker=worker.id).json()["jobs"]] == [
            made["id"]
        ]
        gate.open.set()
        assert ended(app, made["id"]).status == "completed"


@pytest.mark.parametrize("part", ["", "/attempts", "/why", "/parents"])
def test_nobodys_job(admin: Caller, part: str):
    answer = admin.get(f"/jobs/{new_id()}{part}")
    assert answer.status_code == 404
    answer = admin.get(f"/jobs/xyz{part}")
    assert answer.status_code == 422
    assert problem(answer)["errors"][0]["field"] == "path.id"


def test_parents(app: Holdfast, admin: Caller):
    with app.workflow() as flow:
        first = flow.add(app.tasks["add"].using(node="first"), a=1)
        flow.add(app.tasks["tick"].using(after=[first], node="second"))
    one, two = sorted(app.workflows.jobs(flow.id), key=lambda job: job.node or "")
    parents = admin.get(f"/jobs/{two.id}/parents").json()["parents"]
    assert parents == [
        {
            "id": one.id,
            "type": "add",
            "node": "first",
            "status": "pending",
            "outcome": None,
            "policy": "cancel",
        }
    ]
    assert admin.get(f"/jobs/{one.id}/parents").json() == {"parents": []}
    assert admin.get(f"/jobs/{two.id}/why").json()["reasons"]


def test_a_stored_result_that_is_not_text(app: Holdfast, admin: Caller):
    """What a job holds comes back whatever it is."""
    made = make(admin, "echo", {"text": "\u0000\u2028</script>\U0001f600"})
    run_all(app, made["id"])
    job = admin.get(f"/jobs/{made['id']}").json()
    assert job["result"] == {"text": "\u0000\u2028</script>\U0001f600"}


def test_a_time_is_always_of_the_same_form(app: Holdfast, admin: Caller):
    made = make(admin)
    moment = datetime.fromisoformat(made["created_at"])
    assert moment.tzinfo == UTC
    assert len(made["created_at"]) == len("2026-11-16T00:00:00.000000Z")
    assert execute(app.engine, "SELECT count(*) FROM {jobs}") == [(1,)]
