"""The page of the database schema, read from the migrations of both engines."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import resources

from holdfast.jobs.job import Attempt, Job, LogLine
from tools.reference.columns import TABLES, WORDS
from tools.reference.markdown import code, heading, plain, sentence, table
from tools.reference.source import source_of

_TABLE = re.compile(
    r"((?:^--[^\n]*\n)*)^CREATE TABLE (?:IF NOT EXISTS )?(?:\{schema\}\.|holdfast_)(\w+) \(\n(.*?)^\)",
    re.M | re.S,
)
_COLUMN = re.compile(r"^    ([a-z_]+) +(.+?),?$", re.M)
_ADDED = re.compile(
    r"^ALTER TABLE (?:\{schema\}\.|holdfast_)(\w+)\s+ADD COLUMN (?:IF NOT EXISTS )?(\w+) ([^;]+);",
    re.M,
)
_WORD = re.compile(
    r"\b(NOT NULL|PRIMARY KEY|UNIQUE|AUTOINCREMENT|DEFAULT|CHECK|GENERATED|COLLATE)\b.*"
)
_INDEX = re.compile(
    r"^CREATE (UNIQUE )?INDEX (?:CONCURRENTLY )?(?:IF NOT EXISTS )?(\w+)"
    r" ON (?:\{schema\}\.|holdfast_)(\w+) (.+?);",
    re.M,
)


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    required: bool


@dataclass
class Table:
    name: str
    words: str = ""
    columns: dict[str, Column] = field(default_factory=dict)
    indexes: int = 0


def read(engine: str) -> dict[str, Table]:
    """Return the tables of "sqlite" or "postgres", after all migrations."""
    tables: dict[str, Table] = {}
    folder = resources.files(f"holdfast.engine.{engine}").joinpath("migrations")
    for file in sorted(folder.iterdir(), key=lambda one: one.name):
        if not file.name.endswith(".sql"):
            continue
        text = file.read_text("utf-8")
        for comment, name, body in _TABLE.findall(text):
            columns = {one.name: one for one in _columns(body)}
            tables[name] = Table(name, _comment(comment), columns)
        for name, column, rest in _ADDED.findall(text):
            tables[name].columns[column] = _column(column, rest)
        for *_, name, _ in _INDEX.findall(text):
            tables[name].indexes += 1
    return tables


def _comment(text: str) -> str:
    """Return the comment above a table, without the line about the migration."""
    lines = [line.removeprefix("--").strip() for line in text.splitlines()]
    return " ".join(line for line in lines if not line.startswith("breaking:"))


def _columns(body: str) -> Iterator[Column]:
    for name, rest in _COLUMN.findall(body):
        yield _column(name, rest)


def _column(name: str, rest: str) -> Column:
    required = "NOT NULL" in rest or "PRIMARY KEY" in rest
    return Column(name, _WORD.sub("", rest).strip().lower(), required)


def words() -> dict[tuple[str, str], str]:
    """Return the descriptions of columns: of the fields read from them, else of WORDS."""
    found: dict[tuple[str, str], str] = {}
    for name, thing in (("jobs", Job), ("attempts", Attempt), ("logs", LogLine)):
        found |= {(name, one.name): one.words for one in source_of(thing).fields() if one.words}
    return found | WORDS


def page() -> str:
    sqlite, postgres = read("sqlite"), read("postgres")
    meanings = words()
    parts = [
        "# Database schema\n\nThe tables of this release. On SQLite their names begin with "
        "`holdfast_`; on PostgreSQL they are in the schema `holdfast`, or as `schema=` says. "
        "`holdfast migrate --sql` prints the statements. Read what you like; write only what the "
        "guides show, such as the triggers of [entities](../guides/entities.md): the rest may change "
        "with a release.\n\n"
        "On SQLite times are integers, microseconds since 1970, and booleans are 0 or 1.\n"
    ]
    for name in {**postgres, **sqlite}:
        one, other = sqlite.get(name, Table(name)), postgres.get(name, Table(name))
        parts.append(heading(2, code(name), name))
        parts.append(f"{plain(TABLES.get(name) or one.words or other.words)}\n")
        rows = []
        for column in {**other.columns, **one.columns}:
            left, right = one.columns.get(column), other.columns.get(column)
            some = left or right
            assert some is not None
            rows.append(
                [
                    code(column),
                    code(left.type) if left else "",
                    code(right.type) if right else "",
                    "" if some.required else "yes",
                    sentence(plain(meanings.get((name, column), ""))),
                ]
            )
        parts.append(table(("column", "SQLite", "PostgreSQL", "may be null", "meaning"), rows))
    return "".join(parts)
