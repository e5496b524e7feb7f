"""Migrations: numbered SQL files, forward only, the same numbers and titles for both engines.

The first line says whether an older release can still work on the tables afterwards (`-- breaking:
no`). One that is breaking and unknown to this release makes it refuse, instead of guessing.

New tables are made in one transaction. Tables in use are migrated statement by statement, so that no
lock is held for long; a process that was killed midway begins again at the first statement. So every
statement from 0002 on must be harmless when it is repeated (`IF NOT EXISTS`; docs/decisions/0022).
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import ClassVar, Generic, TypeVar

from holdfast.engine.script import fill
from holdfast.errors import HoldfastError, SchemaError

C = TypeVar("C")
_FILE = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")
_CONCURRENTLY = re.compile(r"\bCONCURRENTLY\s+")


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    title: str
    breaking: bool
    sql: str = ""  #: the SQL text, if this release knows the migration

    @property
    def name(self) -> str:
        return f"{self.number:04d}_{self.title}"


def load(package: str, words: Mapping[str, str]) -> list[Migration]:
    """Return the migrations of an engine, in order."""
    found = []
    for file in resources.files(package).joinpath("migrations").iterdir():
        match = _FILE.match(file.name)
        if match is None:
            continue
        text = file.read_text("utf-8")
        first = text.splitlines()[0]
        if first not in ("-- breaking: no", "-- breaking: yes"):
            raise HoldfastError(f"{file.name}: the first line must be '-- breaking: no' or 'yes'")
        found.append(Migration(int(match[1]), match[2], first.endswith("yes"), fill(text, words)))
    return sorted(found, key=lambda migration: migration.number)


def commands(sql: str) -> list[str]:
    """Return the commands of a migration, without comments; a trigger's body stays in one piece."""
    plain = "\n".join(line for line in sql.splitlines() if not line.lstrip().startswith("--"))
    parts: list[str] = []
    for piece in plain.split(";"):
        if parts and re.search(r"\bBEGIN\b", parts[-1]) and not parts[-1].rstrip().endswith("END"):
            parts[-1] += ";" + piece
        else:
            parts.append(piece)
    return [part.strip() for part in parts if part.strip()]


def commands_for_new_tables(sql: str) -> list[str]:
    """Return the commands of a migration for one transaction. No process uses the tables yet, so
    indexes are not built CONCURRENTLY, which would wait for every older transaction."""
    return [_CONCURRENTLY.sub("", command) for command in commands(sql)]


class Migrations(ABC, Generic[C]):
    """Reads which migrations a database has had, and which it still needs. `C`: the type of its
    connections."""

    package: ClassVar[str]  #: where the files are

    def __init__(self, words: Mapping[str, str]) -> None:
        self._words = words

    def known(self) -> list[Migration]:
        return load(self.package, self._words)

    @abstractmethod
    def applied(self, connection: C) -> list[Migration]:
        """Return the migrations that the database has recorded."""

    @abstractmethod
    def as_sql(self) -> str:
        """Return all migrations as SQL, for operators who apply it by themselves."""

    @abstractmethod
    def _absent(self, names: str) -> SchemaError:
        """Return the error for tables that lack migrations."""

    def missing(self, connection: C) -> list[Migration]:
        """Return the migrations that are still to be applied. Raises SchemaError if a newer release has
        changed the tables in a way that this release cannot work with."""
        known, applied = self.known(), self.applied(connection)
        newest = max(migration.number for migration in known)
        for migration in applied:
            if migration.number > newest and migration.breaking:
                raise SchemaError(
                    f"the database was migrated by a newer release of Holdfast (migration "
                    f"{migration.name} is not known here, and older releases "
                    "cannot work with it): upgrade the holdfast package on this machine"
                )
        done = {migration.number for migration in applied}
        return [migration for migration in known if migration.number not in done]

    def require(self, connection: C) -> None:
        """Raise SchemaError if a migration is missing."""
        if missing := self.missing(connection):
            raise self._absent(", ".join(migration.name for migration in missing))


def as_text(known: Iterable[Migration], *, head: str, table: str, columns: str, now: str) -> str:
    """Return all migrations as SQL, for operators who apply it by themselves. The SQL also records them
    as applied: else this release would refuse the tables."""
    parts = [head, f"CREATE TABLE IF NOT EXISTS {table} ({columns});\n"]
    for migration in known:
        breaking = "TRUE" if migration.breaking else "FALSE"
        values = f"{migration.number}, '{migration.title}', {breaking}, {now}"
        record = f"INSERT INTO {table} VALUES ({values}) ON CONFLICT DO NOTHING;\n"  # noqa: S608
        parts += [f"-- Migration {migration.name}", migration.sql, record]
    return "\n".join(parts)
