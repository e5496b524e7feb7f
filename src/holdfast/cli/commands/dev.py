"""`holdfast dev`: a worker and the web server, started anew when the application's files change."""

import importlib.util
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.commands.web import Host, Port
from holdfast.cli.options import OpenOption
from holdfast.cli.output import clean
from holdfast.cli.target import AppArgument, AppOption, required
from holdfast.cli.web_process import end
from holdfast.errors import InvalidInput

POLL = 0.3  # seconds between two polls of the files
_LEAVE = 10.0  # seconds for what runs to end, before it is killed
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})

Times = dict[Path, int]


def dev(
    application: AppArgument = None,
    queues: Annotated[
        str,
        typer.Option("-q", "--queues", help="As of 'holdfast worker'; '*': those of all tasks."),
    ] = "*",
    host: Host = "127.0.0.1",
    port: Port = 8686,
    open_browser: OpenOption = None,
    app: AppOption = None,
) -> None:
    """Run a worker and the dashboard, and again whenever a .py file of the application changes."""
    location = required(application, app)
    folder = folder_of(location)
    wanted = sys.stdout.isatty() if open_browser is None else open_browser
    command = [sys.executable, "-m", "holdfast", "worker", location, "--queues", queues]
    shown = f"[{host}]" if ":" in host else host
    command += ["--web", f"{shown}:{port}", "--grace", "2s", "--tell"]
    typer.echo(f"dev: {location}, watching {folder}; Ctrl-C ends it")
    _run(command, folder, open_browser=wanted)


def folder_of(location: str) -> Path:
    """Return the folder of the application's files, without importing it: it may be broken now."""
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    top = location.partition(":")[0].partition(".")[0]
    spec = importlib.util.find_spec(top) if top.isidentifier() else None
    if spec is None or not (spec.origin or spec.submodule_search_locations):
        raise InvalidInput(
            f"{location!r}: there is no module {top!r} in {here!r} or where Python finds its packages"
        )
    places = list(spec.submodule_search_locations or [])
    return Path(places[0]).absolute() if places else Path(str(spec.origin)).absolute().parent


def times_of(folder: Path) -> Times:
    """Return when each .py file below a folder was changed."""
    found: Times = {}
    for root, folders, files in os.walk(folder):
        here = Path(root)
        folders[:] = [
            name
            for name in folders
            if not (
                name in _SKIPPED or name.startswith(".") or (here / name / "pyvenv.cfg").exists()
            )
        ]
        for path in (here / name for name in files if name.endswith(".py")):
            with suppress(OSError):  # deleted since it was listed
                found[path] = path.stat().st_mtime_ns
    return found


def _run(command: list[str], folder: Path, *, open_browser: bool) -> None:
    """Run a worker with its web server until a signal, and start it again after each change."""
    leave = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: leave.set())
    while not leave.is_set():
        times = times_of(folder)
        environment = {**os.environ, "HOLDFAST_WEB_OPEN": str(int(open_browser))}
        open_browser = False  # once is enough
        process = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            env=environment,
            process_group=0,  # a Ctrl-C at the terminal is for us alone
        )
        try:
            _wait(process, folder, times, leave)
        finally:
            end(process, _LEAVE)


def _wait(
    process: "subprocess.Popen[bytes]", folder: Path, times: Times, leave: threading.Event
) -> None:
    """Return when a file has changed or it is time to leave. A worker that is broken waits for both."""
    has_ended = False
    while not leave.wait(POLL):
        now = times_of(folder)
        if changed := sorted(path for path in {*times, *now} if times.get(path) != now.get(path)):
            names = ", ".join(str(path.relative_to(folder)) for path in changed[:3])
            typer.echo(f"dev: {clean(names)} changed: starting again")
            return
        if not has_ended and process.poll() is not None:
            has_ended = True
            typer.echo(f"dev: it ended with code {process.returncode}; waiting for a change")
