"""Logins by cookie, tokens, and the word of the host application."""

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.core.clock import FakeClock
from holdfast.core.ids import new_id
from holdfast.web import Identity, Permission
from holdfast.web.security import gate
from holdfast.web.security.throttle import Throttle
from tests.conftest import Database
from tests.support.web import HOST, Caller, Site, problem
from tests.web.conftest import Open


@pytest.fixture(autouse=True)
def nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the database said of a token is used again for a moment; here every moment counts."""
    monkeypatch.setattr(gate, "REMEMBERED", 0.0)


def logged_in(site: Site, role: str = "operator", **scope: Any) -> Caller:
    _, secret = site.access.create("ann", role)
    browser = site.caller(**scope)
    answer = browser.post("/session", {"token": secret})
    assert answer.status_code == 200, answer.text
    return browser


def cookie_of(site: Site, scheme: str = "http") -> str:
    _, secret = site.access.create("ann", "viewer")
    return site.caller(scheme=scheme).post("/session", {"token": secret}).headers["set-cookie"]


# logins


def test_a_login_lasts_until_the_log_out(site: Site):
    browser = logged_in(site)
    told = browser.get("/session").json()
    assert (told["who"], told["role"], told["auth"]) == ("ann", "operator", "token")
    assert browser.get("/jobs").status_code == 200
    secret = browser.http.cookies["holdfast"]
    assert browser.delete("/session").status_code == 200
    assert browser.get("/session").status_code == 401
    again = site.caller()
    again.http.cookies.set("holdfast", secret)
    assert again.get("/session").status_code == 401


def test_the_cookie_over_plain_http(site: Site):
    name, *flags = [part.strip() for part in cookie_of(site).split(";")]
    assert name.startswith("holdfast=hf_")
    assert {flag.lower() for flag in flags} == {"httponly", "samesite=strict", "path=/"}


def test_the_cookie_over_https(site: Site):
    name, *flags = [part.strip() for part in cookie_of(site, "https").split(";")]
    assert name.startswith("__Host-holdfast=hf_")
    assert {flag.lower() for flag in flags} == {"httponly", "samesite=strict", "path=/", "secure"}


def test_each_login_is_another_secret(site: Site):
    assert cookie_of(site).split(";")[0] != cookie_of(site).split(";")[0]


def test_a_login_ends_with_its_token(site: Site):
    made, secret = site.access.create("ann", "admin")
    browser = site.caller()
    browser.post("/session", {"token": secret})
    assert browser.get("/session").status_code == 200
    assert site.somebody("admin").delete(f"/tokens/{made.id}").status_code == 200
    assert browser.get("/session").status_code == 401


def test_the_secret_of_a_session_is_no_token(site: Site):
    browser = logged_in(site)
    secret = browser.http.cookies["holdfast"]
    assert site.caller(secret).get("/jobs").status_code == 401
    assert site.caller().post("/session", {"token": secret}).status_code == 401


def test_a_token_is_no_cookie(site: Site):
    _, secret = site.access.create("ann", "admin")
    browser = site.caller()
    browser.http.cookies.set("holdfast", secret)
    assert browser.get("/jobs").status_code == 401


def test_a_bearer_token_wins_over_a_cookie(site: Site):
    browser = logged_in(site, "admin")
    _, viewer = site.access.create("bob", "viewer")
    told = browser.ask("GET", "/session", headers={"Authorization": f"Bearer {viewer}"}).json()
    assert (told["who"], told["role"]) == ("bob", "viewer")
    wrong = browser.ask("GET", "/session", headers={"Authorization": "Bearer hf_x"})
    assert wrong.status_code == 401
    assert browser.ask("GET", "/session", headers={"Authorization": "Basic x"}).status_code == 401


@pytest.fixture
def timed(database: Database, tmp_path: Path, clock: FakeClock) -> Iterator[Site]:
    site = Site(database.app(clock=clock, workdir=tmp_path / "work"))
    yield site
    site.close()


def test_an_idle_login_ends(timed: Site, clock: FakeClock):
    browser = logged_in(timed)
    for _ in range(3):
        clock.advance(gate.IDLE - 60)
        assert browser.get("/session").status_code == 200
    clock.advance(gate.IDLE + 61)
    assert browser.get("/session").status_code == 401


def test_a_login_ends_after_half_a_day(timed: Site, clock: FakeClock):
    browser = logged_in(timed)
    for _ in range(11):
        clock.advance(3600)
        assert browser.get("/session").status_code == 200
    clock.advance(3601)
    assert browser.get("/session").status_code == 401


def test_wrong_tokens_do_not_log_in(site: Site):
    for wrong in ("", "hf_x", "hf_" + "a" * 43, "x" * 200, "\x00"):
        answer = site.caller().post("/session", {"token": wrong})
        assert answer.status_code == 401, wrong
        assert "set-cookie" not in answer.headers
    for wrong in ("x" * 201, "\ud800"):
        assert site.caller().post("/session", {"token": wrong}).status_code == 422


# guesses


def test_guesses_are_slowed_down(site: Site):
    guesser = site.caller("hf_" + "a" * 43, address="10.0.0.1")
    statuses = [guesser.get("/jobs").status_code for _ in range(20)]
    assert statuses[:10] == [401] * 10
    assert statuses[-1] == 429
    answer = guesser.get("/jobs")
    assert int(answer.headers["retry-after"]) >= 1
    assert problem(answer)["detail"]
    assert site.caller(address="10.0.0.1").post("/session", {"token": "x"}).status_code == 429
    other = site.caller("hf_" + "a" * 43, address="10.0.0.2")
    assert other.get("/jobs").status_code == 401


def test_guesses_do_not_lock_others_out_behind_the_same_address(site: Site):
    good = site.somebody("viewer")
    assert good.get("/jobs").status_code == 200
    guesser = site.caller("hf_" + "a" * 43)
    while guesser.get("/jobs").status_code != 429:
        pass
    assert good.get("/jobs").status_code == 200


def test_changes_are_slowed_down(site: Site, monkeypatch: pytest.MonkeyPatch):
    operator, other = site.somebody("operator"), site.somebody("admin")
    monkeypatch.setattr(site.web.gate, "_changes", Throttle(per_minute=60, burst=3))
    answers = [operator.post("/queues/default/resume") for _ in range(6)]
    assert [one.status_code for one in answers[:3]] == [200] * 3
    assert answers[-1].status_code == 429
    assert answers[-1].headers["retry-after"] == "1"
    assert operator.get("/jobs").status_code == 200
    assert other.post("/queues/default/resume").status_code == 200


def test_a_throttle_lets_go_again():
    now = [100.0]
    throttle = Throttle(per_minute=60, burst=2, clock=lambda: now[0])
    for _ in range(2):
        assert throttle.wait("a") == 0
        throttle.spend("a")
    assert 0 < throttle.wait("a") <= 1
    assert throttle.wait("b") == 0
    now[0] += 1
    assert throttle.wait("a") == 0


# what is written down


def test_secrets_are_never_written(site: Site, app: Holdfast, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    admin = site.somebody("admin")
    made = admin.post("/tokens", {"name": "bob", "role": "viewer"}).json()
    browser = site.caller()
    browser.post("/session", {"token": made["token"]})
    session = browser.http.cookies["holdfast"]
    guess = "hf_" + "g" * 43
    site.caller(guess).get("/jobs")
    site.caller().post("/session", {"token": guess})
    site.caller(made["token"]).post("/jobs", {"type": "add"})
    audit = admin.get("/audit").text
    for secret in (made["token"], str(admin.secret), session, guess):
        assert secret not in caplog.text
        assert secret not in audit
        assert secret not in admin.get("/tokens").text


# tokens


def test_tokens(site: Site):
    admin = site.somebody("admin")
    answer = admin.post(
        "/tokens",
        {"name": "ci", "role": "enqueue", "tasks": ["add"], "queues": ["media"], "expires": "1d"},
    )
    assert answer.status_code == 201
    made = answer.json()
    assert (made["created_by"], made["tasks"], made["queues"]) == ("the admin", ["add"], ["media"])
    listed = admin.get("/tokens").json()["tokens"]
    assert [one["name"] for one in listed] == ["ci", "the admin"]
    assert "token" not in listed[0]
    machine = site.caller(made["token"])
    job = {"type": "add", "payload": {"a": 1}, "queue": "media"}
    assert machine.post("/jobs", job).status_code == 201
    assert admin.delete(f"/tokens/{made['id']}").json()["revoked_at"]
    assert machine.post("/jobs", job).status_code == 401
    assert admin.delete(f"/tokens/{new_id()}").status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {"name": "", "role": "viewer"},
        {"name": "x", "role": "root"},
        {"name": "x", "role": "viewer", "tasks": ["add"]},
        {"name": "x", "role": "viewer", "expires": 0},
        {"name": "x", "role": "viewer", "expires": -1},
        {"name": "\x00", "role": "viewer"},
        {"name": "\ud800", "role": "viewer"},
        {"name": "x", "role": "enqueue", "tasks": ["a b"]},
        {"name": "x" * 101, "role": "viewer"},
        {"name": "x", "role": "viewer", "token": "hf_mine"},
    ],
)
def test_wrong_tokens_are_refused(site: Site, body: Any):
    admin = site.somebody("admin")
    assert admin.post("/tokens", body).status_code == 422
    assert len(admin.get("/tokens").json()["tokens"]) == 1


def test_a_revoked_token_is_over_within_two_seconds_elsewhere(
    open_site: Open, monkeypatch: pytest.MonkeyPatch
):
    """Another server may have asked just before; it asks again soon."""
    one, other = open_site(), open_site()
    monkeypatch.setattr(gate, "REMEMBERED", 2.0)
    made, secret = one.access.create("ann", "viewer")
    caller = other.caller(secret)
    assert caller.get("/jobs").status_code == 200
    one.access.revoke(made.id)
    begin = time.monotonic()
    while caller.get("/jobs").status_code == 200:
        assert time.monotonic() - begin < 5
    assert time.monotonic() - begin < 3


# the host application's word


async def later(answer: Any) -> Any:
    return answer


ANN = Identity(who="ann", role="own", permissions=frozenset({Permission.JOBS_READ}), via="host")


@pytest.mark.parametrize(
    ("answer", "who", "role"),
    [
        ("operator", "host", "operator"),
        (("ann", "viewer"), "ann", "viewer"),
        (ANN, "ann", "own"),
    ],
)
@pytest.mark.parametrize("how", ["sync", "async"])
def test_the_host_says_who_it_is(open_site: Open, answer: Any, who: str, role: str, how: str):
    site = open_site(authorize=lambda request: later(answer) if how == "async" else answer)
    told = site.caller().get("/session").json()
    assert (told["who"], told["role"], told["auth"]) == (who, role, "host")
    assert site.caller().get("/jobs").status_code == 200
    assert site.caller().get("/tokens").status_code == 403


def test_the_host_may_not_know(open_site: Open):
    site = open_site(authorize=lambda request: None)
    assert site.caller().get("/jobs").status_code == 401
    assert site.somebody("viewer").get("/jobs").status_code == 200
    assert logged_in(site).get("/jobs").status_code == 200


def test_the_host_is_given_the_request(open_site: Open):
    def authorize(request: Any) -> Any:
        return request.headers.get("x-user"), "viewer"

    told = open_site(authorize=authorize).caller().ask("GET", "/session", headers={"X-User": "eve"})
    assert told.json()["who"] == "eve"


def test_the_host_may_have_tokens_of_its_own(open_site: Open):
    asked: list[str] = []

    def authorize(request: Any) -> Any:
        asked.append(request.headers.get("authorization", ""))
        return ("eve", "viewer") if asked[-1] == "Bearer theirs" else None

    site = open_site(authorize=authorize)
    assert site.caller("theirs").get("/session").json()["who"] == "eve"
    assert site.caller("nobodys").get("/jobs").status_code == 401
    assert asked == ["Bearer theirs", "Bearer nobodys"]
    ours = site.somebody("viewer")  # which is nobody else's business
    assert ours.get("/session").json()["who"] == "the viewer"
    assert site.caller(f"{ours.secret}x").get("/jobs").status_code == 401
    assert len(asked) == 2


@pytest.mark.parametrize(
    "answer", ["root", ("ann", "root"), 7, (), ("a", "b", "c"), True, b"admin"]
)
def test_a_wrong_answer_of_the_host_opens_nothing(
    open_site: Open, answer: Any, caplog: pytest.LogCaptureFixture
):
    got = open_site(authorize=lambda request: answer).caller().get("/jobs")
    assert got.status_code == 500
    assert problem(got)["detail"].startswith("something unexpected")
    assert "authorize" in caplog.text


def test_a_host_that_fails_opens_nothing(open_site: Open):
    def authorize(request: Any) -> Any:
        raise ZeroDivisionError

    assert open_site(authorize=authorize).caller().get("/jobs").status_code == 500


def test_read_only_holds_for_the_host_too(open_site: Open):
    whole = Identity(who="ann", role="own", permissions=frozenset(Permission), via="host")
    for answer in (whole, "admin"):
        site = open_site(authorize=lambda request, answer=answer: answer, read_only=True)
        assert site.caller().post("/queues/default/pause").status_code == 403
        assert site.caller().get("/jobs").status_code == 200


def test_the_address_is_this(site: Site):
    assert str(site.caller().http.base_url) == f"http://{HOST}"
