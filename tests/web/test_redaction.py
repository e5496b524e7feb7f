"""What is never shown: values by the names of their keys, at any depth and in every place."""

from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.web import Identity, Permission
from holdfast.web.security.redaction import HIDDEN, Redaction
from tests.support.web import Site, problem
from tests.web.conftest import Open, run_all

SECRET = "s3cr3t-value"
PAYLOAD: dict[str, Any] = {
    "password": SECRET,
    "API-Key": SECRET,
    "deep": [{"user": {"Access_Token": {"a": [SECRET]}}}, [[{"db_passwd": SECRET}]]],
    "cookie": SECRET,
    "plain": "shown",
    "token": None,
}


def test_at_every_depth_and_in_every_place(site: Site, app: Holdfast):
    admin = site.somebody("admin")
    made = admin.post("/jobs", {"type": "echo", "payload": PAYLOAD})
    id = made.json()["id"]
    run_all(app, id)
    assert app.jobs.get(id).result["password"] == SECRET
    places = [
        made,
        admin.get(f"/jobs/{id}"),
        admin.get("/jobs"),
        admin.get("/export", format="jsonl"),
        admin.get("/export", format="csv"),
        admin.post(f"/jobs/{id}/retry"),
        admin.patch(f"/jobs/{id}", {"priority": 1}),
        admin.post(f"/jobs/{id}/run"),
        admin.post(f"/jobs/{id}/duplicate"),
        admin.delete(f"/jobs/{id}"),
        admin.post(f"/jobs/{id}/delete"),
        admin.get("/audit"),
    ]
    for answer in places:
        assert answer.status_code in (200, 201), answer.text
        assert SECRET not in answer.text, answer.url
    shown = places[1].json()
    for body in (shown["payload"], shown["result"]):
        assert body["plain"] == "shown"
        assert body["password"] == body["API-Key"] == body["cookie"] == HIDDEN
        assert body["deep"] == [{"user": {"Access_Token": HIDDEN}}, [[{"db_passwd": HIDDEN}]]]
        assert body["token"] is None


def test_a_duplicate_keeps_the_true_payload(site: Site, app: Holdfast):
    admin = site.somebody("admin")
    first = app.tasks["echo"].enqueue(**PAYLOAD)
    copy = admin.post(f"/jobs/{first.id}/duplicate").json()
    assert copy["payload"]["password"] == HIDDEN
    assert app.jobs.get(copy["id"]).payload == PAYLOAD


def test_a_recurring_job_and_a_workflow(site: Site, app: Holdfast):
    admin = site.somebody("admin")
    app.tasks["echo"].using(key="k", every="1h").schedule(**PAYLOAD)
    flow = app.chain(app.tasks["echo"].call(**PAYLOAD))
    [row] = admin.get("/schedules").json()["schedules"]
    for answer in (
        admin.get("/schedules"),
        admin.post(f"/schedules/{row['id']}/run"),
        admin.get(f"/workflows/{flow.id}"),
    ):
        assert answer.status_code == 200
        assert SECRET not in answer.text


@pytest.mark.parametrize(
    "q", ["payload.password:x", "payload.deep.Access-Token.a:x", "payload.user.API_KEY:x"]
)
def test_what_is_hidden_is_not_searched_for(site: Site, q: str):
    admin = site.somebody("admin")
    for answer in (
        admin.get("/jobs", q=q),
        admin.get("/export", q=q),
        admin.post("/bulk", {"action": "cancel", "filter": {"q": q}, "dry_run": True}),
        admin.post("/bulk", {"action": "delete", "filter": {"q": q}}),
    ):
        assert answer.status_code == 422, answer.text
        assert "redacted" in problem(answer)["detail"]
    assert admin.get("/jobs", q="payload.user.id:7").status_code == 200


def test_other_patterns(open_site: Open, app: Holdfast):
    job = app.tasks["echo"].enqueue(password="p", iban="i", nested={"x_iban_y": "i"})
    site = open_site(redact=["*iban*"])
    assert site.somebody("admin").get(f"/jobs/{job.id}").json()["payload"] == {
        "password": "p",
        "iban": HIDDEN,
        "nested": {"x_iban_y": HIDDEN},
    }
    none = open_site(redact=[])
    assert none.somebody("admin").get(f"/jobs/{job.id}").json()["payload"]["iban"] == "i"


def test_who_may_not_see_payloads(open_site: Open, app: Holdfast):
    job = app.tasks["fail"].enqueue(reason=SECRET)
    run_all(app, job)
    reader = Identity(
        who="ann",
        role="reader",
        permissions=frozenset({Permission.JOBS_READ, Permission.JOBS_OPERATE}),
        via="host",
    )
    caller = open_site(authorize=lambda request: reader).caller()
    told = caller.get(f"/jobs/{job.id}").json()
    assert (told["payload"], told["result"], told["hidden"]) == (None, None, ["payload", "result"])
    assert all(
        one["trace"] is None for one in caller.get(f"/jobs/{job.id}/attempts").json()["attempts"]
    )
    for q in ("payload.reason:x", f"payload.reason:{SECRET}"):
        assert caller.get("/jobs", q=q).status_code == 403
        assert caller.get("/export", q=q).status_code == 403
        body = {"action": "cancel", "filter": {"q": q}, "dry_run": True}
        assert caller.post("/bulk", body).status_code == 403


def test_depth_has_a_bound():
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    redacted: Any = Redaction(["*secret*"])(deep)
    for _ in range(201):
        redacted = redacted[0]
    assert redacted == HIDDEN
