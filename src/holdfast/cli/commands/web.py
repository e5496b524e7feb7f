"""`holdfast web`: the dashboard and the API, served by themselves."""

import os
import signal
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.app import Holdfast
from holdfast.cli.commands.worker import LogFormat, LogLevel
from holdfast.cli.database_wait import patiently
from holdfast.cli.target import (
    AppArgument,
    Target,
    location_of,
    refuse_absent,
)
from holdfast.cli.web_server import Site, installed, refuse_open
from holdfast.core.log_format import configure
from holdfast.locate import find

if TYPE_CHECKING:
    from holdfast.web.http.serving import Serving

Host = Annotated[str, typer.Option(help="The address to listen on; the default is this machine.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0 means one that is free.")]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Nobody changes anything by it.")]
AllowHost = Annotated[
    list[str] | None,
    typer.Option("--allow-host", help="A name by which it may be called; may be repeated."),
]
Origin = Annotated[
    list[str] | None,
    typer.Option("--origin", help="Another site whose pages may call it; may be repeated."),
]
Base = Annotated[str, typer.Option(help="The path that a proxy has it at, such as /jobs.")]
Title = Annotated[str, typer.Option(help="What the pages are called.")]
Authorize = Annotated[
    str | None,
    typer.Option(metavar="MODULE:FUNCTION", help="Who asks, by a function of the request."),
]
Open = Annotated[
    bool,
    typer.Option("--open/--no-open", envvar="HOLDFAST_WEB_OPEN", help="Open a browser, logged in."),
]
TlsCert = Annotated[Path | None, typer.Option("--tls-cert", help="A certificate (PEM).")]
TlsKey = Annotated[Path | None, typer.Option("--tls-key", help="Its key (PEM).")]
Proxies = Annotated[
    list[str] | None,
    typer.Option(
        "--proxy-headers-from",
        metavar="ADDRESS",
        help="A proxy whose X-Forwarded-For and -Proto are believed; may be repeated.",
    ),
]
AccessLog = Annotated[bool, typer.Option("--access-log", help="Log requests, but no probes.")]
MaxConnections = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Maximum number of open connections (default 1000, and 100 less than the limit of open "
        "files).",
    ),
]
MaxPerAddress = Annotated[
    int | None,
    typer.Option(
        "--max-connections-per-address",
        min=1,
        help="Maximum from one address, except the proxies of --proxy-headers-from (default 400).",
    ),
]
Lifeline = Annotated[int | None, typer.Option("--lifeline", hidden=True)]


def web(
    application: AppArgument = None,
    host: Host = "127.0.0.1",
    port: Port = 8686,
    read_only: ReadOnly = False,
    allow_host: AllowHost = None,
    origin: Origin = None,
    base: Base = "",
    title: Title = "Holdfast",
    authorize: Authorize = None,
    open_browser: Open = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    proxy_headers_from: Proxies = None,
    access_log: AccessLog = False,
    max_connections: MaxConnections = None,
    max_connections_per_address: MaxPerAddress = None,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    lifeline: Lifeline = None,
    target: Target = Target(),
) -> None:
    """Serve the dashboard and the API until SIGTERM or Ctrl-C.

    The first start makes an administrator's token and prints it once. It listens on this machine only;
    another --host needs a token or --authorize, and --allow-host. While the database cannot be reached,
    it waits and logs why.
    """
    tied = None if lifeline is None else Tied(lifeline)
    serving, options = installed()
    configure(log_level, log_format)
    limits = serving.make_limits(max_connections, max_connections_per_address)
    proxies = proxy_headers_from or ()
    how = serving.make_serving(tls_cert, tls_key, proxies, access_log=access_log, limits=limits)
    made = {
        "authorize": None if authorize is None else find(authorize),
        "read_only": read_only,
        "hosts": serving.hosts_of(host, allow_host or ()),
        "origins": origin or (),
        "base": base,
        "title": title,
    }
    options.make_options(**made)  # refused here, before anything is opened
    with target.choose(application) as holdfast:
        if location_of(target.app, target.url, application) is None:
            refuse_absent(holdfast)
        address, location = (host, port, allow_host or ()), application or target.app
        _serve(holdfast, made, how, address, location, open_browser, tied)


def _serve(
    holdfast: Holdfast,
    options: dict[str, Any],
    how: "Serving",
    address: tuple[str, int, Sequence[str]],
    location: str | None,
    open_browser: bool,
    tied: "Tied | None",
) -> None:
    """Serve as soon as the database answers."""
    from holdfast.web.http import serving

    host, port, names = address
    release = (lambda: None) if tied is None else tied.release
    patiently(holdfast, holdfast.engine.open, release)
    patiently(holdfast, lambda: refuse_open(holdfast, host, names, options["authorize"]), release)
    with serving.listen(host, port) as listener:
        site = Site(holdfast, options, how, listener, host, names)
        patiently(holdfast, lambda: site.announce(location, open_browser=open_browser), release)
        site.serve(release)


class Tied:
    """To the process that started this one, which waits for `release`; this one ends with it."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._released = False
        threading.Thread(target=self._watch, name="holdfast-tied", daemon=True).start()

    def release(self) -> None:
        """Let that process go on: the web is served, or waits for its database."""
        if not self._released:
            self._released = True
            with suppress(OSError):
                self._socket.sendall(b"!")

    def _watch(self) -> None:
        with self._socket, suppress(OSError):  # it is reset if that process has not read all
            self._socket.recv(1)
        os.kill(os.getpid(), signal.SIGTERM)
