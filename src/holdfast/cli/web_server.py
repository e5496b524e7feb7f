"""The dashboard of an application on a socket, and the lines that announce it. Needs the packages of
the web, an extra: import it after `check_installed`."""

import socket
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from holdfast.access import Access
from holdfast.app import Holdfast
from holdfast.app_loader import find
from holdfast.cli.database_wait import wait_for_database
from holdfast.cli.target import Target, refuse_absent
from holdfast.cli.web_process import Lifeline
from holdfast.web import dashboard, options
from holdfast.web.http import serving
from holdfast.web.http.connections import ConnectionLimits

if TYPE_CHECKING:
    from holdfast.cli.commands.web import WebOptions

_LOOPBACK = "127.0.0.1"


def serve(
    application: str | None, given: "WebOptions", target: Target, lifeline: Lifeline | None
) -> None:
    """Serve the dashboard as soon as the database answers, until a signal. Raises InvalidInput for
    options that do not fit together, before anything is opened."""
    limits = {"total": given.max_connections, "per_address": given.max_connections_per_address}
    how = serving.Serving(
        tls_cert=given.tls_cert,
        tls_key=given.tls_key,
        proxies=tuple(given.proxy_headers_from or ()),
        access_log=given.access_log,
        limits=ConnectionLimits(**{name: most for name, most in limits.items() if most}),
    )
    names = given.allow_host or ()
    chosen: dict[str, Any] = {
        "authorize": None if given.authorize is None else find(given.authorize),
        "read_only": given.read_only,
        "hosts": serving.hosts_of(given.host, names),
        "origins": given.origin or (),
        "base": given.base,
        "title": given.title,
    }
    options.WebOptions(**chosen)  # refused here, before anything is opened
    release = (lambda: None) if lifeline is None else lifeline.release
    with target.choose(application) as app:
        if target.location(application) is None:
            refuse_absent(app)

        def check() -> None:
            app.engine.open()
            if not serving.is_loopback(given.host):
                tokens, now = Access(app).list(), app.engine.now()
                closed = given.authorize is not None
                serving.refuse_open(given.host, names, authorize=closed, tokens=tokens, now=now)

        wait_for_database(app, check, release)
        with serving.listen(given.host, given.port) as listener:
            site = Site(app, chosen, how, listener, given.host, names)
            wait_for_database(app, lambda: site.announce(application or target.app), release)
            if given.open_browser:
                site.open()
            serving.Server(site.web, how, ready=release).run([listener])


class Site:
    """The dashboard of an application on a socket."""

    def __init__(
        self,
        app: Holdfast,
        chosen: dict[str, Any],
        how: serving.Serving,
        listener: socket.socket,
        host: str,
        names: Sequence[str] = (),
    ) -> None:
        """`names`: the accepted host names, if other machines can reach it."""
        self.web = dashboard(app, **chosen)
        self._app = app
        self._closed = chosen.get("authorize") is not None
        self._is_public = not serving.is_loopback(host)
        self._is_plain = not (how.tls_cert or how.proxies)
        name = names[0] if self._is_public else host
        self.address = serving.address_of(listener, name, how, chosen.get("base", ""))

    def announce(self, location: str | None) -> None:
        """Print the address, and how to log in."""
        first = None if self._closed else Access(self._app).first_token()
        typer.echo(f"dashboard: {self.address}")
        if first is not None:
            typer.echo(f"first token, an administrator's, not shown again: {first}")
        elif not self._closed:
            option = f" --app {location}" if location else ""
            typer.echo(f"to log in: holdfast tokens create{option} --name YOU --role admin")
        if self._is_public and self._is_plain:
            typer.echo(
                "warning: other machines can reach it, without TLS: whoever listens in reads tokens. "
                "Give --tls-cert and --tls-key, or put a proxy with TLS in front "
                "(--proxy-headers-from)",
                err=True,
            )

    def open(self) -> None:
        """Open it in a browser, logged in. What comes after `#` is not sent to any server."""
        webbrowser.open(f"{self.address}#token={self.web.state.web.invitations.make()}")


@contextmanager
def demo_dashboard(app: Holdfast, port: int | None, *, open_browser: bool) -> Iterator[list[str]]:
    """Serve the dashboard of the demonstration in a thread; yield lines about it."""
    with _listen(port) as listener:
        chosen = {"hosts": serving.hosts_of(_LOOPBACK, ()), "title": "Holdfast demo"}
        site = Site(app, chosen, serving.Serving(), listener, _LOOPBACK)
        _, token = Access(app).create("demo", "admin", expires="12h", by="the demonstration")
        with serving.background(site.web, listener):
            if open_browser:
                site.open()
            yield [f"dashboard: {site.address}", f"token: {token}"]


def _listen(port: int | None) -> socket.socket:
    """Listen on the port that was asked for, else on the default one, else on a free one."""
    if port is not None:
        return serving.listen(_LOOPBACK, port)
    try:
        return serving.listen(_LOOPBACK, serving.PORT)
    except serving.CannotListen:
        return serving.listen(_LOOPBACK, 0)
