"""Mounted in other applications under a path: pages, files, the API and cookies. None of these servers
runs the lifespan of what is mounted in it, so nothing depends on one."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from holdfast import Holdfast
from holdfast.access import Access
from holdfast.web import dashboard
from tests.support.django_site import configure

BASE = "/admin/jobs"
Asgi = Callable[[Any, Any, Any], Awaitable[None]]


def in_fastapi(app: Holdfast) -> Asgi:
    host = FastAPI()

    @host.get("/")
    def home() -> dict[str, str]:
        return {"host": "fastapi"}

    host.mount(BASE, dashboard(app))
    return host


def in_starlette(app: Holdfast) -> Asgi:
    return Starlette(routes=[Mount(BASE, dashboard(app))])


def in_a_mount_of_a_mount(app: Holdfast) -> Asgi:
    inner = Starlette(routes=[Mount("/jobs", dashboard(app))])
    return Starlette(routes=[Mount("/admin", inner)])


def in_django(app: Holdfast) -> Asgi:
    """Django has no mounting: its ASGI application is one of two, chosen by the path."""
    from django.core.asgi import get_asgi_application

    configure()
    django: Asgi = get_asgi_application()
    jobs = dashboard(app, base=BASE)

    async def application(scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        ours = path == BASE or path.startswith(f"{BASE}/")
        await (jobs if ours else django)(scope, receive, send)

    return application


def behind_a_proxy_that_cuts_the_path(app: Holdfast) -> Asgi:
    jobs = dashboard(app, base=BASE)

    async def application(scope: Any, receive: Any, send: Any) -> None:
        cut = scope["path"].removeprefix(BASE)
        await jobs({**scope, "path": cut, "raw_path": cut.encode()}, receive, send)

    return application


HOSTS = [
    *(in_fastapi, in_starlette, in_a_mount_of_a_mount, in_django),
    behind_a_proxy_that_cuts_the_path,
]


@pytest.fixture(params=HOSTS, ids=[host.__name__ for host in HOSTS])
def host(request: pytest.FixtureRequest, app: Holdfast) -> Asgi:
    app.migrate()
    made: Asgi = request.param(app)
    return made


def client(host: Asgi, scheme: str = "http") -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app=host), base_url=f"{scheme}://shop.example"
    )


def run(steps: Awaitable[None]) -> None:
    import asyncio

    async def all_of_it() -> None:
        await steps

    asyncio.run(all_of_it())


def test_pages_and_files_have_the_path_in_front(host: Asgi):
    async def steps() -> None:
        async with client(host) as browser:
            for page in ("/", "/jobs", "/queues/mail"):
                shown = await browser.get(f"{BASE}{page}")
                assert shown.status_code == 200, page
                found = re.findall(r'(?:src|href)="([^"]+)"', shown.text)
                assert found
                assert f'content="{BASE}"' in shown.text
                assert all(one.startswith(f"{BASE}/static/") for one in found), found
            for address in found:
                file = await browser.get(address)
                assert (file.status_code, file.history) == (200, []), address
            assert (await browser.get(f"{BASE}/static/1/none.js")).status_code == 404

    run(steps())


def test_the_api_and_its_cookie(host: Asgi, app: Holdfast):
    _, secret = Access(app).create("ann", "operator")

    @app.task
    def send(to: str) -> None: ...

    async def steps() -> None:
        async with client(host) as browser:
            url = f"{BASE}/api/v1/session"
            assert (await browser.get(url)).status_code == 401
            login = await browser.post(url, json={"token": secret})
            assert login.status_code == 200
            assert f"Path={BASE};" in f"{login.headers['set-cookie']};"
            assert (await browser.get(url)).json()["who"] == "ann"
            made = await browser.post(
                f"{BASE}/api/v1/jobs", json={"type": "send", "payload": {"to": "ben"}}
            )
            assert made.status_code == 201, made.text
            found = await browser.get(f"{BASE}/api/v1/jobs/{made.json()['id']}")
            assert found.json()["payload"] == {"to": "ben"}
            assert (await browser.get(f"{BASE}/ready")).json() == {"ok": True}
            assert (await browser.delete(url)).status_code == 200
            assert (await browser.get(url)).status_code == 401

    run(steps())


def test_over_tls_the_cookie_is_bound_to_the_host(host: Asgi, app: Holdfast):
    _, secret = Access(app).create("ann", "viewer")

    async def steps() -> None:
        async with client(host, "https") as browser:
            url = f"{BASE}/api/v1/session"
            login = await browser.post(url, json={"token": secret})
            cookie = login.headers["set-cookie"]
            assert cookie.startswith("__Host-holdfast=")
            assert "Secure" in cookie
            assert "Path=/;" in f"{cookie};"
            assert (await browser.get(url)).json()["who"] == "ann"

    run(steps())


@pytest.mark.parametrize("make", [in_django, behind_a_proxy_that_cuts_the_path])
def test_the_bare_base_is_the_first_page(app: Holdfast, make: Callable[[Holdfast], Asgi]):
    host = make(app)

    async def steps() -> None:
        async with client(host) as browser:
            shown = await browser.get(BASE)
            assert (shown.status_code, f'content="{BASE}"' in shown.text) == (200, True)

    run(steps())


def test_what_is_not_ours_is_the_hosts(app: Holdfast):
    async def steps() -> None:
        async with client(in_fastapi(app)) as browser:
            assert (await browser.get("/")).json() == {"host": "fastapi"}
        async with client(in_django(app)) as browser:
            assert (await browser.get(f"{BASE}-other/")).status_code == 404

    run(steps())
