"""Limits on open connections: how many there may be, and how long a client may keep the server waiting.

`ConnectionTable` decides; `listener.py` accepts sockets and asks it, `serving.py` lets it check all
open connections twice a second. It sees sockets only as `Tracked`.
"""

import enum
import ipaddress
import logging
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

import h11

logger = logging.getLogger("holdfast.web")

RESERVE = 100  #: file descriptors that stay free for the database and for files
_LEAST = 16  # connections, however few files the process may open


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """How many connections may be open, and how long each may wait for its client."""

    total: int = 1000  #: open connections; fewer where the process may not open as many files
    per_address: int = 400  #: of these, from one address; trusted proxies are exempt
    head: float = 10.0  #: seconds for the TLS handshake and the head of a request
    body: float = 30.0  #: seconds that a body may be slower than `pace`
    pace: int = 10_000  #: bytes a second
    write: float = 60.0  #: seconds without progress while a client does not read its response


def fit(total: int, files: int) -> int:
    """The number of connections that leaves descriptors for everything else."""
    return min(total, max(_LEAST, files - RESERVE))


def source_of(address: str) -> str:
    """The address that a connection counts for: of IPv6 the /64 network, which one machine can have
    for itself."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address) or parsed.is_loopback:
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))


def proxy_check(proxies: Collection[str]) -> Callable[[str], bool]:
    """A function that tells whether an address is one of these proxies: addresses, networks, or '*'."""
    networks = []
    for text in proxies:
        try:
            networks.append(ipaddress.ip_network(text))
        except ValueError:
            continue  # a name: uvicorn compares it with the address as it is

    def is_proxy(address: str) -> bool:
        if "*" in proxies or address in proxies:
            return True
        try:
            parsed = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        return any(parsed in network for network in networks)

    return is_proxy


class Stage(enum.Enum):
    """What a connection waits for."""

    HEAD = "the TLS handshake or the head of a request"
    BODY = "the body of a request"
    RESPONSE = "the client, which does not read the response"
    CLOSING = "the client, which does not confirm the end of TLS"
    BUSY = "the application"


#: Stages in which a connection may be closed to make room for another.
INCOMPLETE = frozenset({Stage.HEAD, Stage.BODY, Stage.CLOSING})
_ANSWERED = frozenset({h11.DONE, h11.MUST_CLOSE, h11.CLOSED})


def stage_of(client: type, server: type, *, unsent: int, paused: bool) -> Stage:
    """The stage of a connection, by h11's states of both sides. `unsent`: bytes of the response that
    the client has not taken. `paused`: the server itself does not read at the moment."""
    if unsent:
        return Stage.RESPONSE
    if client is h11.IDLE:
        return Stage.HEAD
    if client is not h11.SEND_BODY:
        return Stage.BUSY
    if server in _ANSWERED:  # the rest of the body is read only to be thrown away
        return Stage.HEAD
    return Stage.BUSY if paused else Stage.BODY


class Tracked(Protocol):
    """A connection, as the table sees it."""

    source: str  #: the address it counts for
    exempt: bool  #: from the limit of its address
    patience: "Patience"

    def stage(self) -> Stage: ...

    def progress(self) -> tuple[object, int, int]:
        """The request it is in (compared by identity), bytes received and bytes not sent so far."""

    def abort(self) -> None:
        """Close the connection without waiting for the client."""


class Patience:
    """How long a connection may still wait for its client, from samples."""

    def __init__(self, limits: ConnectionLimits, now: float) -> None:
        self._limits = limits
        self._stage = Stage.HEAD
        self._request: object = None
        self._received = self._unsent = 0
        self.deadline = now + limits.head

    def sample(self, stage: Stage, request: object, received: int, unsent: int, now: float) -> bool:
        """Take note of where the connection is. Return whether the client has made progress."""
        limits = self._limits
        begins = stage is not self._stage or request is not self._request
        came, went = received - self._received, self._unsent - unsent
        self._stage, self._request = stage, request
        self._received, self._unsent = received, unsent
        match stage:
            case Stage.BUSY:
                self.deadline = math.inf
                return True
            case Stage.HEAD:
                if begins:
                    self.deadline = now + limits.head
                return begins
            case Stage.BODY:
                latest = now + limits.body
                self.deadline = (
                    latest if begins else min(self.deadline + came / limits.pace, latest)
                )
                return begins or came > 0
            case Stage.RESPONSE | Stage.CLOSING:
                if begins or went > 0:
                    self.deadline = now + limits.write
                return begins or went > 0


class ConnectionTable:
    """All open connections of a server, the one that has waited longest for its client first."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._open: OrderedDict[Tracked, None] = OrderedDict()
        self._sources: Counter[str] = Counter()
        self._closing: set[Tracked] = set()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def closing(self) -> int:
        """Connections that were closed from here and whose descriptors are not free yet."""
        return len(self._closing)

    def admit(self, connection: Tracked) -> bool:
        """Count a new connection. Where there are too many, the one that has waited longest for a
        complete request is closed instead; if there is none, return False."""
        limits, source = self.limits, connection.source
        if not connection.exempt and self._sources[source] >= limits.per_address:
            if not self._make_room(source):
                logger.warning(
                    "refused a connection from %s: %d are open from this address, the most that "
                    "--max-connections-per-address allows",
                    *(source, limits.per_address),
                )
                return False
        elif len(self._open) >= limits.total and not self._make_room(None):
            logger.warning(
                "refused a connection: %d are open, the most that --max-connections and the limit "
                "of open files allow",
                limits.total,
            )
            return False
        self._open[connection] = None
        self._sources[source] += 1
        return True

    def _make_room(self, source: str | None) -> bool:
        for connection in self._open:
            if source in (None, connection.source) and connection.stage() in INCOMPLETE:
                logger.warning(
                    "closed a connection from %s without a complete request, to accept another: %s",
                    connection.source,
                    f"{self.limits.total} are open"
                    if source is None
                    else f"{self.limits.per_address} are open from this address",
                )
                self._close(connection)
                return True
        return False

    def _close(self, connection: Tracked) -> None:
        self._forget(connection)
        self._closing.add(connection)
        connection.abort()

    def _forget(self, connection: Tracked) -> None:
        del self._open[connection]
        self._sources[connection.source] -= 1
        if not self._sources[connection.source]:
            del self._sources[connection.source]

    def release(self, connection: Tracked) -> None:
        """The connection's descriptor is free; idempotent."""
        self._closing.discard(connection)
        if connection in self._open:
            self._forget(connection)

    def sweep(self, now: float) -> None:
        """Check every connection, and close those whose clients are too slow."""
        for connection in list(self._open):
            try:
                self._check(connection, now)
            except Exception:  # it would end the event loop, and with it the server
                logger.exception("could not check a connection from %s", connection.source)

    def _check(self, connection: Tracked, now: float) -> None:
        stage = connection.stage()
        if connection.patience.sample(stage, *connection.progress(), now):
            self._open.move_to_end(connection)
        elif now >= connection.patience.deadline:
            logger.debug("closed a connection from %s: %s", connection.source, stage.value)
            self._close(connection)
