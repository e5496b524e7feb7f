"""The command, as people run it: as a process of its own, also on a terminal; or quickly, in here."""

import fcntl
import json
import os
import pty
import sqlite3
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import typer.main
import typer.testing
from typer.testing import CliRunner

from holdfast.cli.root import cli
from tests.conftest import Database
from tests.support.forked import Forked, forker

HOLDFAST = [sys.executable, "-m", "holdfast"]
# Made once: to make all commands takes longer than to run most of them.
setattr(typer.testing, "_get_command", cache(typer.main.get_command))  # noqa: B010


def environment(**variables: str) -> dict[str, str]:
    """Ours, without what the person who runs the tests may have set."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("HOLDFAST") and name not in ("FORCE_COLOR", "COLUMNS", "NO_COLOR")
    }
    return {**kept, "TERM": "xterm-256color", **variables}


def process(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """One that was forked, unless it has to begin with variables that others than Holdfast read."""
    if not all(name.startswith("HOLDFAST") for name in variables):
        return started_process(*arguments, cwd=cwd, **variables)
    with TemporaryFile() as out, TemporaryFile() as err, open(os.devnull) as nothing:
        files = [file.fileno() for file in (nothing, out, err)]
        running = forker().start(arguments, cwd, environment(**variables), files)
        try:
            code = running.wait(90)
        finally:
            running.kill()
        return subprocess.CompletedProcess([*HOLDFAST, *arguments], code, _text(out), _text(err))


@contextmanager
def forked(*arguments: str, cwd: Path, one: bool = False, **variables: str) -> Iterator[Forked]:
    """A process with pipes for what it writes. `one`: errors too are in `stdout`."""
    read_late = ("HOLDFAST", "PYTHONUNBUFFERED", "BROWSER")
    assert all(name.startswith(read_late) for name in variables), variables
    out, out_end = os.pipe()
    err, err_end = os.pipe()
    with open(os.devnull) as nothing, open(out) as stdout, open(err) as stderr:
        try:
            files = [nothing.fileno(), out_end, out_end if one else err_end]
            running = forker().start(arguments, cwd, environment(**variables), files)
        finally:
            os.close(out_end)
            os.close(err_end)
        running.stdout, running.stderr = stdout, stderr
        try:
            yield running
        finally:
            running.kill()
            running.wait(60)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def started_process(
    *arguments: str, cwd: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HOLDFAST, *arguments],
        cwd=cwd,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
    )


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Command:
    """`command("jobs", "list")`, about one database."""

    database: Database
    cwd: Path

    @property
    def variables(self) -> dict[str, str]:
        return {"HOLDFAST_URL": self.database.url, "HOLDFAST_SCHEMA": self.database.schema}

    def __call__(self, *arguments: str, **variables: str) -> Result:
        """In this process."""
        hidden = {name: None for name in os.environ if name.startswith("HOLDFAST")}
        done = CliRunner().invoke(
            cli, arguments, env={**hidden, **self.variables, **variables}, prog_name="holdfast"
        )
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Result(done.exit_code, done.stdout, done.stderr)

    def process(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return process(*arguments, cwd=self.cwd, **{**self.variables, **variables})

    @contextmanager
    def started(self, *arguments: str, **variables: str) -> Iterator[Forked]:
        """A process whose lines can be read one after the other."""
        with forked(*arguments, cwd=self.cwd, **{**self.variables, **variables}) as running:
            yield running

    def terminal(
        self, *arguments: str, typed: str = "", columns: int = 80, **variables: str
    ) -> Result:
        """On a terminal; what is typed waits there for whoever asks."""
        ours, theirs = pty.openpty()
        size = struct.pack("HHHH", 30, columns, 0, 0)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
        with subprocess.Popen(
            [*HOLDFAST, *arguments],
            cwd=self.cwd,
            env=environment(**{**self.variables, **variables}),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        ) as running:
            os.close(theirs)
            os.write(ours, typed.encode())
            text = b"".join(_read(ours))
            os.close(ours)
            code = running.wait(60)
        return Result(code, text.decode().replace("\r\n", "\n"), "")


def make_empty(database: Database) -> None:
    """A database without our tables. (PostgreSQL's schema is not there until somebody makes it.)"""
    if database.kind == "sqlite":
        with closing(sqlite3.connect(database.path)) as connection:
            connection.execute("CREATE TABLE other (id)")


def _read(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # Linux, when the last process has closed it
            return
        if not data:
            return
        yield data
