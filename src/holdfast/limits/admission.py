"""Decides which candidates of a claim may run under their limits, and which are parked. The claim that
calls it has locked the limits; nothing is written here.

Keys that take turns (`fair=True`): of a key's jobs that wait, one is pending, "in line" in the order of
running, and has the key's turn; the others are parked. The key's row stores the id of the job with the
turn. So a key with waiting jobs and free capacity always has exactly one job in line, except while its
rate has no capacity: then the row stores when it has some again. Three rules keep it so:

- A claim parks the jobs of a key. Only the job with the turn stays in line, while the key has capacity.
- When the job with the turn starts and the key has capacity left, the key's next job joins the end of
  the line.
- When a job of the key ends, or its rate has capacity again, the key's next job joins the line, unless
  a pending job has the turn. A job that was cancelled, deleted or moved no longer has the turn.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from holdfast.limits.limit import Rate, Rule, Starts, spent, tokens

T = TypeVar("T")
_MANY = 2**31


class Place(NamedTuple):
    """The fields of a pending job that decide its place in line."""

    id: str
    queue: str
    priority: int


@dataclass(slots=True, kw_only=True)
class Capacity:
    """The free capacity of one key, while a claim goes through its candidates."""

    key: str
    most: int | None  #: how many may run; None: any number
    running: int
    rate: Rate | None
    starts: Starts
    now: int  #: microseconds of the database's clock
    in_line: Place | None  #: if keys take turns: the job that has this key's turn
    started: int = 0  #: jobs that this claim starts
    left: int = field(init=False)  #: how many more may start now
    stepped_back: bool = field(init=False)  #: the clock was set back; `starts` count as of now then
    _tokens: int = field(init=False, default=_MANY)

    def __post_init__(self) -> None:
        self.stepped_back = any(at > self.now for at, _ in self.starts)
        if self.rate is not None:
            self._tokens, _, self.starts = tokens(self.rate, self.starts, self.now)
        slots = _MANY if self.most is None else self.most - self.running
        self.left = max(0, min(slots, self._tokens))

    @property
    def is_full(self) -> bool:
        """Return whether no more jobs may run until a running one ends."""
        return self.most is not None and self.most - self.running <= self.started

    @property
    def waits_for_rate(self) -> bool:
        """Return whether no more jobs may start until some time has passed."""
        return self._tokens <= self.started and not self.is_full

    def until_next(self) -> float:
        """Return the seconds until the rate allows another start."""
        return 0.0 if self.rate is None else tokens(self.rate, self.after(), self.now).wait

    def begun(self, at: int) -> None:
        """Set the time at which the jobs of this claim started, a little after jobs were counted."""
        self.now = max(self.now, at)

    def take(self) -> None:
        """Use up the capacity for one job."""
        self.started += 1
        self.left -= 1

    def after(self) -> Starts:
        """Return the starts to store, including those of this claim."""
        if self.rate is None or not self.started:
            return self.starts
        return spent(self.rate, self.starts, self.now, self.started)


class Candidate(NamedTuple, Generic[T]):
    row: T
    rule: Rule | None
    key: str | None  #: of its limit with a key
    place: Place | None = None  #: None: it is in no line and needs no turn


@dataclass(frozen=True, slots=True)
class Admitted(Generic[T]):
    take: list[Candidate[T]] = field(default_factory=list)
    park: list[Candidate[T]] = field(default_factory=list)
    turns: dict[str, str | None] = field(
        default_factory=dict
    )  #: by key: the job that gets its turn
    turned: list[str] = field(default_factory=list)  #: keys whose next job may join the line


def admit(
    candidates: Iterable[Candidate[T]],
    free: int,
    whole: Mapping[str, Capacity],
    queue: Capacity | None,
    keyed: Mapping[str, Capacity],
) -> Admitted[T]:
    """Decide in the order of the candidates which run and which are parked. A candidate stays pending
    if its key could not be locked, or if a limit without keys has no capacity."""
    result: Admitted[T] = Admitted()
    seen: set[str] = set()
    for candidate in candidates:
        rule, key = candidate.rule, candidate.key
        if rule is None and queue is None:  # jobs without limits skip the rest
            if len(result.take) < free:
                result.take.append(candidate)
            continue
        capacity = None if key is None else keyed.get(key)
        if key is not None and capacity is None:
            continue
        place = candidate.place if rule is not None and rule.fair else None
        if capacity is not None:
            if place is not None and (capacity.key in seen or not _may_go(capacity.in_line, place)):
                if not _has_turn(capacity, place):
                    result.park.append(candidate)
                continue
            seen.add(capacity.key)
            if not capacity.left:
                result.park.append(candidate)
                if place is not None and _has_turn(capacity, place):
                    result.turns[capacity.key] = None
                continue
        capacities = _capacities(rule, whole, queue, capacity)
        if len(result.take) >= free or capacities is None:
            if place is not None and capacity is not None and capacity.in_line is None:
                result.turns[capacity.key] = place.id
            continue
        for other in capacities:
            other.take()
        result.take.append(candidate)
        if place is not None and capacity is not None:
            if _has_turn(capacity, place):
                result.turns[capacity.key] = None
            if capacity.left:
                result.turned.append(capacity.key)
    return result


def _has_turn(capacity: Capacity, place: Place) -> bool:
    return capacity.in_line is not None and capacity.in_line.id == place.id


def _may_go(turn: Place | None, place: Place) -> bool:
    """Return whether a job may run although its keys take turns. It need not wait for the turn of a job
    in another queue, which may be paused or have no worker, nor of a job with a lower priority."""
    if turn is None or turn.id == place.id:
        return True
    return turn.queue != place.queue or place.priority > turn.priority


def _capacities(
    rule: Rule | None, whole: Mapping[str, Capacity], queue: Capacity | None, keyed: Capacity | None
) -> list[Capacity] | None:
    """Return the capacities that a candidate uses; None if one of them is exhausted or not locked."""
    capacities = [] if keyed is None else [keyed]
    if queue is not None:
        capacities.append(queue)
    for name in rule.whole if rule else ():
        if name not in whole:
            return None
        capacities.append(whole[name])
    for capacity in capacities:
        if not capacity.left:
            return None
    return capacities
