"""A stand-in for a remote HTTP server: it can be slow, hold its answers back, and counts requests.

How many requests an application has in flight is measured here, at the server that receives them.
"""

import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import NamedTuple, Self


class Answer(NamedTuple):
    body: bytes
    status: int = 200
    kind: str = "text/plain"


Site = Callable[
    [str, int], Answer
]  #: takes a path, and how often it was requested, this request included


class RemoteServer:
    """Serves a site until its block ends. A request is in flight until its answer begins or its client
    has disconnected, so a killed process has no requests in flight."""

    def __init__(self, site: Site, *, pace: float = 0.0, port: int = 0) -> None:
        """`delay`: seconds that every answer takes."""
        self.pace = pace
        self.request_counts: Counter[str] = Counter()  #: number of requests, by path
        self.in_flight = 0
        self.peak = 0  #: the highest number of requests in flight
        self._site = site
        self._held = ""
        self._open = threading.Event()
        self._open.set()
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.remote = self
        self._thread = threading.Thread(target=self.serve, name="remote", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def serve(self) -> None:
        self._server.serve_forever(poll_interval=0.05)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def hold(self, ending: str = "") -> None:
        """Hold back every answer for a path with this ending, until `release`."""
        self._held = ending
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    def reset_peak(self) -> None:
        with self._lock:
            self.peak = self.in_flight

    def fetch(self, path: str, client: socket.socket) -> Answer | None:
        """Return the answer after the delay, or None if the client has disconnected."""
        with self._lock:
            self.request_counts[path] += 1
            times = self.request_counts[path]
            self.in_flight += 1
            self.peak = max(self.peak, self.in_flight)
        try:
            return self._site(path, times) if self._is_patient(client, path) else None
        finally:
            # Before the answer is sent: a client that has it may begin another request immediately.
            with self._lock:
                self.in_flight -= 1

    def _is_patient(self, client: socket.socket, path: str) -> bool:
        over = time.monotonic() + self.pace
        while time.monotonic() < over or (path.endswith(self._held) and not self._open.is_set()):
            readable, _, _ = select.select([client], [], [], 0.01)
            if readable:
                try:
                    gone = not client.recv(1, socket.MSG_PEEK)
                except ConnectionError:
                    gone = True
                if gone:
                    return False
        return True


class _Server(ThreadingHTTPServer):
    remote: RemoteServer
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        answer = self.server.remote.fetch(self.path, self.connection)
        if answer is None:
            return
        try:
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.kind)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)
        except ConnectionError:
            pass  # the client was killed, as the checks intend

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the checks print what matters."""
