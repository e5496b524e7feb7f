"""A TCP proxy in front of a server, which does what networks do: stall, cut, and cut only a reply."""

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

from tests.support.machine import free_port


class Proxy:
    """Forwards to a server, until told otherwise. Use it in a `with`."""

    def __init__(self, target: tuple[str, int], port: int = 0) -> None:
        self.target = target
        self.port = port or free_port()
        self.accepted = 0
        self._lock = threading.Lock()
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._stalled: set[socket.socket] = set()
        self._stalls_new = self._refuses = False
        self._on_reply: Callable[[bytes], bool] | None = None
        self._on_request: Callable[[bytes], bool] | None = None
        self._last_reply: Callable[[bytes], bool] | None = None
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=100)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    @classmethod
    def before(cls, url: str) -> "Proxy":
        """In front of the server of a PostgreSQL URL."""
        parts = urlsplit(url)
        return cls((parts.hostname or "127.0.0.1", parts.port or 5432))

    def url(self, url: str) -> str:
        """The same URL by way of the proxy."""
        parts = urlsplit(url)
        user = f"{parts.username}@" if parts.username else ""
        return parts._replace(netloc=f"{user}127.0.0.1:{self.port}").geturl()

    def stall(self, *, new: bool = False) -> None:
        """The connections there are stay open and carry nothing more; `new`: later ones, too."""
        with self._lock:
            self._stalled |= set(self._pairs)
            self._stalls_new = new

    def flow(self) -> None:
        """Later connections are carried again; stalled ones stay so."""
        self._stalls_new = self._refuses = False
        self._on_request = None

    def cut(self, *, refuse: bool = False) -> None:
        """Close every connection; `refuse`: and later ones as soon as they are made."""
        self._refuses = refuse
        with self._lock:
            for one in list(self._pairs):
                self._drop(one)

    def cut_reply(self, when: Callable[[bytes], bool]) -> None:
        """Close the connection instead of carrying the first reply for which this is true."""
        self._on_reply = when

    def cut_after(self, when: Callable[[bytes], bool]) -> None:
        """Carry the first reply for which this is true, close the connection, and refuse later ones."""
        self._last_reply = when

    def stall_at(self, when: Callable[[bytes], bool]) -> None:
        """Let every connection carry nothing more from the first request for which this is true."""
        self._on_request = when

    def _run(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select(0.05):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._carry(key.fileobj)  # type: ignore[arg-type]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            client, _ = self._listener.accept()
            self.accepted += 1
            if self._refuses:
                client.close()
                return
            server = socket.create_connection(self.target, 10)
            with self._lock:
                self._pairs |= {client: server, server: client}
                if self._stalls_new:
                    self._stalled |= {client, server}
            for one in (client, server):
                self._selector.register(
                    one, selectors.EVENT_READ, "server" if one is server else ""
                )

    def _carry(self, one: socket.socket) -> None:
        with self._lock:
            if one in self._stalled:
                self._selector.unregister(one)
                return
            other = self._pairs.get(one)
            if other is None:
                return
            try:
                data = one.recv(1 << 20)
                from_server = self._selector.get_key(one).data == "server"
                if data and from_server and self._on_reply is not None and self._on_reply(data):
                    self._on_reply, data = None, b""
                if data and not from_server and self._on_request and self._on_request(data):
                    self._stalled |= {one, other}
                    self._selector.unregister(one)
                    return
                if data:
                    other.sendall(data)
                    if not (from_server and self._last_reply and self._last_reply(data)):
                        return
                    self._last_reply, self._refuses = None, True
            except OSError:
                pass
            self._drop(one)

    def _drop(self, one: socket.socket) -> None:
        other = self._pairs.pop(one, None)
        for side in (one, other):
            if side is not None:
                self._pairs.pop(side, None)
                self._stalled.discard(side)
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(side)
                side.close()

    def close(self) -> None:
        self._closing = True
        self._thread.join(5)
        self.cut()
        self._selector.close()
        self._listener.close()

    def __enter__(self) -> "Proxy":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
