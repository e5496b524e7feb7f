"""The world that the reader lives in, for its proof: a server of feeds, and a hub, over real HTTP."""

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

PATIENCE = 60.0


@dataclass
class Feed:
    """What is at an address now. Change it as you like."""

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


class Visit(NamedTuple):
    """A request, and what it was answered."""

    name: str
    status: int
    known: str | None  #: its If-None-Match


class Outside:
    """Feeds by their names, who came for them, and a hub."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self.hub = f"{self.address}/hub"
        self.feeds: dict[str, Feed] = {}
        self.visits: list[Visit] = []
        self.arrived: Counter[str] = Counter()  #: requests that have come, answered or not
        self.inside: Counter[str] = Counter()  #: requests that are being answered
        self.most: Counter[str] = Counter()  #: of one feed at a time; "": of all of them
        self.asked: list[Mapping[str, str]] = []  #: of the hub
        self.hub_status = 202
        self.term = 10 * 86400  #: seconds that the hub grants
        self._gates: dict[str, threading.Event] = defaultdict(_open_gate)
        self._lock = threading.Lock()

    def feed(self, name: str, **words: object) -> str:
        """Put a feed at an address, which is returned."""
        self.feeds[name] = Feed(**words)  # type: ignore[arg-type]
        return f"{self.address}/{name}"

    def count(self, name: str, status: int = 200) -> int:
        return sum((visit.name, visit.status) == (name, status) for visit in list(self.visits))

    @contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Nobody who comes for this feed is answered, until the block ends."""
        gate = self._gates[name] = threading.Event()
        try:
            yield
        finally:
            gate.set()

    @contextmanager
    def visiting(self, name: str) -> Iterator[None]:
        with self._lock:
            self.arrived[name] += 1
            for place in (name, ""):
                self.inside[place] += 1
                self.most[place] = max(self.most[place], self.inside[place])
        try:
            self._gates[name].wait(PATIENCE)
            yield
        finally:
            with self._lock:
                self.inside.subtract([name, ""])


def _open_gate() -> threading.Event:
    gate = threading.Event()
    gate.set()
    return gate


class Handler(BaseHTTPRequestHandler):
    world: Outside

    def do_GET(self) -> None:
        name = self.path.removeprefix("/")
        with self.world.visiting(name):
            feed = self.world.feeds[name]
            threading.Event().wait(feed.latency)
            body, known = feed.body(), self.headers.get("If-None-Match")
            etag = f'"{sha256(body).hexdigest()[:12]}"'
            status = 304 if feed.status == 200 and known == etag else feed.status
            self.world.visits.append(Visit(name, status, known))
        self._answer(status, body if status == 200 else b"", {"ETag": etag, **feed.headers})

    def do_POST(self) -> None:
        """The hub: it takes note, and confirms with the one who asked."""
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = dict(parse_qsl(text))
        self.world.asked.append(form)
        self._answer(self.world.hub_status, b"", {})
        if self.world.hub_status == 202:
            said = {
                "hub.mode": form["hub.mode"],
                "hub.topic": form["hub.topic"],
                "hub.challenge": "are you there",
                "hub.lease_seconds": self.world.term,
            }
            with urlopen(f"{form['hub.callback']}?{urlencode(said)}", timeout=PATIENCE) as answer:
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
            """Who asked has been killed meanwhile."""

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextmanager
def outside() -> Iterator[Outside]:
    handler = type("Handler", (Handler,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        world = handler.world = Outside(server.server_port)  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield world
        finally:
            server.shutdown()
            thread.join()
