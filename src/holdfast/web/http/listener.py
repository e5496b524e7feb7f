"""Accepting connections for asyncio's server, within the limits of `connections.py`.

asyncio calls `accept()` of the listening socket and `close()` of what it returns, with TLS as without
it: the table counts descriptors, not requests.
"""

import asyncio
import errno
import logging
import os
import resource
import socket
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.web.http import connections
from holdfast.web.http.connections import ConnectionLimits, Stage

logger = logging.getLogger("holdfast.web")

_BURST = 100  # connections that are refused before the event loop does other work
_CLOSING = 50  # closed connections whose descriptors may not be free yet
_SHORT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE = 0.05  # seconds, if not even the spare descriptor helps
_BODY = (
    b'{"type": "about:blank", "title": "Service Unavailable", "status": 503,'
    b' "detail": "too many connections are open: try again in a few seconds", "errors": []}'
)
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\n"
    b"Retry-After: 10\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
)


class Admission:
    """State that the sockets and the protocol of one server share."""

    def __init__(self, limits: ConnectionLimits, proxies: Collection[str], *, tls: bool) -> None:
        total = connections.fit(limits.total, files_allowed())
        self.table = connections.ConnectionTable(replace(limits, total=total))
        self.is_proxy = connections.proxy_check(proxies)
        self.answer = b"" if tls else _BUSY  #: the response to refused connections
        self.open: dict[int, Connection] = {}  #: by descriptor

    def protocol(self) -> "type[Http]":
        """The protocol class for uvicorn, which makes one for each connection."""
        return type("AdmittedHttp", (Http,), {"admission": self})


class Connection(socket.socket):
    """An accepted socket, which is released from the table when it is closed."""

    def __init__(self, admission: Admission, accepted: socket.socket, host: str) -> None:
        super().__init__(fileno=accepted.detach())
        self._admission = admission
        self.source = connections.source_of(host)
        self.exempt = admission.is_proxy(host)
        self.patience = connections.Patience(admission.table.limits, time.monotonic())
        self.http: Http | None = None  #: None until the TLS handshake is complete
        admission.open[self.fileno()] = self

    def stage(self) -> Stage:
        return Stage.HEAD if self.http is None else self.http.stage()

    def progress(self) -> tuple[object, int, int]:
        return (None, 0, 0) if self.http is None else self.http.progress()

    def abort(self) -> None:
        if self.http is not None:
            self.http.transport.abort()
        # During a TLS handshake there is no transport to abort, and one that was closed twice ignores
        # abort(). asyncio closes the socket when it reads the end of the stream.
        with suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)

    def refuse(self) -> None:
        """Close the connection, with a response if that can be sent without waiting."""
        with suppress(OSError):
            self.setblocking(False)
            self.send(self._admission.answer)
        self.close()

    def close(self) -> None:
        self._admission.open.pop(self.fileno(), None)
        self._admission.table.release(self)
        super().close()


class Listener(socket.socket):
    """A listening socket that accepts within the limits. It takes over the descriptor of `inner`."""

    def __init__(self, admission: Admission, inner: socket.socket) -> None:
        super().__init__(fileno=inner.detach())
        self._admission = admission
        self._spare: int | None = None
        self._take_spare()

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection within the limits. Raises BlockingIOError if there is none, or if
        other work of the event loop comes first; asyncio calls again later."""
        table = self._admission.table
        for _ in range(_BURST):
            if table.closing >= _CLOSING:
                break
            found = self._next()
            if found is None:
                continue
            accepted, address = found
            connection = Connection(self._admission, accepted, str(address[0]))
            if table.admit(connection):
                return connection, address
            connection.refuse()
        raise BlockingIOError

    def _next(self) -> tuple[socket.socket, Any] | None:
        try:
            return super().accept()
        except OSError as problem:
            if problem.errno not in _SHORT:
                raise
            logger.warning("refused a connection: %s", problem.strerror)
        # asyncio would log a traceback for each attempt, and the connection would stay in the queue.
        # So the spare descriptor accepts it, only to close it.
        self._free_spare()
        try:
            super().accept()[0].close()
        except BlockingIOError:
            raise
        except OSError:
            time.sleep(_PAUSE)  # else the event loop would spin
            raise BlockingIOError from None  # serve the open connections first
        finally:
            self._take_spare()
        return None

    def _take_spare(self) -> None:
        with suppress(OSError):
            self._spare = os.open(os.devnull, os.O_RDONLY)

    def _free_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            os.close(spare)

    def close(self) -> None:
        self._free_spare()
        super().close()


class Http(H11Protocol):
    """uvicorn's protocol, with the progress of its request."""

    admission: Admission  #: set by Admission.protocol
    received = 0
    upgraded = False  #: it is a WebSocket now, which pings its client

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connection = self.admission.open.get(transport.get_extra_info("socket").fileno())
        if connection is not None:
            connection.http = self

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        super().data_received(data)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self.upgraded = True
        super().handle_websocket_upgrade(event)

    def stage(self) -> Stage:
        unsent = self._unsent()
        if self.transport.is_closing() and not unsent:
            return Stage.CLOSING
        if self.upgraded:
            return Stage.RESPONSE if unsent else Stage.BUSY
        cycle: Any = self.cycle  # None before the first request
        expected = cycle is not None and cycle.waiting_for_100_continue
        return connections.stage_of(
            *(self.conn.their_state, self.conn.our_state),
            unsent=unsent,
            paused=self.flow.read_paused or expected,
        )

    def progress(self) -> tuple[object, int, int]:
        return self.cycle, self.received, self._unsent()

    def _unsent(self) -> int:
        """Bytes of the response that the client has not taken."""
        try:
            return self.transport.get_write_buffer_size()
        except AttributeError:  # closed twice: asyncio's TLS transport has no buffer any more
            return 0


def files_allowed() -> int:
    """Return how many descriptors this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft
