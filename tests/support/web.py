"""The web, called in process: a server of an application, and those who ask it."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx
from fastapi import FastAPI

from holdfast import Holdfast
from holdfast.access import Access
from holdfast.web import dashboard

API = "/api/v1"
HOST = "127.0.0.1:8000"


class Caller:
    """Somebody who asks: by a token, by cookies that it keeps, or by nothing. What an answer says is
    in `.json()`, with every integer exact."""

    def __init__(self, site: "Site", secret: str | None, scheme: str, address: str) -> None:
        self.secret = secret
        self._site = site
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        transport = httpx.ASGITransport(
            site.server, raise_app_exceptions=False, client=(address, 123)
        )
        self.http = httpx.AsyncClient(
            transport=transport, base_url=f"{scheme}://{HOST}", headers=headers
        )

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Of the API; a path that begins with `//` is of the root."""
        url = path[1:] if path.startswith("//") else API + path
        if "data" in more:  # JSON text, as it is
            more["content"] = more.pop("data")
            more["headers"] = {"Content-Type": "application/json", **(more.get("headers") or {})}
        return self._site.loop.run(self.http.request(method, url, **more))

    def get(self, path: str, **params: Any) -> httpx.Response:
        return self.ask("GET", path, params=params or None)

    def post(self, path: str, body: Any = None, **more: Any) -> httpx.Response:
        return self.ask("POST", path, **_body(body), **more)

    def put(self, path: str, body: Any = None) -> httpx.Response:
        return self.ask("PUT", path, **_body(body))

    def patch(self, path: str, body: Any = None) -> httpx.Response:
        return self.ask("PATCH", path, **_body(body))

    def delete(self, path: str) -> httpx.Response:
        return self.ask("DELETE", path)


def _body(body: Any) -> dict[str, Any]:
    """As text: ASCII, so that a lone surrogate goes through as its escape."""
    return {} if body is None else {"data": json.dumps(body)}


class Site:
    """A server of an application. Without a network: what a server and a client make of HTTP between
    them is theirs."""

    def __init__(self, app: Holdfast, **options: Any) -> None:
        self.app = app
        self.server: FastAPI = dashboard(app, **options)
        self.web = self.server.state.web
        self.access = Access(app)
        self.loop = asyncio.Runner()
        self._callers: list[Caller] = []

    def caller(
        self, secret: str | None = None, *, scheme: str = "http", address: str = "127.0.0.1"
    ) -> Caller:
        made = Caller(self, secret, scheme, address)
        self._callers.append(made)
        return made

    def somebody(self, role: str, **scope: Any) -> Caller:
        """Who has a new token of this role."""
        _, secret = self.access.create(f"the {role}", role, **scope)
        return self.caller(secret)

    def close(self) -> None:
        for caller in self._callers:
            self.loop.run(caller.http.aclose())
        self.loop.close()
        threads = self.web.operations._threads
        self.web.close()
        if threads is not None:
            threads.shutdown(wait=True)


def problem(answer: httpx.Response) -> Mapping[str, Any]:
    """What went wrong, which is said as every problem is."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    told: Mapping[str, Any] = answer.json()
    assert set(told) == {"type", "title", "status", "detail", "errors"}
    assert told["status"] == answer.status_code
    assert told["detail"]
    return told
