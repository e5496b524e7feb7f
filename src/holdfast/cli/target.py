"""Which application or database a command is about, and how it reports.

What is written on the command line wins over the environment, an application over a URL. Nothing
given means the file that an application makes by default, if it is in the current folder.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from holdfast.app import DEFAULT_URL, Holdfast
from holdfast.app_loader import load
from holdfast.cli.output import (
    Column,
    hint,
    print_json,
    print_json_array,
    print_table,
    select,
    with_bodies,
)
from holdfast.errors import DatabaseUnavailable, InvalidInput
from holdfast.jobs.job import Job

T = TypeVar("T")

AppArgument = Annotated[
    str | None,
    typer.Argument(metavar="MODULE:APP", help="The application; MODULE alone means MODULE:app."),
]
AppOption = Annotated[
    str | None,
    typer.Option("--app", metavar="MODULE:APP", envvar="HOLDFAST_APP", help="The application."),
]


@dataclass(frozen=True, kw_only=True)
class Target:
    """The options that name an application or a database."""

    app: AppOption = None
    url: Annotated[
        str | None,
        typer.Option(envvar="HOLDFAST_URL", help="A database instead of an application."),
    ] = None
    schema: Annotated[
        str, typer.Option(envvar="HOLDFAST_SCHEMA", help="Its schema, on PostgreSQL.")
    ] = "holdfast"

    @contextmanager
    def opened(self, argument: str | None = None) -> Iterator[Holdfast]:
        """Open the application that the options name, and close it at the end."""
        with self.choose(argument) as holdfast:
            refuse_absent(holdfast)
            yield holdfast

    def choose(self, argument: str | None = None, *, make: bool = False) -> Holdfast:
        """Return the application that the options name, not opened yet. `make`: its database may be
        created."""
        location = self.location(argument)
        if location is not None:
            return load(location)
        if not self.url and not make and not _default_file().exists():
            raise InvalidInput(
                "no application and no database was given: write --app MODULE:APP or --url URL, or set "
                "HOLDFAST_APP or HOLDFAST_URL"
            )
        # An operator's look at a database never makes tables in it; `holdfast migrate` does.
        return Holdfast(self.url or DEFAULT_URL, schema=self.schema, auto_migrate=make)

    def location(self, argument: str | None) -> str | None:
        """Return MODULE:APP of the application to be used; None: a database."""
        if argument is not None and _written(self.app, "HOLDFAST_APP") and self.app != argument:
            raise InvalidInput(
                f"two applications were given, {argument} and --app {self.app}: give one"
            )
        location = argument or self.app or None
        if location is None or not _written(self.url, "HOLDFAST_URL"):
            return location
        if argument is None and not _written(self.app, "HOLDFAST_APP"):
            return None
        raise InvalidInput(
            f"both an application ({location}) and --url were given: give one of them"
        )


@dataclass(frozen=True, kw_only=True)
class Common(Target):
    """The options of nearly every command: what it is about, and whether it prints JSON."""

    as_json: Annotated[
        bool, typer.Option("--json", envvar="HOLDFAST_JSON", help="Print JSON, for programs.")
    ] = False

    def printed_json(self, value: Any) -> bool:
        """Print a value as JSON and return True, if --json was given."""
        if self.as_json:
            print_json(value)
        return self.as_json

    def report(self, value: Any, *lines: str) -> None:
        """Print what was done: with --json the value, else the lines."""
        if not self.printed_json(value):
            for line in lines:
                typer.echo(line)

    def print_list(
        self,
        found: Sequence[T],
        columns: Sequence[Column[T]],
        *,
        fields: Sequence[str] = (),
        now: datetime | None = None,
        if_empty: str | None = None,
    ) -> None:
        """Print a table or, with --json, an array of the records: all of them, or these fields.
        `if_empty` is a hint."""
        if self.printed_json([select(one, fields) for one in found] if fields else found):
            return
        print_table(columns, found, now)
        if if_empty is not None and not found:
            hint(if_empty)

    def print_jobs(
        self, holdfast: Holdfast, jobs: Iterator[Job], columns: Sequence[Column[Job]], limit: int
    ) -> int:
        """Print at most `limit` jobs, and return how many there were, or `limit` + 1. JSON has payloads
        and results, which lists leave out."""
        if self.as_json:
            print_json_array(with_bodies(holdfast, islice(jobs, limit)))
            return 0
        found = list(islice(jobs, limit + 1))
        print_table(columns, found[:limit], holdfast.engine.now())
        return len(found)


def required(argument: str | None, app: str | None) -> str:
    """Return the application of a command that needs one, from its argument or --app."""
    location = argument or app
    if location is None:
        raise InvalidInput("no application was given: write MODULE:APP, or set HOLDFAST_APP")
    return location


def refuse_absent(holdfast: Holdfast) -> None:
    """Raise if the SQLite file is not there: it would be made, and a wrong URL show an empty queue."""
    path: Path | None = getattr(holdfast.engine, "path", None)
    if path is not None and not path.exists():
        raise DatabaseUnavailable(
            f"there is no database {os.fspath(path)!r}: check the URL and the current folder, or make "
            "it with 'holdfast migrate'"
        )


def _written(value: str | None, variable: str) -> bool:
    """Whether an option was given on the command line, and differs from the environment."""
    return value is not None and value != os.environ.get(variable)


def _default_file() -> Path:
    return Path(DEFAULT_URL.removeprefix("sqlite:///")).absolute()
