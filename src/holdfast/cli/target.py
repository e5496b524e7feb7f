"""Which application or database a command is about.

What is written on the command line wins over the environment, an application over a URL. Nothing
given means the file that an application makes by default, if it is in the current folder.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from holdfast.app import DEFAULT_URL, Holdfast
from holdfast.errors import DatabaseUnavailable, InvalidInput
from holdfast.locate import load

AppArgument = Annotated[
    str | None,
    typer.Argument(metavar="MODULE:APP", help="The application; MODULE alone means MODULE:app."),
]
AppOption = Annotated[
    str | None,
    typer.Option("--app", metavar="MODULE:APP", envvar="HOLDFAST_APP", help="The application."),
]
UrlOption = Annotated[
    str | None,
    typer.Option("--url", envvar="HOLDFAST_URL", help="A database instead of an application."),
]
SchemaOption = Annotated[
    str,
    typer.Option("--schema", envvar="HOLDFAST_SCHEMA", help="Its schema, on PostgreSQL."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", envvar="HOLDFAST_JSON", help="Print JSON, for programs.")
]
SCHEMA = "holdfast"


@dataclass(frozen=True, kw_only=True)
class Target:
    """The options that name an application or a database."""

    app: AppOption = None
    url: UrlOption = None
    schema: SchemaOption = SCHEMA

    def opened(self, argument: str | None = None) -> AbstractContextManager[Holdfast]:
        return opened(self.app, self.url, self.schema, argument=argument)

    def choose(self, argument: str | None = None, *, make: bool = False) -> Holdfast:
        return choose(self.app, self.url, self.schema, argument=argument, make=make)


@contextmanager
def opened(
    app: str | None, url: str | None, schema: str = SCHEMA, *, argument: str | None = None
) -> Iterator[Holdfast]:
    """The application that the options name; closed at the end."""
    with choose(app, url, schema, argument=argument) as holdfast:
        refuse_absent(holdfast)
        yield holdfast


def choose(
    app: str | None,
    url: str | None,
    schema: str,
    *,
    argument: str | None = None,
    make: bool = False,
) -> Holdfast:
    """The application that the options name, not opened yet. `make`: its database may be made."""
    location = location_of(app, url, argument)
    if location is not None:
        return load(location)
    if not url and not make and not default_file().exists():
        raise InvalidInput(
            "no application and no database was given: write --app MODULE:APP or --url URL, or set "
            "HOLDFAST_APP or HOLDFAST_URL"
        )
    # An operator's look at a database never makes tables in it; `holdfast migrate` does.
    return Holdfast(url or DEFAULT_URL, schema=schema, auto_migrate=make)


def location_of(app: str | None, url: str | None, argument: str | None) -> str | None:
    """The application to be used; None: a database."""
    if argument is not None and _written(app, "HOLDFAST_APP") and app != argument:
        raise InvalidInput(f"two applications were given, {argument} and --app {app}: give one")
    location = argument or app or None
    if location is None or not _written(url, "HOLDFAST_URL"):
        return location
    if argument is None and not _written(app, "HOLDFAST_APP"):
        return None
    raise InvalidInput(f"both an application ({location}) and --url were given: give one of them")


def _written(value: str | None, variable: str) -> bool:
    """On the command line, as far as that makes a difference."""
    return value is not None and value != os.environ.get(variable)


def default_file() -> Path:
    return Path(DEFAULT_URL.removeprefix("sqlite:///")).absolute()


def refuse_absent(holdfast: Holdfast) -> None:
    """SQLite would make the file, and a wrong URL would show an empty queue."""
    path: Path | None = getattr(holdfast.engine, "path", None)
    if path is not None and not path.exists():
        raise DatabaseUnavailable(
            f"there is no database {os.fspath(path)!r}: check the URL and the current folder, or make "
            "it with 'holdfast migrate'"
        )
