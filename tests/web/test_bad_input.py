"""What must never be an error of the server: text that no database takes, numbers that are none, nests
that have no end."""

import json
from typing import Any

import pytest

from holdfast import Holdfast
from tests.support.web import Caller, problem
from tests.web.test_jobs import make

NASTY = ("\x00", "\ud800", "a\udfffb", "\u202e", "'; DROP TABLE jobs; --", "%s%(x)s", "x" * 600)
UNSTORABLE = ("\x00", "\ud800", "a\udfffb")


@pytest.mark.parametrize(
    "field", ["type", "queue", "key", "entity_type", "entity_id", "delay", "run_at", "on_conflict"]
)
def test_texts_in_every_field_of_a_new_job(app: Holdfast, admin: Caller, field: str):
    taken = 0
    for text in NASTY:
        body = {"type": "echo", "payload": {}, field: text}
        if field.startswith("entity"):
            body = {"entity_type": "movie", "entity_id": "7", **body}
        answer = admin.post("/jobs", body)
        takes = field in ("key", "entity_id") and text not in UNSTORABLE
        takes = takes and not (field == "key" and len(text) > 500)
        taken += takes
        assert answer.status_code == (201 if takes else 422), answer.text
        assert app.jobs.count() == taken


@pytest.mark.parametrize("text", NASTY)
def test_texts_in_a_payload(app: Holdfast, admin: Caller, text: str):
    for payload in ({"t": text}, {text: 1}, {"l": [{"t": text}]}):
        answer = admin.post("/jobs", {"type": "echo", "payload": payload})
        if "\ud800" in text or "\udfff" in text:
            assert answer.status_code == 422
        else:
            assert answer.status_code == 201
            assert admin.get(f"/jobs/{answer.json()['id']}").json()["payload"] == payload


@pytest.mark.parametrize("text", NASTY)
def test_texts_in_every_filter(admin: Caller, text: str):
    make(admin)
    for field in ("status", "type", "queue", "key", "worker", "entity", "since", "q", "after"):
        value = f"movie:{text}" if field == "entity" else text
        if "\ud800" in value or "\udfff" in value:
            answer = admin.ask("GET", f"/jobs?{field}=%ED%A0%80")
        else:
            answer = admin.get("/jobs", **{field: value})
        assert answer.status_code in (200, 422), f"{field}: {answer.text}"
        body = {"action": "cancel", "filter": {field: value}, "dry_run": True}
        assert admin.post("/bulk", body).status_code in (200, 422), field
    assert admin.get("/jobs").json()["stats"]["pending"] == 1


@pytest.mark.parametrize("text", NASTY)
def test_texts_in_paths_and_elsewhere(admin: Caller, text: str):
    from urllib.parse import quote

    path = quote(text.encode("utf-8", "surrogatepass"), safe="")
    for method, address, body in (
        ("GET", f"/jobs/{path}", None),
        ("GET", f"/tasks/{path}", None),
        ("POST", f"/queues/{path}/pause", {}),
        ("PUT", f"/limits/{path}", {"concurrency": 1}),
        ("GET", f"/tasks/add?window={path}", None),
        ("GET", f"/series?type={path}", None),
        ("GET", f"/errors?type={path}", None),
        ("PUT", "/limits/add", {"rate": text}),
        ("POST", "/queues/default/purge", {"confirm": text}),
        ("POST", "/queues/default/pause", {"for": text}),
        ("GET", f"//{path}", None),
    ):
        answer = admin.ask(method, address, **({} if body is None else {"data": json.dumps(body)}))
        assert answer.status_code < 500, f"{method} {address}: {answer.text}"


@pytest.mark.parametrize("field", ["payload", "priority", "delay", "entity_id", "max_attempts"])
def test_numbers_that_are_none(app: Holdfast, admin: Caller, field: str):
    for number in ("NaN", "Infinity", "-Infinity", "1e400", "-1e400"):
        value = f'{{"n":{number}}}' if field == "payload" else number
        more = ',"entity_type":"movie"' if field == "entity_id" else ""
        body = f'{{"type":"echo","{field}":{value}{more}}}'
        answer = admin.ask("POST", "/jobs", data=body)
        assert answer.status_code == 422, answer.text
        assert problem(answer)["detail"]
    assert app.jobs.count() == 0


def test_deep_nests(admin: Caller):
    many = 100_000
    for text in ("[" * many, '{"a":' * many, "[" * many + "]" * many):
        for where in ("", '{"type":"echo","payload":{"a":'):
            for path in ("/jobs", "/bulk", "/session"):
                answer = admin.ask("POST", path, data=where + text)
                assert answer.status_code in (400, 422)
                assert problem(answer)["detail"]


def test_a_nest_as_deep_as_can_be_read_is_stored_or_refused(admin: Caller):
    for depth in (50, 150, 199, 250, 500, 900, 3000):
        body = '{"type":"echo","payload":{"a":' + "[" * depth + "]" * depth + "}}"
        answer = admin.ask("POST", "/jobs", data=body)
        assert answer.status_code in (201, 400, 422), f"{depth}: {answer.text[:300]}"
        if answer.status_code == 201:
            assert admin.get(f"/jobs/{answer.json()['id']}").status_code == 200


BROKEN = ("", "null", "[]", "7", '"x"', "{", '{"type":"add",}', "\ufeff{}", b"\xff\xfe", b"\x80")


@pytest.mark.parametrize("path", ["/jobs", "/bulk", "/session", "/tokens"])
def test_bodies_that_are_none(admin: Caller, path: str):
    for body in BROKEN:
        answer = admin.ask("POST", path, data=body)
        assert answer.status_code in (400, 415, 422), f"{path} {body!r}: {answer.text}"
        assert problem(answer)["detail"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/jobs", {"type": "add", "payload": {"a": 1}, "x1": 1}),
        ("PATCH", "/jobs/{id}", {"priority": 1, "x1": 1}),
        ("POST", "/jobs/{id}/duplicate", {"x1": 1}),
        ("POST", "/bulk", {"action": "cancel", "ids": [], "x1": 1}),
        ("POST", "/bulk", {"action": "cancel", "filter": {"x1": 1}}),
        ("POST", "/queues/default/pause", {"x1": 1}),
        ("PUT", "/queues/default/limit", {"x1": 1}),
        ("PUT", "/limits/stay", {"x1": 1}),
        ("POST", "/session", {"token": "x", "x1": 1}),
        ("POST", "/tokens", {"name": "x", "role": "viewer", "x1": 1}),
        ("PATCH", "/schedules/{id}", {"delay": 1, "x1": 1}),
    ],
)
def test_unknown_fields_are_named(admin: Caller, method: str, path: str, body: Any):
    id = make(admin)["id"]
    answer = admin.ask(method, path.replace("{id}", id), json=body)
    assert answer.status_code == 422
    assert any("x1" in one["field"] for one in problem(answer)["errors"])


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_moments_at_the_ends_of_time(admin: Caller, moment: str):
    id = make(admin)["id"]
    assert admin.post("/jobs", {"type": "echo", "run_at": moment}).status_code == 422
    assert admin.patch(f"/jobs/{id}", {"run_at": moment}).status_code == 422
    assert admin.get("/jobs", since=moment).status_code == 422
    assert admin.post("/queues/default/pause", {"until": moment}).status_code == 422


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "1969-01-01"])
def test_moments_near_the_ends_of_time(admin: Caller, moment: str):
    id = make(admin)["id"]
    for answer in (
        admin.post("/jobs", {"type": "echo", "run_at": moment}),
        admin.patch(f"/jobs/{id}", {"run_at": moment}),
        admin.get("/jobs", since=moment),
        admin.get("/jobs", until=moment),
        admin.get("/export", since=moment, until=moment),
        admin.post("/queues/default/pause", {"until": moment}),
        admin.get("/queues"),
    ):
        assert answer.status_code < 500, answer.text
    assert len(admin.get("/jobs").json()["jobs"]) >= 1


@pytest.mark.parametrize("length", ["100 years", 3.2e9, 1e300, "1e9w", -1, "", "w" * 50])
def test_durations_without_sense(admin: Caller, length: Any):
    answer = admin.post("/jobs", {"type": "echo", "delay": length})
    assert answer.status_code == 422
    assert "delay" in problem(answer)["detail"]


@pytest.mark.parametrize("window", ["59s", "25h", "x", "1e9h", "-1h", "1h 1h 1h 1h 1h 1h"])
def test_windows_without_sense(admin: Caller, window: str):
    for path in ("/stats", "/series", "/tasks", "/tasks/add"):
        answer = admin.get(path, window=window)
        assert answer.status_code == (200 if window.startswith("1h") else 422), answer.text
