"""The dashboard of an application on a socket, and what people are told about it."""

import socket
import sys
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from holdfast.access import Access
from holdfast.app import Holdfast
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.web.http.serving import Serving


def installed() -> tuple[Any, Any]:
    """The modules of the web, which need an extra."""
    try:
        from holdfast.web import options
        from holdfast.web.http import serving
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] == "holdfast":
            raise
        raise HoldfastError(
            f"the web needs {missing.name!r}, which is not installed: pip install 'holdfast[web]'"
        ) from None
    return serving, options


def refuse_open(holdfast: Holdfast, host: str, allowed: Any, authorize: object) -> None:
    from holdfast.web.http import serving

    if not serving.is_loopback(host):
        serving.refuse_open(
            host,
            allowed,
            authorize=authorize is not None,
            tokens=Access(holdfast).list(),
            now=holdfast.engine.now(),
        )


class Site:
    """The dashboard of an application on a socket."""

    def __init__(
        self,
        app: Holdfast,
        options: dict[str, Any],
        serving: "Serving",
        listener: socket.socket,
        host: str,
        names: Sequence[str] = (),
    ) -> None:
        """`names`: by which alone it may be called, where others can."""
        from holdfast.web import dashboard
        from holdfast.web.http.serving import address_of, is_loopback

        self.web = dashboard(app, **options)
        name = host if is_loopback(host) else names[0]
        self.address = address_of(listener, name, serving, options.get("base", ""))
        self._app = app
        self._closed = options.get("authorize") is not None
        self._serving = serving
        self._listener = listener
        self._host = host

    def announce(self, location: str | None, *, open_browser: bool) -> None:
        from holdfast.web.http.serving import is_loopback

        first = None if self._closed else Access(self._app).first_token()
        typer.echo(f"dashboard: {self.address}")
        if first is not None:
            typer.echo(f"first token, an administrator's, not shown again: {first}")
        elif not self._closed:
            told = f" --app {location}" if location else ""
            typer.echo(f"to log in: holdfast tokens create{told} --name YOU --role admin")
        if not (is_loopback(self._host) or self._serving.tls_cert or self._serving.proxies):
            typer.echo(
                "warning: other machines can reach it, without TLS: whoever listens in reads tokens. "
                "Give --tls-cert and --tls-key, or put a proxy with TLS in front "
                "(--proxy-headers-from)",
                err=True,
            )
        sys.stdout.flush()
        if open_browser:
            self.open()

    def open(self) -> None:
        """In a browser, logged in. What comes after `#` is not sent to any server."""
        webbrowser.open(f"{self.address}#token={self.web.state.web.invitations.make()}")

    def serve(self, ready: Callable[[], None]) -> None:
        from holdfast.web.http.serving import Server

        Server(self.web, self._serving, ready=ready).run([self._listener])


@contextmanager
def dashboard(app: Holdfast, port: int | None, *, open_browser: bool) -> Iterator[Sequence[str]]:
    """The demonstration's, in a thread of this process; what to tell about it."""
    try:
        serving, _ = installed()
    except HoldfastError as problem:
        yield [f"no dashboard: {problem}"]
        return
    with _some_listener(serving, port) as listener:
        host = "127.0.0.1"
        site = Site(
            app,
            {"hosts": serving.hosts_of(host, ()), "title": "Holdfast demo"},
            serving.Serving(),
            listener,
            host,
        )
        _, token = Access(app).create("demo", "admin", expires="12h", by="the demonstration")
        with serving.background(site.web, listener):
            if open_browser:
                site.open()
            yield [f"dashboard: {site.address}", f"token: {token}"]


def _some_listener(serving: Any, port: int | None) -> socket.socket:
    """On the port that was asked for, else on ours, else on a free one."""
    found: socket.socket
    if port is not None:
        found = serving.listen("127.0.0.1", port)
        return found
    try:
        found = serving.listen("127.0.0.1", serving.PORT)
    except serving.CannotListen:
        found = serving.listen("127.0.0.1", 0)
    return found
