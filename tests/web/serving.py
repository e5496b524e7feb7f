"""A real server on a real port, in a thread; and those who follow it, over real sockets."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from holdfast import Holdfast
from holdfast.access import Access
from holdfast.web import dashboard
from holdfast.web.live.hub import Hub

PATIENCE = 20.0
EVENTS = "/api/v1/events"


@dataclass
class Site:
    app: Holdfast
    host: str
    web: Any
    token: str  #: of an administrator
    server: Any

    @property
    def hub(self) -> Hub:
        hub: Hub = self.web.hub
        return hub

    @property
    def access(self) -> Access:
        access: Access = self.web.access
        return access

    def token_of(self, role: str) -> str:
        return self.access.create(f"a {role}", role)[1]

    def headers(self, token: str | None = None) -> dict[str, str]:
        return {"Authorization": f"Bearer {token or self.token}"}

    @contextmanager
    def socket(
        self, query: str = "", *, token: str | None = None, headers: Any = None
    ) -> Iterator["Socket"]:
        given = self.headers(token) if headers is None else headers
        with connect(
            f"ws://{self.host}{EVENTS}{query}",
            additional_headers=given,
            compression=None,
            open_timeout=PATIENCE,
            max_queue=None,
        ) as connection:
            yield Socket(connection)

    @contextmanager
    def sse(
        self, query: str = "", *, token: str | None = None, headers: Any = None, last: str = ""
    ) -> Iterator["Sse"]:
        given = self.headers(token) if headers is None else dict(headers)
        if last:
            given["Last-Event-ID"] = last
        url = f"http://{self.host}{EVENTS}{query}"
        with httpx.stream("GET", url, headers=given, timeout=PATIENCE) as response:
            yield Sse(response)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(f"http://{self.host}{path}", timeout=PATIENCE, **options)


class Socket:
    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    def take(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.connection.recv(PATIENCE))
        return told

    def until(self, name: str) -> list[dict[str, Any]]:
        """All up to the first of this name, pings and greetings left out."""
        found: list[dict[str, Any]] = []
        while not found or found[-1]["event"] != name:
            told = self.take()
            if told["event"] == name or told["event"] not in ("ping", "hello"):
                found.append(told)
        return found

    def code(self) -> int:
        """With which it is closed, in the end."""
        try:
            while True:
                self.connection.recv(PATIENCE)
        except ConnectionClosed as closed:
            return 1006 if closed.rcvd is None else closed.rcvd.code


@dataclass
class Sse:
    response: httpx.Response
    id: str = ""
    comments: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lines = self.response.iter_lines()

    def take(self) -> dict[str, Any] | None:
        """The next message; None at the end. As browsers read it."""
        name, data = "", ""
        for line in self._lines:
            key, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if line == "" and data:
                told: dict[str, Any] = json.loads(data)
                assert told["event"] == name
                return told
            if line == "":
                name = ""
            elif key == "":
                self.comments.append(value)
            elif key == "id":
                self.id = value
            elif key == "event":
                name = value
            elif key == "data":
                data += value
        return None

    def until(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while not found or found[-1]["event"] != name:
            told = self.take()
            assert told is not None, f"it ended before {name}"
            if told["event"] == name or told["event"] != "hello":
                found.append(told)
        return found

    def rest(self) -> list[dict[str, Any]]:
        return list(iter(self.take, None))


@contextmanager
def serving(app: Holdfast, **options: Any) -> Iterator[Site]:
    server = dashboard(app, **options)
    web = server.state.web
    token = Access(app).create("root", "admin")[1]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        config = uvicorn.Config(
            server, log_level="warning", ws_per_message_deflate=False, timeout_graceful_shutdown=5
        )
        runner = uvicorn.Server(config)
        thread = threading.Thread(target=runner.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while not runner.started:
                assert thread.is_alive()
                thread.join(0.01)
            yield Site(app, f"127.0.0.1:{port}", web, token, server)
        finally:
            web.close()
            runner.should_exit = True
            thread.join(PATIENCE)
            assert not thread.is_alive()
