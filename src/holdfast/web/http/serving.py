"""Serving the web without a host application: addresses, accepted host names, limits, shutdown.

Closed by default: an address that other machines can reach needs authentication and host names.
"""

import ipaddress
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType

import uvicorn
from fastapi import FastAPI

from holdfast.access import TokenInfo
from holdfast.core.records import value
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.web.http.connections import ConnectionLimits
from holdfast.web.http.listener import Admission, Listener
from holdfast.web.http.repeated_logs import Repeats
from holdfast.web.options import LOOPBACK

PORT = 8686
GRACEFUL = 5  #: seconds that requests have to end during a shutdown
PROBES = ("/health", "/ready", "/metrics")
_BACKLOG = 1024
_SWEEP = 5  # ticks of uvicorn, 0.1 s each, between two checks of all connections
_COUNTED = ("uvicorn.error", "holdfast.web")  # loggers to which requests can write


class CannotListen(HoldfastError):
    """The address is in use, or does not belong to this machine."""


@value
class Serving:
    """How to serve."""

    tls_cert: Path | None = None
    tls_key: Path | None = None
    proxies: tuple[str, ...] = ()  #: trusted proxies, whose headers name the client
    access_log: bool = False
    limits: ConnectionLimits = ConnectionLimits()

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidInput("--tls-cert and --tls-key go together: give both, or neither")
        for path in (self.tls_cert, self.tls_key):
            if path is not None and not path.is_file():
                raise InvalidInput(f"TLS: there is no file {str(path)!r}")


# addresses


def is_loopback(host: str) -> bool:
    """Can only this machine reach it?"""
    return all(ipaddress.ip_address(address).is_loopback for address in _addresses(host))


def _addresses(host: str) -> list[str]:
    if not host.strip():
        raise InvalidInput("--host is empty: give an address such as 127.0.0.1")
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as problem:
        raise InvalidInput(
            f"--host {host!r} is not an address or a known name: {problem}"
        ) from None
    return [str(entry[4][0]).partition("%")[0] for entry in found]


def hosts_of(host: str, allowed: Iterable[str]) -> frozenset[str]:
    """Return the accepted host names: the given ones, and those of the loopback if only this machine
    can call. Any other name may be pointed here by another site (DNS rebinding)."""
    names = frozenset(name.lower() for name in allowed)
    return names | LOOPBACK | {host.lower()} if is_loopback(host) else names


def refuse_open(
    host: str,
    allowed: Iterable[str],
    *,
    authorize: bool,
    tokens: Iterable[TokenInfo],
    now: datetime,
) -> None:
    """Raise InvalidInput if others can reach the address, and authentication or host names are
    missing."""
    if is_loopback(host):
        return
    missing = []
    if not authorize and not any(_counts(token, now) for token in tokens):
        missing.append(
            "nobody could log in: make a token (holdfast tokens create --name NAME --role admin), or "
            "give --authorize MODULE:FUNCTION"
        )
    if not list(allowed):
        missing.append(
            "nothing says by which name it is called: give --allow-host NAME, such as "
            "jobs.example.com, for each"
        )
    if missing:
        raise InvalidInput(
            f"--host {host} can be reached from other machines, and {'; and '.join(missing)}. Or "
            "leave --host out: 127.0.0.1"
        )


def _counts(token: TokenInfo, now: datetime) -> bool:
    return token.revoked_at is None and (token.expires_at is None or token.expires_at > now)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 chooses a free one."""
    address = _addresses(host)[0]
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(_BACKLOG)
    except (OSError, OverflowError) as problem:
        listener.close()
        reason = getattr(problem, "strerror", None) or str(problem)
        raise CannotListen(
            f"cannot listen on {host}:{port}: {reason}. Choose another with --port (0: any that is "
            "free)"
        ) from None
    return listener


def address_of(listener: socket.socket, name: str, serving: Serving, base: str = "") -> str:
    """Return the address for a browser."""
    shown = f"[{name}]" if ":" in name else name
    scheme = "http" if serving.tls_cert is None else "https"
    return f"{scheme}://{shown}:{listener.getsockname()[1]}{base}/"


# the server


class Server(uvicorn.Server):
    """A server that stops fast: it ends live streams first, and does not raise the signal again."""

    def __init__(
        self,
        site: FastAPI,
        serving: Serving,
        *,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        tls = serving.tls_cert is not None
        self._admission = Admission(serving.limits, serving.proxies, tls=tls)
        super().__init__(_config(site, serving, self._admission))
        self._site = site
        self._ready = ready
        self._repeats = Repeats(time.monotonic())

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit  # the second signal ends it without waiting
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._site.state.web.close()
        await super().shutdown(sockets)

    async def on_tick(self, counter: int) -> bool:
        if counter % _SWEEP == 0:
            now = time.monotonic()
            self._admission.table.sweep(now)
            self._repeats.report(now)
        return await super().on_tick(counter)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until told to stop. Takes over the sockets."""
        filters = {"uvicorn.access": AccessLogFilter(), **dict.fromkeys(_COUNTED, self._repeats)}
        for name, filter in filters.items():
            logging.getLogger(name).addFilter(filter)
        try:
            super().run([Listener(self._admission, one) for one in sockets or []])
        finally:
            for name, filter in filters.items():
                logging.getLogger(name).removeFilter(filter)


def _config(site: FastAPI, serving: Serving, admission: Admission) -> uvicorn.Config:
    # Starts and stops are logged by the command.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    return uvicorn.Config(
        site,
        loop="asyncio",  # another loop would accept connections without calling Listener.accept
        http=admission.protocol(),
        lifespan="off",
        log_config=None,
        access_log=serving.access_log,
        server_header=False,
        proxy_headers=bool(serving.proxies),
        forwarded_allow_ips=list(serving.proxies),
        timeout_graceful_shutdown=GRACEFUL,
        ssl_certfile=serving.tls_cert,
        ssl_keyfile=serving.tls_key,
    )


class AccessLogFilter(logging.Filter):
    """Leaves probes out of the access log, and queries, which may contain a signed link."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple) and len(record.args) == 5:
            address, method, path, *rest = record.args
            plain = str(path).partition("?")[0]
            record.args = (address, method, plain, *rest)
            return not plain.endswith(PROBES)
        return True


@contextmanager
def background(site: FastAPI, listener: socket.socket) -> Iterator[None]:
    """Serve in a thread of another program."""
    up = threading.Event()
    server = Server(site, Serving(), ready=up.set)
    thread = threading.Thread(
        target=server.run, args=([listener],), name="holdfast-web", daemon=True
    )
    thread.start()
    up.wait(10.0)
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(GRACEFUL + 2.0)
