"""A provider and a player on this machine, over real HTTP, with scripted answers.

`provider.script("Solaris", Limited(1), 500)`: the next two requests for Solaris get these answers,
later ones succeed. `provider.hold("Solaris")`: its pictures wait for a gate.
"""

import json
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit

IMAGES = ("poster.png", "fanart.png", "logo.png", "banner.png", "thumb.png")
TIMEOUT = 30.0


class Limited(NamedTuple):
    """Status 429, with or without Retry-After."""

    retry_after: int | None


class NoAnswer(NamedTuple):
    """No answer until the client gives up."""


class Gate:
    def __init__(self) -> None:
        self.reached = threading.Event()
        self._open = threading.Event()

    def wait(self) -> None:
        self.reached.set()
        self._open.wait(TIMEOUT)

    def open(self) -> None:
        self._open.set()


@dataclass(frozen=True)
class Call:
    path: str
    at: float  #: by the monotonic clock


class FakeProvider:
    """The provider, and at /player a media player, which ignores a repeated idempotency key."""

    def __init__(self, pace: float = 0.0, size: int = 2000) -> None:
        self.pace = pace  #: seconds for each picture
        self.size = size  #: bytes of each picture
        self.calls: list[Call] = []
        self.refreshed: dict[str, str] = {}  #: by the key of the call
        self.in_flight = self.peak = 0  #: pictures being sent, now and at most
        self._scripts: dict[str, list[Any]] = defaultdict(list)
        self._gates: dict[str, Gate] = {}
        self._titles: list[str] = []
        self._lock = threading.Lock()
        self.over = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def do_POST(self) -> None:
                outer.refresh(self)

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Ignore errors: clients are killed and give up, as intended."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.over.set()
        for gate in self._gates.values():
            gate.open()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def script(self, title: str, *answers: Any) -> None:
        self._scripts[title].extend(answers)

    def hold(self, title: str) -> Gate:
        return self._gates.setdefault(title, Gate())

    def requests_for(self, title: str) -> list[Call]:
        """Return every request for the details of a title."""
        return [call for call in self.calls if call.path.endswith(f"?{title}")]

    # what it answers

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        url = urlsplit(request.path)
        words = url.path.strip("/").split("/")
        if words[0] == "img":
            self._picture(request, unquote(words[1]))
        elif words[-1] == "images":
            title = self._titles[int(words[1]) - 1]
            _send(request, 200, [{"name": n, "url": f"/img/{title}/{n}"} for n in IMAGES])
        else:
            self._details(request, parse_qs(url.query)["title"][0])

    def _details(self, request: BaseHTTPRequestHandler, title: str) -> None:
        with self._lock:
            self.calls.append(Call(f"{urlsplit(request.path).path}?{title}", time.monotonic()))
            scripted = self._scripts[title].pop(0) if self._scripts[title] else 200
            if title not in self._titles:
                self._titles.append(title)
        match scripted:
            case NoAnswer():
                self.over.wait(TIMEOUT)
                request.close_connection = True
            case Limited(after):
                headers = {} if after is None else {"Retry-After": str(after)}
                _send(request, 429, {"status_message": "too many requests"}, headers)
            case 200:
                id = self._titles.index(title) + 1
                _send(request, 200, {"id": id, "title": title, "overview": f"About {title}."})
            case status:
                _send(request, status, {"status_message": "no"})

    def _picture(self, request: BaseHTTPRequestHandler, title: str) -> None:
        with self._lock:
            self.calls.append(Call(unquote(request.path), time.monotonic()))
            self.in_flight += 1
            self.peak = max(self.peak, self.in_flight)
        if gate := self._gates.get(title):
            gate.wait()
        self.over.wait(self.pace)
        with self._lock:
            self.in_flight -= 1
        body = (request.path.encode() * self.size)[: self.size]
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def refresh(self, request: BaseHTTPRequestHandler) -> None:
        body = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        with self._lock:
            self.calls.append(Call("/player", time.monotonic()))
            self.refreshed.setdefault(request.headers["Idempotency-Key"], body["path"])
        _send(request, 200, {"ok": True})


def _send(
    request: BaseHTTPRequestHandler, status: int, body: Any, headers: dict[str, str] | None = None
) -> None:
    data = json.dumps(body).encode()
    request.send_response(status)
    for name, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(data)
