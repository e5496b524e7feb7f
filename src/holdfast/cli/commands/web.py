"""`holdfast web`: the dashboard and the API, served by themselves."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.app import Holdfast
from holdfast.cli.commands.worker import LogFormat, LogLevel
from holdfast.cli.database_wait import patiently
from holdfast.cli.target import AppArgument, Target, refuse_absent
from holdfast.cli.web_process import Lifeline
from holdfast.cli.web_server import Site, installed, refuse_open
from holdfast.core.log_format import configure
from holdfast.locate import find

if TYPE_CHECKING:
    from holdfast.web.http.serving import Serving

Host = Annotated[str, typer.Option(help="The address to listen on; the default is this machine.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0 means one that is free.")]


@dataclass(frozen=True, kw_only=True)
class WebOptions:
    """The options of the server, and of the dashboard on it."""

    host: Host = "127.0.0.1"
    port: Port = 8686
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Disable every change (read-only dashboard).")
    ] = False
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="A name by which it may be called; may be repeated."),
    ] = None
    origin: Annotated[
        list[str] | None,
        typer.Option("--origin", help="Another site whose pages may call it; may be repeated."),
    ] = None
    base: Annotated[str, typer.Option(help="The path that a proxy has it at, such as /jobs.")] = ""
    title: Annotated[str, typer.Option(help="What the pages are called.")] = "Holdfast"
    authorize: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="Who asks, by a function of the request."),
    ] = None
    open_browser: Annotated[
        bool,
        typer.Option(
            "--open/--no-open", envvar="HOLDFAST_WEB_OPEN", help="Open a browser, logged in."
        ),
    ] = False
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", help="A certificate (PEM).")] = None
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="Its key (PEM).")] = None
    proxy_headers_from: Annotated[
        list[str] | None,
        typer.Option(
            "--proxy-headers-from",
            metavar="ADDRESS",
            help="A proxy whose X-Forwarded-For and -Proto are believed; may be repeated.",
        ),
    ] = None
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Log requests, but no probes.")
    ] = False
    max_connections: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Maximum number of open connections (default 1000, and 100 less than the limit of "
            "open files).",
        ),
    ] = None
    max_connections_per_address: Annotated[
        int | None,
        typer.Option(
            "--max-connections-per-address",
            min=1,
            help="Maximum from one address, except the proxies of --proxy-headers-from (default 400).",
        ),
    ] = None
    log_level: LogLevel = "info"
    log_format: LogFormat = "text"

    def serving(self) -> "Serving":
        """How it is served. Raises InvalidInput for what does not fit together."""
        from holdfast.web.http.connections import ConnectionLimits
        from holdfast.web.http.serving import Serving

        limits = {"total": self.max_connections, "per_address": self.max_connections_per_address}
        return Serving(
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            proxies=tuple(self.proxy_headers_from or ()),
            access_log=self.access_log,
            limits=ConnectionLimits(**{name: most for name, most in limits.items() if most}),
        )

    def dashboard(self) -> dict[str, Any]:
        """What `holdfast.web.dashboard` takes."""
        from holdfast.web.http.serving import hosts_of

        return {
            "authorize": None if self.authorize is None else find(self.authorize),
            "read_only": self.read_only,
            "hosts": hosts_of(self.host, self.allow_host or ()),
            "origins": self.origin or (),
            "base": self.base,
            "title": self.title,
        }


def web(
    application: AppArgument = None,
    *,
    given: WebOptions,
    lifeline: Annotated[int | None, typer.Option("--lifeline", hidden=True)] = None,
    target: Target,
) -> None:
    """Serve the dashboard and the API until SIGTERM or Ctrl-C.

    The first start makes an administrator's token and prints it once. It listens on this machine only;
    another --host needs a token or --authorize, and --allow-host. While the database cannot be reached,
    it waits and logs why.
    """
    tied = None if lifeline is None else Lifeline(lifeline)
    _, options = installed()
    configure(given.log_level, given.log_format)
    how, made = given.serving(), given.dashboard()
    options.WebOptions(**made)  # refused here, before anything is opened
    with target.choose(application) as holdfast:
        if target.location(application) is None:
            refuse_absent(holdfast)
        _serve(holdfast, given, made, how, application or target.app, tied)


def _serve(
    holdfast: Holdfast,
    given: WebOptions,
    options: dict[str, Any],
    how: "Serving",
    location: str | None,
    tied: Lifeline | None,
) -> None:
    """Serve as soon as the database answers."""
    from holdfast.web.http import serving

    names = given.allow_host or ()
    release = (lambda: None) if tied is None else tied.release

    def check() -> None:
        refuse_open(holdfast, given.host, names, options["authorize"])

    patiently(holdfast, holdfast.engine.open, release)
    patiently(holdfast, check, release)
    with serving.listen(given.host, given.port) as listener:
        site = Site(holdfast, options, how, listener, given.host, names)
        open_browser = given.open_browser
        patiently(holdfast, lambda: site.announce(location, open_browser=open_browser), release)
        site.serve(release)
