"""Named SQL statements, loaded from the SQL files of an engine.

A block begins with `-- name: x`, has a purpose line, and may hold several commands, run in order.
Parameters are `:name`. `{schema}` and the lists of statuses of `job.TRANSITIONS` (`{cancel}` stands
for the statuses that cancel starts from) are filled in at the first use. A line that ends in `--? word`
is there only when the caller asks for that word.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from types import MappingProxyType

from holdfast.errors import HoldfastError
from holdfast.job import FINISHED, TRANSITIONS, UNFINISHED, WAITING, Status

FILES = (
    "statements.sql",
    "workers.sql",
    "limits.sql",
    "schedules.sql",
    "workflows.sql",
    "metrics.sql",
    "retention.sql",
    "events.sql",
    "logs.sql",
    "access.sql",
)
# A job of a workflow that has ended, waits for others, or was retried, and was not looked at since. (An
# index is found by the same words.)
_UNSEEN = (
    "COALESCE(seen, '') <> status AND (seen = 'retried'"
    " OR status IN ('completed', 'failed', 'cancelled') OR (status = 'blocked' AND limit_key IS NULL))"
)
_NAME = re.compile(r"^-- name: ([a-z_]+)$", re.MULTILINE)
_OPTIONAL = re.compile(r"^(.*?)\s*--\? (\w+)$")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")


@dataclass(frozen=True, slots=True)
class Command:
    """One SQL command, in the spellings of the drivers."""

    sql: str  #: `:name`, as sqlite3 takes it
    names: tuple[str, ...]  #: its parameters, in the order of their first use
    numbered: str  #: `?1`, as sqlite3 takes it from tuples, which is quicker for a batch
    pyformat: str  #: `%(name)s`, as psycopg takes it
    dollar: str  #: `$1`, as asyncpg takes it
    returns_rows: bool


class Statements:
    """The statements of one engine. Unknown names are refused at the first use."""

    def __init__(self, package: str, words: Mapping[str, str]) -> None:
        self._blocks = _load(package)
        self._words = words
        self._commands: dict[tuple[str, frozenset[str]], tuple[Command, ...]] = {}

    def __iter__(self) -> Iterable[str]:
        return iter(self._blocks)

    def commands(self, name: str, options: frozenset[str] = frozenset()) -> tuple[Command, ...]:
        """The commands of a statement, with the optional lines that were asked for. A name with a
        space in it is no name, but a caller's own SQL."""
        known = self._commands.get((name, options))
        if known is None:
            known = self._commands[name, options] = self._build(name, options)
        return known

    def _build(self, name: str, options: frozenset[str]) -> tuple[Command, ...]:
        if " " in name:
            return (parse(name),)
        if name not in self._blocks:
            raise HoldfastError(f"no statement named {name!r} in statements.sql")
        lines = []
        for line in fill(self._blocks[name], self._words).splitlines():
            if match := _OPTIONAL.match(line):
                if match[2] in options:
                    lines.append(match[1])
            elif not line.lstrip().startswith("--"):
                lines.append(line)
        return tuple(parse(sql) for sql in "\n".join(lines).split(";") if sql.strip())


@cache
def _load(package: str) -> Mapping[str, str]:
    """The blocks of an engine, as they are written."""
    folder = resources.files(package)
    text = "".join(folder.joinpath(name).read_text("utf-8") for name in FILES)
    parts = _NAME.split(text)[1:]
    names = parts[::2]
    if doubled := {name for name in names if names.count(name) > 1}:
        raise HoldfastError(f"statements named twice: {sorted(doubled)}")
    return MappingProxyType(dict(zip(names, parts[1::2], strict=True)))  # all engines share it


@lru_cache(1024)  # there are some hundred, and each in the words of each schema
def parse(sql: str) -> Command:
    """A command from its text."""
    sql = sql.strip()
    names = tuple(dict.fromkeys(_PARAMETER.findall(sql)))
    numbers = {name: f"${number}" for number, name in enumerate(names, 1)}
    return Command(
        sql=sql,
        names=names,
        numbered=_PARAMETER.sub(lambda match: f"?{numbers[match[1]][1:]}", sql),
        pyformat=_PARAMETER.sub(r"%(\1)s", sql.replace("%", "%%")),
        dollar=_PARAMETER.sub(lambda match: numbers[match[1]], sql),
        returns_rows=sql.lstrip().upper().startswith(("SELECT", "WITH RECURSIVE", "PRAGMA"))
        or re.search(r"^\s*RETURNING\b", sql, re.MULTILINE) is not None
        or (
            sql.upper().startswith("WITH") and re.search(r"^SELECT", sql, re.MULTILINE) is not None
        ),
    )


def fill(text: str, words: Mapping[str, str]) -> str:
    """Put the lists of statuses and the engine's own words (its schema, its clock) into SQL text."""
    known = {**_status_lists(), "unseen": _UNSEEN, **words}
    return re.sub(r"\{([a-z_]+)\}", lambda match: known[match[1]], text)


def qualified(columns: str, table: str = "jobs") -> str:
    """A list of columns, each with its table's name."""
    return ", ".join(f"{table}.{column.strip()}" for column in columns.split(","))


@cache
def _status_lists() -> Mapping[str, str]:
    sets: Mapping[str, Iterable[Status]] = {
        "every_status": Status,
        "finished": FINISHED,
        "unfinished": UNFINISHED,
        "waiting": WAITING,
        **{verb: transition.sources for verb, transition in TRANSITIONS.items()},
    }
    return {
        word: ", ".join(f"'{status}'" for status in Status if status in set(statuses))
        for word, statuses in sets.items()
    }
