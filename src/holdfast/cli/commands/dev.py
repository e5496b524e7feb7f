"""`holdfast dev`: a worker and the web server, started anew when the application's files change."""

import importlib.util
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.commands.web import Host, Port
from holdfast.cli.output import clean
from holdfast.cli.target import AppArgument, AppOption
from holdfast.errors import InvalidInput

LOOK = 0.3  # seconds between two looks at the files
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
    open_browser: Annotated[
        bool | None, typer.Option("--open/--no-open", help="Open a browser; on a terminal it does.")
    ] = None,
    app: AppOption = None,
) -> None:
    """Run a worker and the dashboard, and again whenever a .py file of the application changes."""
    location = application or app
    if location is None:
        raise InvalidInput("no application was given: write MODULE:APP, or set HOLDFAST_APP")
    folder = folder_of(location)
    wanted = sys.stdout.isatty() if open_browser is None else open_browser
    command = [sys.executable, "-m", "holdfast", "worker", location, "--queues", queues]
    shown = f"[{host}]" if ":" in host else host
    command += ["--web", f"{shown}:{port}", "--grace", "2s", "--tell"]
    typer.echo(f"dev: {location}, watching {folder}; Ctrl-C ends it")
    sys.stdout.flush()
    raise typer.Exit(Dev(command, folder, open_browser=wanted).run())


def folder_of(location: str) -> Path:
    """Where the application's files are, without importing it: it may not even be importable now."""
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
    return dict(_files(folder))


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    for root, folders, files in os.walk(folder):
        here = Path(root)
        folders[:] = [
            name
            for name in folders
            if name not in _SKIPPED
            and not name.startswith(".")
            and not (here / name / "pyvenv.cfg").exists()
        ]
        for name in files:
            if name.endswith(".py"):
                try:
                    yield here / name, (here / name).stat().st_mtime_ns
                except OSError:  # it was there a moment ago
                    continue


def changed(before: Times, now: Times) -> list[Path]:
    return sorted(path for path in {*before, *now} if before.get(path) != now.get(path))


class Dev:
    def __init__(self, command: list[str], folder: Path, *, open_browser: bool) -> None:
        self._command = command
        self._folder = folder
        self._open = open_browser
        self._leave = threading.Event()

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self._leave.set())
        while not self._leave.is_set():
            times = times_of(self._folder)
            process = self._begin()
            try:
                self._wait(process, times)
            finally:
                self._end(process)
        return 0

    def _begin(self) -> "subprocess.Popen[bytes]":
        wanted, self._open = self._open, False  # once is enough
        environment = {**os.environ, "HOLDFAST_WEB_OPEN": str(int(wanted))}
        return subprocess.Popen(  # noqa: S603
            self._command,
            stdin=subprocess.DEVNULL,
            env=environment,
            process_group=0,  # a Ctrl-C at the terminal is for us alone
        )

    def _wait(self, process: "subprocess.Popen[bytes]", times: Times) -> None:
        """Until a file has changed, or it is time to leave. A worker that is broken waits for both."""
        told = False
        while not self._leave.wait(LOOK):
            if found := changed(times, times_of(self._folder)):
                names = ", ".join(str(path.relative_to(self._folder)) for path in found[:3])
                typer.echo(f"dev: {clean(names)} changed: starting again")
                sys.stdout.flush()
                return
            if not told and process.poll() is not None:
                told = True
                typer.echo(f"dev: it ended with code {process.returncode}; waiting for a change")
                sys.stdout.flush()

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        if process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_LEAVE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
