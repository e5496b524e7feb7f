"""Limits: how many jobs may run at once, and how many may start in a while. Values and decisions only.

A limit without a key is room for a whole task (or for all that share its name, or for a queue): a
claim takes no more than that, and the others stay pending. One with a key (`per=`) is room for each
key: jobs of a key that is full are parked, so that nobody has to walk past them.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic_core import from_json

from holdfast import names
from holdfast.duration import seconds
from holdfast.errors import InvalidInput

MICRO = 1_000_000
QUEUE = "queue:"  #: in front of a queue's name: the limit of that queue
_SLICES = 100  # of a period: as exactly is it remembered when jobs started
_LONGEST_KEY = 200
_RATE = re.compile(r"\s*(\d+)\s*/\s*(.+?)\s*")

T = TypeVar("T")


class Rate(NamedTuple):
    times: int
    period: float  #: seconds

    def __str__(self) -> str:
        unit = {1.0: "s", 60.0: "m", 3600.0: "h", 86400.0: "d"}.get(self.period)
        return f"{self.times}/{unit or f'{self.period:g}s'}"


def parse_rate(value: object, what: str = "rate") -> Rate:
    """From "100/m", "5/s", "1000/30m"."""
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
        f"{what}={value!r}: write a count and a time, e.g. '100/m', '5/s' or '1000/30m'; the count is "
        "from 1 to 1000000, the time from 0.1 s to a year"
    )


Per = str | Sequence[str] | Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Limit:
    """`Limit(2, per="tenant_id")`, `Limit(4, name="tmdb-api")`, `Limit(rate="100/m", per="host")`."""

    concurrency: int | None = None  #: as many may run at once
    rate: str | None = field(default=None, kw_only=True)  #: as many may start in any such time
    per: Per | None = field(default=None, kw_only=True)  #: arguments, or a function of them
    name: str | None = field(default=None, kw_only=True)  #: tasks that give the same one share it
    fair: bool = field(default=False, kw_only=True)  #: the keys take turns

    def __post_init__(self) -> None:
        if self.concurrency is not None:
            names.integer(self.concurrency, "concurrency", 1, 2**31 - 1)
        if self.rate is not None:
            parse_rate(self.rate)
        if self.name is not None and names.name(self.name, "limit name").startswith(QUEUE):
            raise InvalidInput(
                f"limit name={self.name!r}: {QUEUE!r} is for the limits of queues, which "
                "app.queues.limit() sets"
            )
        if self.fair and self.per is None:
            raise InvalidInput("Limit(fair=True) needs per=: whose jobs shall take turns?")
        if self.concurrency is None and self.rate is None and not self.fair:
            raise InvalidInput("Limit(): give a concurrency, a rate='100/m', or both")


class Declared(NamedTuple):
    """A limit as the code has it: a row."""

    name: str
    concurrency: int | None
    rate: Rate | None
    keyed: bool
    fair: bool
    tasks: tuple[str, ...]


KeyOf = Callable[[str], str]  #: a payload's key; whatever it raises is the job's own failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What limits the jobs of one task."""

    declared: tuple[Declared, ...]
    whole: tuple[str, ...] = ()  #: names of limits without a key
    slots: str | None = None  #: the one of them that counts what runs
    keyed: str | None = None
    key_of: KeyOf | None = None
    fair: bool = False


def make_rule(
    task: str, limits: Iterable[Limit], arguments: Sequence[str], decode: Callable[[str], Any]
) -> Rule | None:
    """From what a task is given; `arguments` are those that its handler has."""
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
    if len(declared) == 2 and declared[0].name == declared[1].name:
        first, second = declared
        declared = [
            first._replace(
                concurrency=first.concurrency or second.concurrency, rate=first.rate or second.rate
            )
        ]
    named = tuple(row.name for row in declared)
    slots = next((row.name for row in declared if row.concurrency is not None), None)
    if not keyed:
        return Rule(declared=tuple(declared), whole=named, slots=slots)
    [limit] = keyed
    row = _declared(task, limit)
    return Rule(
        declared=(*declared, row),
        whole=named,
        slots=slots,
        keyed=row.name,
        key_of=_key_of(task, row.name, limit.per, arguments, decode),
        fair=limit.fair,
    )


def check_shared(rule: Rule | None, others: Iterable[Rule | None]) -> None:
    """Tasks that share a limit must agree about it."""
    known = {row.name: row for other in others if other for row in other.declared}
    for row in rule.declared if rule else ():
        before = known.get(row.name)
        if before is not None and before[1:5] != row[1:5]:
            raise InvalidInput(
                f"the limit {row.name!r} of task {row.tasks[0]!r} differs from that of task "
                f"{before.tasks[0]!r}: what shares a name must be the same"
            )


def _declared(task: str, limit: Limit) -> Declared:
    name = limit.name
    if name is None:
        name = task if limit.per is None else f"{task}/{_words(limit.per)}"
    rate = None if limit.rate is None else parse_rate(limit.rate)
    return Declared(name, limit.concurrency, rate, limit.per is not None, limit.fair, (task,))


def _words(per: Per | None) -> str:
    if callable(per):
        return re.sub(r"\W+", "", getattr(per, "__name__", "")) or "key"
    return per if isinstance(per, str) else ".".join(per or ())


def _key_of(
    task: str, name: str, per: Per | None, arguments: Sequence[str], decode: Callable[[str], Any]
) -> KeyOf:
    if callable(per):
        function = per

        def by_function(payload: str) -> str:
            return _key(name, function(**decode(payload)))

        return by_function
    wanted = (per,) if isinstance(per, str) else tuple(per or ())
    if not wanted or not set(wanted) <= set(arguments):
        raise InvalidInput(
            f"task {task!r}: per={per!r}: name its arguments ({', '.join(arguments) or 'none'}), or "
            "give a function of them"
        )

    def by_argument(payload: str) -> str:
        return _key(name, from_json(payload).get(wanted[0]))

    def by_arguments(payload: str) -> str:
        given = from_json(payload)
        return _key(name, [given.get(word) for word in wanted])

    return by_argument if len(wanted) == 1 else by_arguments


def _key(name: str, value: Any) -> str:
    if type(value) is str or type(value) is int:  # mostly, and json.dumps takes its time
        text = str(value)
    else:
        text = json.dumps(value, sort_keys=True, default=str)
    return f"{name}={text.replace(chr(0), '')}"[:_LONGEST_KEY]


# Rates: a window that slides in slices. Each start is remembered until a whole period after the end of
# its slice, so that no window of that length ever holds more than the rate allows.

_MANY = 2**31
Starts = list[list[int]]  #: [a slice's begin in microseconds, starts in it], the oldest first


class Tokens(NamedTuple):
    left: int
    wait: float  #: seconds until one comes back; 0 while some are left
    starts: Starts


def tokens(rate: Rate, starts: Starts, now: int) -> Tokens:
    """What may start now, in microseconds of the database's clock."""
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
    """The same after so many more have started."""
    begin = now - now % _slice(rate)
    if starts and starts[-1][0] >= begin:
        return [*starts[:-1], [starts[-1][0], starts[-1][1] + count]]
    return [*starts, [begin, count]]


def _slice(rate: Rate) -> int:
    return max(1000, round(rate.period * MICRO) // _SLICES)


class Room:
    """What one key has left, while a claim goes through its candidates."""

    __slots__ = (
        "_tokens",
        "in_line",
        "key",
        "left",
        "most",
        "now",
        "rate",
        "running",
        "slots",
        "started",
        "starts",
    )

    def __init__(
        self,
        key: str,
        slots: int | None,
        rate: Rate | None,
        starts: Starts,
        now: int,
        *,
        in_line: bool = False,
    ) -> None:
        """`slots`: how many more may run; None: any number."""
        found = None if rate is None else tokens(rate, starts, now)
        self.key = key
        self.slots = slots
        self.rate = rate
        self.now = now
        self.in_line = in_line  #: where keys take turns: one of its jobs is in line
        self.started = 0
        self.most: int | None = slots
        self.running = 0
        self.starts = starts if found is None else found.starts
        self._tokens = _MANY if found is None else found.left
        self.left = max(0, min(_MANY if slots is None else slots, self._tokens))  #: may start now

    @property
    def is_full(self) -> bool:
        """An end of one that runs will make room."""
        return self.slots is not None and self.slots <= self.started

    @property
    def waits_for_rate(self) -> bool:
        """Nothing but time will make room."""
        return self._tokens <= self.started and not self.is_full

    def until_next(self) -> float:
        """Seconds until one more may start, as far as the rate is concerned."""
        return 0.0 if self.rate is None else tokens(self.rate, self.after(), self.now).wait

    def take(self) -> None:
        self.started += 1
        self.left -= 1

    def after(self) -> Starts:
        """The starts to remember."""
        if self.rate is None or not self.started:
            return self.starts
        return spent(self.rate, self.starts, self.now, self.started)


class Candidate(NamedTuple, Generic[T]):
    row: T
    rule: Rule | None
    key: str | None  #: of its limit with a key
    has_turn: bool = False  #: it was parked before: where keys take turns, it is now its key's


class Admitted(NamedTuple, Generic[T]):
    take: list[Candidate[T]]
    park: list[Candidate[T]]
    out: list[str]  #: where keys take turns: those that have no job in line any more
    turned: list[str]  #: those of which the next job may stand in line


def admit(
    candidates: Iterable[Candidate[T]],
    free: int,
    whole: Mapping[str, Room],
    queue: Room | None,
    keyed: Mapping[str, Room],
) -> Admitted[T]:
    """Who runs, in their order, and who is parked. A candidate whose key nobody could look at, and one
    for whom a whole limit has no room, stays where it is.

    Where keys take turns, a key has one job in line. Others of it are parked as they come; the next one
    is put at the end of the line when that one is taken."""
    result: Admitted[T] = Admitted([], [], [], [])
    seen: set[str] = set()
    for candidate in candidates:
        rule, key = candidate.rule, candidate.key
        if rule is None and queue is None:  # the others must not pay for those with limits
            if len(result.take) < free:
                result.take.append(candidate)
            continue
        room = None if key is None else keyed.get(key)
        if key is not None and room is None:
            continue
        fair = rule is not None and rule.fair and room is not None
        if room is not None and key is not None:
            waits = fair and (key in seen or (room.in_line and not candidate.has_turn))
            seen.add(key)
            if waits or not room.left:
                result.park.append(candidate)
                if fair and candidate.has_turn:
                    result.out.append(key)
                continue
        rooms = _rooms(rule, whole, queue, room)
        if len(result.take) >= free or rooms is None:
            continue
        for other in rooms:
            other.take()
        result.take.append(candidate)
        if fair and room is not None and key is not None:
            result.out.append(key)
            if room.left:
                result.turned.append(key)
    return result


def _rooms(
    rule: Rule | None, whole: Mapping[str, Room], queue: Room | None, keyed: Room | None
) -> list[Room] | None:
    """Those that a candidate takes a place of; None if one has none left, or nobody could look at it:
    that is not taken for no limit."""
    rooms = [] if keyed is None else [keyed]
    if queue is not None:
        rooms.append(queue)
    for name in rule.whole if rule else ():
        if name not in whole:
            return None
        rooms.append(whole[name])
    for room in rooms:
        if not room.left:
            return None
    return rooms
