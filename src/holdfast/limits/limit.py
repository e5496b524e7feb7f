"""Limits: how many jobs may run at once, and how many may start in a period. Values and decisions only.

A limit without keys holds for a whole task (or for all tasks that share its name, or for a queue):
claims take no more jobs than that, and the others stay pending. A limit with keys (`per=`) holds for
each key: jobs of an exhausted key are parked, so that claims need not walk past them.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, NamedTuple

from pydantic_core import from_json

from holdfast.core import validation
from holdfast.core.duration import seconds
from holdfast.errors import InvalidInput

MICRO = 1_000_000
QUEUE = "queue:"  #: in front of a queue's name: the limit of that queue
_SLICES = 100  # of a period: the precision of the stored starts
_LONGEST_KEY = 200
_RATE = re.compile(r"\s*(\d+)\s*/\s*(.+?)\s*")


class Rate(NamedTuple):
    times: int
    period: float  #: seconds

    def __str__(self) -> str:
        unit = {1.0: "s", 60.0: "m", 3600.0: "h", 86400.0: "d"}.get(self.period)
        return f"{self.times}/{unit or f'{self.period:g}s'}"


def parse_rate(value: object) -> Rate:
    """Return the rate that a text such as "100/m", "5/s" or "1000/30m" names. Raises InvalidInput."""
    match = _RATE.fullmatch(value) if isinstance(value, str) else None
    if match is not None:
        unit = f"1{match[2]}" if match[2].isalpha() else match[2]
        try:
            rate = Rate(int(match[1]), seconds(unit))
        except InvalidInput:
            rate = Rate(0, 0.0)
        if 0 < rate.times <= MICRO and 0.1 <= rate.period <= 366 * 86400:
            return rate
    raise InvalidInput(
        f"rate={value!r}: write a count and a time, e.g. '100/m', '5/s' or '1000/30m'; the count is "
        "from 1 to 1000000, the time from 0.1 s to a year"
    )


Per = str | Sequence[str] | Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Limit:
    """`Limit(2, per="tenant_id")`, `Limit(4, name="tmdb-api")`, `Limit(rate="100/m", per="host")`."""

    concurrency: int | None = None  #: how many jobs may run at once
    _: KW_ONLY
    rate: str | None = None  #: how many may start in any period: "100/m"
    per: Per | None = None  #: the key: arguments, or a function of them
    name: str | None = None  #: tasks with the same name share the limit
    fair: bool = False  #: the keys take turns

    def __post_init__(self) -> None:
        if self.concurrency is not None:
            validation.integer(self.concurrency, "concurrency", 1, 2**31 - 1)
        if self.rate is not None:
            parse_rate(self.rate)
        if self.name is not None and validation.name(self.name, "limit name").startswith(QUEUE):
            raise InvalidInput(
                f"limit name={self.name!r}: {QUEUE!r} is for the limits of queues, which "
                "app.queues.limit() sets"
            )
        if self.fair and self.per is None:
            raise InvalidInput("Limit(fair=True) needs per=: which jobs take turns?")
        if self.concurrency is None and self.rate is None and not self.fair:
            raise InvalidInput("Limit(): give a concurrency, a rate='100/m', or both")


class Declared(NamedTuple):
    """A limit of the code, as its row stores it."""

    name: str
    concurrency: int | None
    rate: Rate | None
    keyed: bool
    fair: bool
    tasks: tuple[str, ...]


KeyOf = Callable[[str], str]  #: from payload to key; what it raises fails the job


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The limits of one task."""

    declared: tuple[Declared, ...]
    whole: tuple[str, ...] = ()  #: names of limits without a key
    slots: str | None = None  #: the one of them with a concurrency
    keyed: str | None = None
    key_of: KeyOf | None = None
    calls_function: bool = False  #: key_of calls a function of the application
    fair: bool = False


def make_rule(
    task: str, limits: Iterable[Limit], arguments: Sequence[str], decode: Callable[[str], Any]
) -> Rule | None:
    """Return the rule for the limits that a task was given, if any. `arguments`: those of its
    handler."""
    whole = [limit for limit in limits if limit.per is None]
    keyed = [limit for limit in limits if limit.per is not None]
    counting = [limit for limit in whole if limit.concurrency is not None]
    if len(keyed) > 1 or len(counting) > 1 or len(whole) > 2:
        raise InvalidInput(
            f"task {task!r}: at most one limit with per=, one concurrency without it, and one rate; "
            "Limit(2, rate='10/s', per='tenant_id') is one limit"
        )
    if not whole and not keyed:
        return None
    declared = [_declared(task, limit) for limit in whole]
    if len({row.name for row in declared}) < len(declared):
        first, second = declared
        both = first.concurrency or second.concurrency, first.rate or second.rate
        declared = [first._replace(concurrency=both[0], rate=both[1])]
    rule = Rule(
        declared=tuple(declared),
        whole=tuple(row.name for row in declared),
        slots=next((row.name for row in declared if row.concurrency is not None), None),
    )
    if not keyed:
        return rule
    [limit] = keyed
    row = _declared(task, limit)
    return replace(
        rule,
        declared=(*declared, row),
        keyed=row.name,
        key_of=_key_of(task, row.name, limit.per, arguments, decode),
        calls_function=callable(limit.per),
        fair=limit.fair,
    )


def check_shared(rule: Rule | None, others: Iterable[Rule | None]) -> None:
    """Raise InvalidInput unless tasks that share a limit give it the same numbers."""
    known = {row.name: row for other in others if other for row in other.declared}
    for row in rule.declared if rule else ():
        before = known.get(row.name)
        if before is not None and before[1:5] != row[1:5]:
            raise InvalidInput(
                f"the limit {row.name!r} of task {row.tasks[0]!r} differs from that of task "
                f"{before.tasks[0]!r}: what shares a name must be the same"
            )


class UnreadableArguments(Exception):
    """The payload does not fit the task's code. The run of the job handles this, not the limit."""


def _declared(task: str, limit: Limit) -> Declared:
    name = limit.name
    if name is None:
        name = task if limit.per is None else f"{task}/{_words(limit.per)}"
    rate = None if limit.rate is None else parse_rate(limit.rate)
    return Declared(name, limit.concurrency, rate, limit.per is not None, limit.fair, (task,))


def _words(per: Per) -> str:
    if callable(per):
        return re.sub(r"\W+", "", getattr(per, "__name__", "")) or "key"
    return per if isinstance(per, str) else ".".join(per)


def _key_of(
    task: str, name: str, per: Per | None, arguments: Sequence[str], decode: Callable[[str], Any]
) -> KeyOf:
    if callable(per):
        function = per

        def by_function(payload: str) -> str:
            try:
                arguments = decode(payload)
            except Exception as problem:  # whatever a validator of the application raises
                raise UnreadableArguments from problem
            return _key(name, function(**arguments))

        return by_function
    wanted = (per,) if isinstance(per, str) else tuple(per or ())
    if not wanted or not set(wanted) <= set(arguments):
        raise InvalidInput(
            f"task {task!r}: per={per!r}: name its arguments ({', '.join(arguments) or 'none'}), or "
            "give a function of them"
        )

    def by_arguments(payload: str) -> str:
        given = from_json(payload)
        values = [given.get(word) for word in wanted]
        return _key(name, values[0] if len(values) == 1 else values)

    return by_arguments


def _key(name: str, value: Any) -> str:
    if type(value) is str or type(value) is int:  # mostly, and json.dumps takes its time
        text = str(value)
    else:
        text = json.dumps(value, sort_keys=True, default=str)
    return f"{name}={text.replace(chr(0), '')}"[:_LONGEST_KEY]


# Rates: starts are counted by slices of time. A slice counts until one period after its end, so that no
# period, wherever it begins, has more starts than the rate allows.

Starts = list[list[int]]  #: [a slice's begin in microseconds, starts in it], the oldest first


class Tokens(NamedTuple):
    left: int
    wait: float  #: seconds until there is one again; 0 while some are left
    starts: Starts


def tokens(rate: Rate, starts: Starts, now: int) -> Tokens:
    """Return how many jobs may start at `now`, in microseconds of the database's clock."""
    period = round(rate.period * MICRO)
    kept = [
        [min(at, now), count] for at, count in starts if min(at, now) + period > now - _slice(rate)
    ]
    used = sum(count for _, count in kept)
    if used < rate.times or not kept:
        return Tokens(max(0, rate.times - used), 0.0, kept)
    over, back = used - rate.times + 1, kept[0][0]
    for at, count in kept:
        back, over = at, over - count
        if over <= 0:
            break
    return Tokens(0, max(0, back + period + _slice(rate) - now) / MICRO, kept)


def spent(rate: Rate, starts: Starts, now: int, count: int) -> Starts:
    """Return the starts with `count` more at `now`."""
    begin = now - now % _slice(rate)
    if starts and starts[-1][0] >= begin:
        return [*starts[:-1], [starts[-1][0], starts[-1][1] + count]]
    return [*starts, [begin, count]]


def _slice(rate: Rate) -> int:
    return max(1000, round(rate.period * MICRO) // _SLICES)
