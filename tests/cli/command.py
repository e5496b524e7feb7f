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
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from holdfast.cli.root import cli
from tests.conftest import Database

HOLDFAST = [sys.executable, "-m", "holdfast"]


def environment(**variables: str) -> dict[str, str]:
    """Ours, without what the person who runs the tests may have set."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("HOLDFAST") and name not in ("FORCE_COLOR", "COLUMNS", "NO_COLOR")
    }
    return {**kept, "TERM": "xterm-256color", **variables}


def process(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
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
    def started(self, *arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
        """A process whose lines can be read one after the other."""
        with subprocess.Popen(
            [*HOLDFAST, *arguments],
            cwd=self.cwd,
            env=environment(**{**self.variables, **variables}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as running:
            try:
                yield running
            finally:
                running.kill()

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
