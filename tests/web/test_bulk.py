"""One verb on many jobs, and files of many jobs."""

import csv
import io
import json
import threading
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.core.ids import new_id
from holdfast.jobs.job import Status
from holdfast.jobs.job_json import FIELDS
from holdfast.web.api.bulk import Operation
from tests.support.jobs import in_status
from tests.support.waiting import until
from tests.support.web import Caller, problem
from tests.web.conftest import run_all


def over(caller: Caller, answer: Any) -> dict[str, Any]:
    """The operation, once it has ended."""
    assert answer.status_code == 202, answer.text
    path = f"/bulk/{answer.json()['id']}"
    until(lambda: caller.get(path).json()["state"] != "running", "the end")
    told: dict[str, Any] = caller.get(path).json()
    return told


def test_a_look_before(app: Holdfast, admin: Caller):
    app.tasks["add"].enqueue_many([{"a": 1}] * 30)
    body = {"action": "cancel", "filter": {"type": "add"}, "dry_run": True}
    answer = admin.post("/bulk", body)
    assert answer.status_code == 200
    assert answer.json() == {"matched": 30, "capped": False}
    assert app.jobs.count(status="pending") == 30


def test_by_filter(app: Holdfast, admin: Caller):
    app.tasks["add"].enqueue_many([{"a": 1}] * 30)
    app.tasks["tick"].enqueue()
    told = over(admin, admin.post("/bulk", {"action": "cancel", "filter": {"type": "add"}}))
    assert (told["action"], told["state"], told["error"]) == ("cancel", "done", None)
    assert (told["seen"], told["changed"], told["matched"]) == (30, 30, 30)
    assert (app.jobs.count(status="cancelled"), app.jobs.count(status="pending")) == (30, 1)
    told = over(
        admin, admin.post("/bulk", {"action": "retry", "filter": {"status": ["cancelled"]}})
    )
    assert told["changed"] == 30
    told = over(admin, admin.post("/bulk", {"action": "delete", "filter": {}}))
    assert told["changed"] == 31
    assert app.jobs.count() == 0


def test_by_ids_with_reasons(app: Holdfast, admin: Caller):
    waiting = app.tasks["add"].enqueue(a=1)
    running = in_status(app.engine, Status.RUNNING)
    old = app.tasks["add"].using(key="k").enqueue(a=1)
    app.jobs.cancel(old.id)
    app.tasks["add"].using(key="k").enqueue(a=1)
    gone = new_id()
    ids = [waiting.id, waiting.id, running.id, old.id, gone]
    told = over(admin, admin.post("/bulk", {"action": "retry", "ids": ids}))
    assert (told["seen"], told["matched"]) == (4, 4)
    assert told["skipped"] == {"not in this status": 1, "key live again": 1, "gone": 1}
    assert told["changed"] == 1


def test_a_limit(app: Holdfast, admin: Caller):
    app.tasks["add"].enqueue_many([{"a": 1}] * 10)
    body = {"action": "cancel", "filter": {"type": "add"}, "limit": 4}
    assert over(admin, admin.post("/bulk", body))["changed"] == 4
    assert app.jobs.count(status="pending") == 6


@pytest.mark.parametrize(
    "body",
    [
        {"action": "cancel"},
        {"action": "cancel", "ids": [], "filter": {}},
        {"action": "drop", "ids": []},
        {"action": "cancel", "ids": ["x"]},
        {"action": "cancel", "ids": [new_id()] * 10_001},
        {"action": "cancel", "filter": {}, "limit": 0},
        {"action": "cancel", "filter": {}, "limit": 1_000_001},
        {"action": "cancel", "filter": {"status": ["gone"]}},
    ],
)
def test_wrong_ones_are_refused(app: Holdfast, admin: Caller, body: Any):
    app.tasks["add"].enqueue(a=1)
    assert admin.post("/bulk", body).status_code == 422
    assert app.jobs.count(status="pending") == 1


def test_it_can_be_stopped(app: Holdfast, admin: Caller, monkeypatch: pytest.MonkeyPatch):
    """Between two batches: what is done stays done."""
    app.tasks["add"].enqueue_many([{"a": 1}] * 1200)
    met, go_on = threading.Event(), threading.Event()
    tell = Operation.tell

    def slow(self: Operation, done: Any) -> None:
        met.set()
        assert go_on.wait(20)
        tell(self, done)

    monkeypatch.setattr(Operation, "tell", slow)
    answer = admin.post("/bulk", {"action": "cancel", "filter": {"type": "add"}})
    path = f"/bulk/{answer.json()['id']}"
    assert met.wait(20)
    assert admin.get(path).json()["state"] == "running"
    assert admin.delete(path).status_code == 200
    go_on.set()
    until(lambda: admin.get(path).json()["state"] == "stopped", "the stop")
    assert admin.get(path).json()["changed"] == 500
    assert app.jobs.count(status="cancelled") == 500


def test_nobodys_operation(admin: Caller):
    assert admin.get(f"/bulk/{new_id()}").status_code == 404
    assert admin.delete(f"/bulk/{new_id()}").status_code == 404


def test_one_that_fails_says_so(app: Holdfast, admin: Caller, monkeypatch: pytest.MonkeyPatch):
    app.tasks["add"].enqueue(a=1)

    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("a secret reason")

    monkeypatch.setattr(app.jobs, "cancel_all", broken)
    told = over(admin, admin.post("/bulk", {"action": "cancel", "filter": {}}))
    assert told["state"] == "failed"
    assert "secret" not in told["error"]


def test_an_error_group(app: Holdfast, admin: Caller):
    failed = [app.tasks["fail"].enqueue(reason="same") for _ in range(3)]
    other = app.tasks["refuse"].enqueue()
    run_all(app, *failed, other)
    groups = admin.get("/errors").json()
    assert groups["complete"] is True
    group = next(one for one in groups["groups"] if one["types"] == ["fail"])
    assert (group["exception"], group["count"]) == ("RuntimeError", 3)
    assert set(group["sample_ids"]) == {job.id for job in failed}
    assert group["statuses"]["failed"] == 3
    body = {"action": "retry", "filter": {"error_group": group["id"]}}
    assert admin.post("/bulk", {**body, "dry_run": True}).json()["matched"] == 3
    assert over(admin, admin.post("/bulk", body))["changed"] == 3
    assert app.jobs.get(other.id).status == "failed"
    assert admin.get("/errors", type="refuse").json()["groups"][0]["types"] == ["refuse"]
    assert admin.get("/errors", status="retrying").json()["groups"] == []


# files


def lines(answer: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in answer.text.splitlines()]


def test_json_lines(app: Holdfast, admin: Caller):
    made = app.tasks["add"].enqueue_many([{"a": n} for n in range(1100)])
    answer = admin.get("/export")
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.headers["content-disposition"] == 'attachment; filename="jobs.jsonl"'
    assert [one["id"] for one in lines(answer)] == sorted((job.id for job in made), reverse=True)
    assert set(lines(answer)[0]) == {*FIELDS, "cancel_requested"} - {"payload", "result"}
    assert len(lines(admin.get("/export", limit=7))) == 7
    assert lines(admin.get("/export", type="tick")) == []


def test_csv_guards_formulas(app: Holdfast, admin: Caller):
    for key in ("=1+1", "+1", "-1", "@x", "\tx", "\rx", "plain", 'quo"te', "two\nlines"):
        app.tasks["add"].using(key=key, priority=-7).enqueue(a=1)
    answer = admin.get("/export", format="csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="jobs.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert [row["key"] for row in reversed(rows)] == [
        *("'=1+1", "'+1", "'-1", "'@x", "'\tx", "'\rx", "plain", 'quo"te', "two\nlines")
    ]
    assert {row["priority"] for row in rows} == {"-7"}
    for row in rows:
        assert all(not cell.startswith(("=", "+", "@", "\t", "\r")) for cell in row.values())


def test_a_wrong_file(admin: Caller):
    assert admin.get("/export", format="xml").status_code == 422
    answer = admin.get("/export", limit=1_000_001)
    assert problem(answer)["errors"][0]["field"] == "query.limit"
