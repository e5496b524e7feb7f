"""A server of feeds and a WebSub hub, over real HTTP, for the checks of the reader."""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode
from urllib.request import urlopen
from xml.sax.saxutils import escape

TIMEOUT = 60.0


@dataclass
class Feed:
    """What an address serves now; a check may change it."""

    titles: list[str] = field(default_factory=lambda: ["first"])
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 200
    ttl: int | None = None  #: minutes
    hub: str | None = None
    latency: float = 0.0  #: seconds that an answer takes

    def body(self) -> bytes:
        ttl = "" if self.ttl is None else f"<ttl>{self.ttl}</ttl>"
        hub = f'<a:link rel="hub" href="{self.hub}"/>' if self.hub else ""
        items = "".join(
            f"<item><guid>{escape(title)}</guid><title>{escape(title)}</title></item>"
            for title in self.titles
        )
        head = '<rss version="2.0" xmlns:a="http://www.w3.org/2005/Atom"><channel>'
        return f"{head}<title>A feed</title>{ttl}{hub}{items}</channel></rss>".encode()


class Request(NamedTuple):
    """A request and the status of its answer."""

    name: str
    status: int
    known: str | None  #: its If-None-Match


class FeedServer:
    """Feeds by their names, counters of requests, and a hub."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self.hub = f"{self.address}/hub"
        self.feeds: dict[str, Feed] = {}
        self.requests: list[Request] = []
        self.arrived: Counter[str] = Counter()  #: requests received, answered or not
        self.in_flight: Counter[str] = Counter()  #: requests that are being answered
        self.peak: Counter[str] = Counter()  #: most requests in flight, by feed; "": of all feeds
        self.hub_forms: list[Mapping[str, str]] = []  #: forms posted to the hub
        self.hub_status = 202
        self.term = 10 * 86400  #: seconds that the hub grants
        self._gates: dict[str, threading.Event] = defaultdict(_open_gate)
        self._lock = threading.Lock()

    def feed(self, name: str, **words: object) -> str:
        """Serve a feed under this name; returns its address."""
        self.feeds[name] = Feed(**words)  # type: ignore[arg-type]
        return f"{self.address}/{name}"

    def count(self, name: str, status: int = 200) -> int:
        return sum((visit.name, visit.status) == (name, status) for visit in list(self.requests))

    @contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Hold back every answer for this feed until the block ends."""
        gate = self._gates[name] = threading.Event()
        try:
            yield
        finally:
            gate.set()

    @contextmanager
    def counted(self, name: str) -> Iterator[None]:
        with self._lock:
            self.arrived[name] += 1
            for place in (name, ""):
                self.in_flight[place] += 1
                self.peak[place] = max(self.peak[place], self.in_flight[place])
        try:
            self._gates[name].wait(TIMEOUT)
            yield
        finally:
            with self._lock:
                self.in_flight.subtract([name, ""])


def _open_gate() -> threading.Event:
    gate = threading.Event()
    gate.set()
    return gate


class Handler(BaseHTTPRequestHandler):
    feed_server: FeedServer

    def do_GET(self) -> None:
        name = self.path.removeprefix("/")
        with self.feed_server.counted(name):
            feed = self.feed_server.feeds[name]
            threading.Event().wait(feed.latency)
            body, known = feed.body(), self.headers.get("If-None-Match")
            etag = f'"{sha256(body).hexdigest()[:12]}"'
            status = 304 if feed.status == 200 and known == etag else feed.status
            self.feed_server.requests.append(Request(name, status, known))
        self._answer(status, body if status == 200 else b"", {"ETag": etag, **feed.headers})

    def do_POST(self) -> None:
        """The hub: records the request and confirms it at the callback."""
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = dict(parse_qsl(text))
        self.feed_server.hub_forms.append(form)
        self._answer(self.feed_server.hub_status, b"", {})
        if self.feed_server.hub_status == 202:
            said = {
                "hub.mode": form["hub.mode"],
                "hub.topic": form["hub.topic"],
                "hub.challenge": "are you there",
                "hub.lease_seconds": self.feed_server.term,
            }
            with urlopen(f"{form['hub.callback']}?{urlencode(said)}", timeout=TIMEOUT) as answer:
                assert answer.read() == b"are you there"

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        try:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()
        except OSError:
            """The client was killed meanwhile."""

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@contextmanager
def serve_feeds() -> Iterator[FeedServer]:
    handler = type("Handler", (Handler,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        feed_server = handler.feed_server = FeedServer(server.server_port)  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield feed_server
        finally:
            server.shutdown()
            thread.join()
