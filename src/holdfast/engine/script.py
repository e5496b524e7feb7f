"""Scripts: generators that yield the next SQL statement to run, by its name, and receive its rows.

A script does no I/O and names no driver, so one text serves both engines, our own connections and the
caller's open transaction, sync and async. The drivers' side is one function: `perform(run)`.

The SQL statements are in files beside the scripts that run them, one file for each engine. Both files
have the same names in the same order; a statement that one engine does not need is only in the other's
file, whose header says so (tests/plans/test_statements.py has the list).

A statement begins with `-- name: x`, has a purpose line, and may hold several commands, run in order.
Parameters are `:name`. `{schema}` and the lists of statuses of `job.TRANSITIONS` (`{cancel}` stands for
the statuses that cancel starts from) are filled in at the first use. A line that ends in `--? word` is
an option: it is part of the statement only if the caller asks for that word.

SQLite: a statement given a batch runs once for each member, or if it has `:ids`, once for all members
with the same other values. Times are microseconds; `{now}` is the time of the call. Every write runs
after BEGIN IMMEDIATE, so no row changes between two statements. INDEXED BY names the index, because the
application may have run ANALYZE while the tables were small.

PostgreSQL: a batch is one JSON parameter, `:batch`. `{now}` is the server's time of the statement.
JSON, ids and times are sent as text (`:ids::text::json`), so that the codecs of a caller's connection
do not matter. Written for READ COMMITTED: a row that decides something is locked first, or checked by
the UPDATE itself. Rows of jobs are locked FOR NO KEY UPDATE, so that a row of attempts or logs, which
refers to the job, can be written meanwhile.
"""

import re
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from holdfast.errors import HoldfastError
from holdfast.jobs.job import FINISHED, TRANSITIONS, UNFINISHED, WAITING, Status

FILES = (  #: beside the scripts that run them: jobs/claim.sqlite.sql and jobs/claim.postgres.sql, ...
    *(
        "jobs/commands",
        "jobs/claim",
        "jobs/finish",
        "jobs/read",
        "jobs/pruning",
        "jobs/log_lines",
    ),
    *("schedules/scripts", "schedules/clock_repair", "limits/scripts", "workflows/scripts"),
    *("events/outbox", "monitoring/rollups", "jobs/rescue", "engine/access"),
)
# A job of a workflow that has ended, waits for others, or was retried, and was not followed up since.
# (The planner finds the index only if the condition is written in the same words.)
_UNSEEN = (
    "COALESCE(seen, '') <> status AND (seen = 'retried'"
    " OR status IN ('completed', 'failed', 'cancelled') OR (status = 'blocked' AND limit_key IS NULL))"
)
_NAME = re.compile(r"^-- name: ([a-z_]+)$", re.MULTILINE)
_OPTIONAL = re.compile(r"^(.*?)\s*--\? (\w+)$")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)\b")

T = TypeVar("T")
Y = TypeVar("Y")  #: what a generator yields
S = TypeVar("S")  #: what it is sent
Row = tuple[Any, ...]


class Run(NamedTuple):
    """One statement to run, by name."""

    name: str
    params: Mapping[str, Any]
    batch: Sequence[Mapping[str, Any]] | None = None  #: members, for a statement that takes many
    options: frozenset[str] = frozenset()  #: its optional lines
    tell: str = ""  #: for a batch: return this field of the members that changed a row


class Reply(NamedTuple):
    rows: list[Row]
    changed: int  #: rows that the statement changed, if the driver tells


Script = Generator[Run, Reply, T]


def drive(script: Generator[Y, S, T], perform: Callable[[Y], S]) -> T:
    """Run a script to its end. If a statement fails, the script receives the error, and may catch
    it."""
    try:
        run = next(script)
        while True:
            try:
                reply = perform(run)
            except BaseException as problem:
                run = script.throw(problem)
            else:
                run = script.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result


async def adrive(script: Generator[Y, S, T], perform: Callable[[Y], Awaitable[S]]) -> T:
    """Do the same on an asynchronous connection."""
    try:
        run = next(script)
        while True:
            try:
                reply = await perform(run)
            except BaseException as problem:
                run = script.throw(problem)
            else:
                run = script.send(reply)
    except StopIteration as end:
        result: T = end.value
        return result


@dataclass(frozen=True, slots=True)
class Command:
    """One SQL command, with its parameters written as each driver takes them."""

    sql: str  #: `:name`, as sqlite3 takes it
    names: tuple[str, ...]  #: its parameters, in the order of their first use
    numbered: str  #: `?1`, as sqlite3 takes it from tuples, which is quicker for a batch
    pyformat: str  #: `%(name)s`, as psycopg takes it
    dollar: str  #: `$1`, as asyncpg takes it
    returns_rows: bool


class Statements:
    """The statements of one engine. Unknown names are refused at the first use."""

    def __init__(self, dialect: str, words: Mapping[str, str]) -> None:
        """`dialect`: "sqlite" or "postgres"."""
        self._blocks = _load(dialect)
        self._words = words
        self._commands: dict[tuple[str, frozenset[str]], tuple[Command, ...]] = {}

    def __iter__(self) -> Iterable[str]:
        return iter(self._blocks)

    def commands(self, name: str, options: frozenset[str] = frozenset()) -> tuple[Command, ...]:
        """Return the commands of a statement, with the optional lines of `options`. A name with a space
        in it is a caller's own SQL."""
        known = self._commands.get((name, options))
        if known is None:
            known = self._commands[name, options] = self._build(name, options)
        return known

    def _build(self, name: str, options: frozenset[str]) -> tuple[Command, ...]:
        if " " in name:
            return (parse(name),)
        if name not in self._blocks:
            raise HoldfastError(f"no statement is named {name!r}")
        lines = []
        for line in fill(self._blocks[name], self._words).splitlines():
            if match := _OPTIONAL.match(line):
                if match[2] in options:
                    lines.append(match[1])
            elif not line.lstrip().startswith("--"):
                lines.append(line)
        return tuple(parse(sql) for sql in "\n".join(lines).split(";") if sql.strip())


@cache
def _load(dialect: str) -> Mapping[str, str]:
    """Return the statements of an engine's SQL files by name, as they are written there."""
    folder = resources.files("holdfast")
    text = "".join(folder.joinpath(f"{one}.{dialect}.sql").read_text("utf-8") for one in FILES)
    parts = _NAME.split(text)[1:]
    names = parts[::2]
    if doubled := {name for name in names if names.count(name) > 1}:
        raise HoldfastError(f"statements named twice: {sorted(doubled)}")
    return MappingProxyType(dict(zip(names, parts[1::2], strict=True)))  # all engines share it


@lru_cache(1024)  # there are some hundred commands, and each again for each schema
def parse(sql: str) -> Command:
    """Return the command that an SQL text is."""
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
    """Return a list of columns in which each has its table's name."""
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
