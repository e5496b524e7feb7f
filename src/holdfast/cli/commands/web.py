"""`holdfast web`: the dashboard and the API, served by themselves."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.commands.worker import LogFormat, LogLevel
from holdfast.cli.target import AppArgument, Target
from holdfast.cli.web_process import Lifeline
from holdfast.core.log_format import configure
from holdfast.errors import HoldfastError

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
        list[str] | None, typer.Option(help="A name by which it may be called; may be repeated.")
    ] = None
    origin: Annotated[
        list[str] | None,
        typer.Option(help="Another site whose pages may call it; may be repeated."),
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
    tls_cert: Annotated[Path | None, typer.Option(help="A certificate (PEM).")] = None
    tls_key: Annotated[Path | None, typer.Option(help="Its key (PEM).")] = None
    proxy_headers_from: Annotated[
        list[str] | None,
        typer.Option(
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
            min=1,
            help="Maximum from one address, except the proxies of --proxy-headers-from (default 400).",
        ),
    ] = None
    log_level: LogLevel = "info"
    log_format: LogFormat = "text"


def web(
    application: AppArgument = None,
    *,
    given: WebOptions,
    lifeline: Annotated[int | None, typer.Option(hidden=True)] = None,
    target: Target,
) -> None:
    """Serve the dashboard and the API until SIGTERM or Ctrl-C.

    The first start makes an administrator's token and prints it once. It listens on this machine only;
    another --host needs a token or --authorize, and --allow-host. While the database cannot be reached,
    it waits and logs why.
    """
    tied = None if lifeline is None else Lifeline(lifeline)
    check_installed()
    from holdfast.cli.web_server import serve

    configure(given.log_level, given.log_format)
    serve(application, given, target, tied)


def check_installed() -> None:
    """Raise HoldfastError if the packages of the web are not installed: they are an extra."""
    try:
        import holdfast.web.http.serving  # noqa: F401
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] == "holdfast":
            raise
        raise HoldfastError(
            f"the web needs {missing.name!r}, which is not installed: pip install 'holdfast[web]'"
        ) from None
