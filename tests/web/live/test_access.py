"""Who may follow what: tokens, cookies, links; and whom nobody waits for."""

import base64
import json
import socket
import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from holdfast import Context, Holdfast, InvalidInput
from holdfast.core.ids import new_id
from holdfast.web import Identity, Permission, follow_link, make_link
from holdfast.web.routing import LINKED, declared_of
from holdfast.web.security.links import read_link
from tests.conftest import Database
from tests.support.waiting import finished, until
from tests.web.live.conftest import CARRIERS
from tests.web.live.test_streams import enqueue, ids, take
from tests.web.serving import EVENTS, PATIENCE, Site, serving

ELSEWHERE = {"Origin": "https://shop.example", "Sec-Fetch-Site": "cross-site"}


def refused(site: Site, query: str = "", headers: Any = None) -> tuple[int, int]:
    """How an event stream is refused, and how a socket is."""
    headers = {} if headers is None else headers
    with site.sse(query, headers=headers) as stream:
        status = stream.response.status_code
    with site.socket(query, headers=headers) as opened:
        return status, opened.code()


def test_strangers_are_refused(site: Site) -> None:
    assert refused(site) == (401, 4401)
    assert refused(site, headers=site.headers("hf_" + "x" * 43)) == (401, 4401)
    assert refused(site, headers=site.headers(site.token_of("enqueue"))) == (403, 4403)
    assert refused(site, "?kinds=nothing", site.headers()) == (422, 4422)
    assert refused(site, "?job=x", site.headers()) == (422, 4422)
    assert refused(site, "?unknown=1", site.headers()) == (422, 4422)


def test_a_cookie_opens_it_for_our_own_pages_only(site: Site) -> None:
    answer = httpx.post(f"http://{site.host}/api/v1/session", json={"token": site.token})
    cookie = {"Cookie": f"holdfast={answer.cookies['holdfast']}"}
    for carrier in CARRIERS.values():
        with carrier(site, headers=cookie) as subscriber:
            assert subscriber.take()["event"] == "hello"
    for query in ("", "?xlink=1", "?kinds=link=1"):
        with (
            pytest.raises(InvalidStatus, match="403"),
            site.socket(query, headers=cookie | ELSEWHERE),
        ):
            pass
    for query in ("?link", "?link=", "?%6cink=x"):  # which a cookie does not help
        with site.socket(query, headers=cookie | ELSEWHERE) as subscriber:
            assert subscriber.code() == 4401, query


def test_the_host_applications_word_counts(app: Holdfast, carrier: Any) -> None:
    def authorize(request: Any) -> Any:
        return "viewer" if request.headers.get("x-user") == "ann" else None

    with serving(app, authorize=authorize) as site:
        assert refused(site) == (401, 4401)
        with carrier(site, headers={"X-User": "ann"}) as subscriber:
            assert subscriber.take()["event"] == "hello"


def test_who_may_not_see_results_is_told_without(app: Holdfast, carrier: Any) -> None:
    @app.task(name="gives")
    def gives() -> str:
        return "S3CRET"

    few = Identity(who="x", role="few", permissions=frozenset({Permission.EVENTS_READ}), via="host")
    with (
        serving(app, authorize=lambda request: few) as site,
        carrier(site, headers={}) as other,
        site.socket() as whole,
    ):
        other.take()
        whole.take()
        job = gives.enqueue()
        with app.worker():
            told = other.until("job:complete")[-1]
            assert whole.until("job:complete")[-1]["data"]["result"] == "S3CRET"
    assert told["data"] == {
        "job_id": job.id,
        "type": "gives",
        "result": None,
        "result_left_out": True,
    }


@pytest.mark.parametrize("read_only", [False, True])
def test_a_caller_of_the_host_that_is_bound_to_a_job_follows_no_other(
    app: Holdfast, carrier: Any, read_only: bool
) -> None:
    @app.task(name="quick")
    def quick() -> None: ...

    other, mine = quick.enqueue(), quick.enqueue()
    bound = Identity(
        who="x", role="guest", permissions=frozenset(Permission), via="host", job=mine.id
    )
    with serving(app, authorize=lambda request: bound, read_only=read_only) as site:
        with carrier(site, headers={}) as subscriber:
            subscriber.take()
            with app.worker():
                events = subscriber.until("job:complete")
        seen = {event["data"]["job_id"] for event in events if "job_id" in event["data"]}
    assert seen == {mine.id}
    assert finished(app, other).status == "completed"


def test_a_revoked_token_ends_its_streams(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.web.live.stream.TICK", 0.2)
    monkeypatch.setattr("holdfast.web.security.gate.REMEMBERED", 0.0)
    token, secret = site.access.create("ann", "viewer")
    with site.socket(token=secret) as one, site.sse(token=secret) as other, site.socket() as root:
        one.take()
        other.take()
        site.access.revoke(token.id)
        assert one.code() == 4401
        assert other.rest() == []
        made = enqueue(site.app, 1)
        assert ids(take(root, 1)) == made  # others go on


def test_a_client_that_talks_too_much_goes(site: Site) -> None:
    with site.socket() as large:
        large.connection.send("x" * 5000)
        assert large.code() == 1009
    with site.socket() as often:
        with suppress(ConnectionClosed):  # the server may not wait for all of them
            for _ in range(25):
                often.connection.send("x")
        assert often.code() == 4429


# links


def link_of(site: Site, job: Any, **options: Any) -> str:
    return "?link=" + make_link(site.app, job, **options)


def test_a_link_follows_its_job_to_the_end_from_any_site(site: Site, carrier: Any) -> None:
    app = site.app
    told = threading.Event()

    @app.task(name="export")
    def export(ctx: Context) -> dict[str, str]:
        ctx.progress(40, "pages")
        assert told.wait(PATIENCE)
        return {"url": "/x"}

    @app.task(name="other")
    def other() -> None: ...

    job = export.enqueue()
    assert follow_link(app, job, base="/jobs").startswith(f"/jobs{EVENTS}?link=")
    with carrier(site, link_of(site, job), headers=ELSEWHERE) as subscriber:
        first = subscriber.take()
        assert (first["event"], first["data"]["status"]) == ("job:progress", "pending")
        with app.worker():
            progress = subscriber.until("job:progress")[-1]
            finished(app, other.enqueue())
            told.set()
            frames = subscriber.until("job:complete")
        assert progress["data"]["progress"] == 40.0
        assert {frame["data"]["job_id"] for frame in frames} == {job.id}
        assert frames[-1]["data"] == {
            "job_id": job.id,
            "type": "export",
            "result": None,
            "result_left_out": True,
        }
        if hasattr(subscriber, "response"):
            assert subscriber.response.headers["access-control-allow-origin"] == "*"
            assert "access-control-allow-credentials" not in subscriber.response.headers
            assert subscriber.rest() == []
            again = site.get(EVENTS + link_of(site, job), headers={"Last-Event-ID": subscriber.id})
            assert again.status_code == 204  # so that browsers do not come back
        else:
            assert subscriber.code() == 1000


def test_who_comes_late_sees_how_it_stands(site: Site, carrier: Any) -> None:
    app = site.app

    @app.task(name="fails", max_attempts=1)
    def fails() -> None:
        raise ValueError("the password is x")

    @app.task(name="gives")
    def gives() -> dict[str, int]:
        return {"n": 1, "token": 2}

    jobs = [fails.enqueue(), gives.enqueue()]
    dropped = fails.using(delay="1h").enqueue()
    app.jobs.cancel(dropped.id)
    with app.worker():
        for job in jobs:
            finished(app, job)
    with carrier(site, link_of(site, jobs[0]), headers={}) as subscriber:
        told = subscriber.take()
        assert (told["event"], told["data"]["error"]) == ("job:failed", None)
    with carrier(site, link_of(site, jobs[0], result=True), headers={}) as subscriber:
        assert subscriber.take()["data"]["error"] == "ValueError: the password is x"
    with carrier(site, link_of(site, jobs[1], result=True), headers={}) as subscriber:
        assert subscriber.take()["data"]["result"] == {"n": 1, "token": "[redacted]"}
    with carrier(site, link_of(site, dropped), headers={}) as subscriber:
        assert subscriber.take()["event"] == "job:cancelled"


def test_a_link_sees_an_end_that_was_not_written(
    database: Database, app: Holdfast, carrier: Any
) -> None:
    """Another process may not know yet that somebody follows."""
    other = database.app()
    job = other.enqueue("nobody")
    assert not other.engine.is_followed()  # it remembers that for 5 s
    with serving(app) as site, carrier(site, link_of(site, job), headers={}) as subscriber:
        assert subscriber.take()["event"] == "job:progress"
        other.jobs.cancel(job.id)
        assert subscriber.take()["event"] == "job:cancelled"


def flipped(text: str, at: int) -> str:
    return text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]


def test_a_link_opens_nothing_else(site: Site) -> None:
    app = site.app
    mine, other = app.enqueue("nobody"), app.enqueue("nobody")
    link = make_link(app, mine)
    body, _, signature = link.partition(".")
    forged = base64.urlsafe_b64encode(
        json.dumps({"job": other.id, "exp": 10**12, "result": True}).encode()
    ).decode()
    for wrong in (
        "",
        ".",
        body,
        f"{body}.",
        f"{forged.rstrip('=')}.{signature}",
        flipped(link, 10),
        flipped(link, len(link) - 5),
        f"{link}&link={link}",
        "é." + signature,
        "x" * 1000,
        make_link(app, new_id())[:-1],
    ):
        assert refused(site, f"?link={wrong}") in ((401, 4401), (422, 4422)), wrong
    assert refused(site, f"?link={link}&job={other.id}") == (422, 4422)
    assert refused(site, f"?link={link}&after=0") == (422, 4422)
    assert refused(site, f"?link={make_link(app, new_id())}") == (404, 4404)
    # a wrong link is not helped by what else comes with it
    cookie = httpx.post(f"http://{site.host}/api/v1/session", json={"token": site.token}).cookies
    headers = {"Cookie": f"holdfast={cookie['holdfast']}"}
    assert refused(site, "?link=x", headers) == (401, 4401)
    assert refused(site, "?link=x", site.headers()) == (401, 4401)


def test_no_other_route_takes_a_link(site: Site) -> None:
    server = site.server
    query = "?link=" + make_link(site.app, site.app.enqueue("nobody"))
    tried = 0
    for route in server.routes:
        if declared_of(route) in ("public", None) or not hasattr(route, "methods"):
            continue
        if (route.openapi_extra or {}).get(LINKED):
            assert route.path == EVENTS
            continue
        path = route.path.replace("{id}", new_id()).replace("{name}", "x")
        for headers in ({}, site.headers()):
            for method in route.methods:
                answer = httpx.request(
                    method, f"http://{site.host}{path}{query}", headers=headers, timeout=PATIENCE
                )
                assert answer.status_code == 401, (method, path)
                tried += 1
    assert tried > 40


def test_a_link_expires(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    app = site.app
    job = app.enqueue("nobody")
    secret = site.access.secret("links")
    link, now = make_link(app, job, expires="1h"), app.clock.now()
    assert read_link(secret, link, now + timedelta(minutes=59)) is not None
    assert read_link(secret, link, now + timedelta(minutes=61)) is None
    assert read_link(b"x" * 32, link, now) is None
    monkeypatch.setattr("holdfast.web.live.stream.TICK", 0.2)
    with site.socket("?link=" + make_link(app, job, expires=1), headers={}) as subscriber:
        assert subscriber.code() == 4401  # a stream ends with its link
    with pytest.raises(InvalidInput):
        make_link(app, job, expires=0)
    with pytest.raises(InvalidInput):
        make_link(app, "x")


# whom nobody waits for


def stuck(site: Site, path: str) -> socket.socket:
    """Asks, and reads nothing."""
    host, _, port = site.host.partition(":")
    opened = socket.socket()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    opened.connect((host, int(port)))
    lines = [f"GET {path} HTTP/1.1", f"Host: {site.host}", f"Authorization: Bearer {site.token}"]
    if "upgrade" in path:
        path = path.partition("?")[0]
        lines[0] = f"GET {path} HTTP/1.1"
        lines += ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
        lines += ["Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="]
    opened.sendall("\r\n".join([*lines, "", ""]).encode())
    return opened


@pytest.mark.parametrize("path", [EVENTS, f"{EVENTS}?upgrade"], ids=["sse", "ws"])
def test_a_client_that_reads_nothing_is_dropped_and_others_go_on(
    site: Site, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.web.live.subscriber.LINE", 50)
    monkeypatch.setattr("holdfast.events.feed.BATCH", 20)

    @site.app.task(name="talks")
    def talks() -> str:
        return "x" * 50_000

    with stuck(site, path), site.socket("?kinds=completed") as other:
        other.take()
        until(lambda: len(site.hub.subscribers) == 2)
        seen: list[str] = []
        made: list[str] = []
        with site.app.worker():
            while len(site.hub.subscribers) == 2:
                assert len(made) < 2000, "it is still waited for"
                jobs = talks.enqueue_many([{}] * 20)
                made += [job.id for job in jobs]
                while len(seen) < len(made):
                    told = other.take()
                    seen += [told["data"]["job_id"]] if "job_id" in told["data"] else []
        assert sorted(seen) == sorted(made)
        assert len(site.hub.subscribers) == 1


def test_who_is_dropped_is_told_if_it_can_be(
    site: Site, carrier: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with carrier(site) as subscriber:
        subscriber.take()
        monkeypatch.setattr("holdfast.web.live.subscriber.LINE", 5)
        enqueue_at_once(site.app, 20)
        if hasattr(subscriber, "response"):
            assert [told["event"] for told in subscriber.rest()] == ["gone"]
        else:
            assert subscriber.code() == 4408


def enqueue_at_once(app: Holdfast, count: int) -> None:
    @app.task(name="many")
    def many() -> None: ...

    many.enqueue_many([{}] * count)
