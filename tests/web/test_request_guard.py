"""What every request passes first, and what every answer says to browsers."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from holdfast import Holdfast, InvalidInput
from holdfast.web import dashboard
from holdfast.web.security.request_guard import LARGEST
from tests.support.web import HOST, Caller, Site, problem
from tests.web.conftest import Open
from tests.web.test_sessions import logged_in

POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
}
UNSAFE = ("POST", "PUT", "PATCH", "DELETE")
OTHERS = (
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": f"http://{HOST}.evil.example"},
    {"Origin": "http://127.0.0.1:8001"},
    {"Origin": "http://127.0.0.1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Origin": f"http://{HOST}", "Sec-Fetch-Site": "cross-site"},
)
OURS: tuple[dict[str, str], ...] = (
    {},
    {"Origin": f"http://{HOST}"},
    {"Sec-Fetch-Site": "same-origin"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": f"http://{HOST}", "Sec-Fetch-Site": "same-origin"},
)


def check_headers(answer: httpx.Response) -> None:
    policy = dict(
        part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";")
    )
    assert policy.items() >= POLICY.items()
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["cache-control"] == "no-store"
    assert len(answer.headers["x-request-id"]) == 16
    assert "access-control-allow-origin" not in answer.headers
    assert "server" not in answer.headers


@pytest.mark.parametrize(
    ("method", "path", "more", "status"),
    [
        ("GET", "/jobs", {}, 200),
        ("GET", "//", {}, 200),
        ("GET", "//health", {}, 503),
        ("GET", "//metrics", {}, 200),
        ("GET", "/export", {}, 200),
        ("GET", "/nothing", {}, 404),
        ("GET", "//api/v2/jobs", {}, 404),
        ("GET", "//static/1/nothing.js", {}, 404),
        ("PUT", "/jobs", {}, 405),
        ("OPTIONS", "/jobs", {}, 405),
        ("POST", "/jobs", {"json": {}}, 422),
        ("POST", "/jobs", {"content": "a=1"}, 415),
        ("POST", "/jobs", {"headers": {"Origin": "https://evil.example"}}, 403),
        ("GET", "/jobs", {"headers": {"Authorization": "Bearer x"}}, 401),
    ],
)
def test_the_headers_of_every_answer(
    site: Site, app: Holdfast, method: str, path: str, more: Any, status: int
):
    if path == "//health":
        app.tasks["add"].enqueue(a=1)  # and nobody to run it
    answer = site.somebody("admin").ask(method, path, **more)
    assert answer.status_code == status, answer.text
    check_headers(answer)
    assert "strict-transport-security" not in answer.headers


def test_the_headers_of_an_unexpected_error(site: Site, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("a secret reason")

    monkeypatch.setattr(site.app, "stats", broken)
    answer = site.somebody("admin").get("/stats")
    assert answer.status_code == 500
    assert "secret reason" not in answer.text
    assert problem(answer)["detail"]
    check_headers(answer)


def test_https_is_to_stay_https(site: Site):
    answer = site.caller(scheme="https").get("/session")
    assert answer.headers["strict-transport-security"] == "max-age=31536000"


# whose pages ask


@pytest.mark.parametrize("method", UNSAFE)
def test_pages_of_others_change_nothing(site: Site, method: str):
    browser = logged_in(site, "admin")
    before = len(site.access.entries().entries)
    for headers in OTHERS:
        for path in ("/queues/default/pause", "/session", "/jobs", "/nothing"):
            answer = browser.ask(method, path, headers=headers)
            assert answer.status_code == 403, path
            assert problem(answer)["detail"].startswith("asked by a page of")
    assert len(site.access.entries().entries) == before
    assert browser.get("/session").status_code == 200


def test_our_own_pages_and_programs_may(site: Site):
    browser = logged_in(site, "admin")
    for headers in OURS:
        answer = browser.ask("POST", "/queues/default/pause", headers=headers)
        assert answer.status_code == 200, headers


def test_an_origin_that_was_named(open_site: Open):
    browser = logged_in(open_site(origins=["https://app.example"]))
    named = {"Origin": "https://app.example", "Sec-Fetch-Site": "cross-site"}
    other = {"Origin": "https://app.example.evil", "Sec-Fetch-Site": "cross-site"}
    assert browser.ask("POST", "/queues/q/pause", headers=named).status_code == 200
    assert browser.ask("POST", "/queues/q/pause", headers=other).status_code == 403


@pytest.mark.parametrize("wrong", ["*", "https://a.example/", "app.example", "ftp://a", ""])
def test_wrong_origins_are_refused(app: Holdfast, wrong: str):
    with pytest.raises(InvalidInput, match="origins"):
        dashboard(app, origins=[wrong])


# by which name


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("jobs.example", 200),
        ("JOBS.example", 200),
        ("jobs.example:8000", 200),
        ("[::1]:8000", 200),
        ("evil.example", 421),
        ("jobs.example.evil", 421),
        ("evil.example:8000", 421),
        ("", 421),
        ("[::2]", 421),
    ],
)
def test_only_by_a_name_that_it_knows(open_site: Open, host: str, status: int):
    site = open_site(hosts=["jobs.example", "[::1]"])
    caller = site.somebody("viewer")
    answer = caller.ask("GET", "/jobs", headers={"Host": host})
    assert answer.status_code == status
    if status == 421:
        assert "hosts=" in problem(answer)["detail"]
        check_headers(answer)
        assert caller.ask("GET", "//health", headers={"Host": host}).status_code == 421


# bodies


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json2",
        "text/json",
        "application/xml",
        "",
    ],
)
def test_only_json_is_read(site: Site, kind: str):
    body = json.dumps({"type": "add", "payload": {"a": 1}})
    answer = site.somebody("admin").ask(
        "POST", "/jobs", content=body, headers={"Content-Type": kind}
    )
    assert answer.status_code == 415
    assert "application/json" in problem(answer)["detail"]


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8"])
def test_json_is_read(site: Site, kind: str):
    body = json.dumps({"type": "add", "payload": {"a": 1}})
    answer = site.somebody("admin").ask(
        "POST", "/jobs", content=body, headers={"Content-Type": kind}
    )
    assert answer.status_code == 201


async def pieces(size: int) -> AsyncIterator[bytes]:
    yield b'{"type":"echo","payload":{"text":"'
    for _ in range(size // 1024):
        yield b"x" * 1024
    yield b'"}}'


def chunked(caller: Caller, size: int) -> httpx.Response:
    return caller.ask("POST", "/jobs", data=pieces(size))


def test_a_body_of_a_megabyte_is_too_large_for_a_payload(site: Site):
    admin = site.somebody("admin")
    fits = {"type": "echo", "payload": {"text": "x" * (1024 * 1024 - 100)}}
    assert admin.post("/jobs", fits).status_code == 201
    answer = admin.post("/jobs", {"type": "echo", "payload": {"text": "x" * 1024 * 1024}})
    assert answer.status_code == 413
    assert "1,048,576" in problem(answer)["detail"]


@pytest.mark.parametrize("path", ["/jobs", "/session", "/bulk"])
def test_two_megabytes_are_not_read(site: Site, path: str):
    answer = site.somebody("admin").ask("POST", path, data="[" * (LARGEST + 1))
    assert answer.status_code == 413
    assert f"{LARGEST:,}" in problem(answer)["detail"]
    check_headers(answer)


def test_nor_in_pieces_whose_length_nobody_said(site: Site, app: Holdfast):
    admin = site.somebody("admin")
    answer = chunked(admin, LARGEST)
    assert answer.status_code == 413
    assert (
        f"{LARGEST:,}" in problem(answer)["detail"]
    )  # by its size, not as what it would have been
    check_headers(answer)
    assert app.jobs.count() == 0
    assert chunked(admin, 1024).status_code == 201


def test_a_length_that_is_a_lie(site: Site):
    answer = site.somebody("admin").ask(
        "POST", "/jobs", data=pieces(LARGEST), headers={"Content-Length": "10"}
    )
    assert answer.status_code in (400, 413, 422)


def test_nobody_is_asked_before_the_body_is_read(site: Site):
    """Who may not is refused without a look at what was sent."""
    answer = site.caller().ask("POST", "/jobs", data="{")
    assert answer.status_code == 401
