"""Rates, ratios and rows. A shared machine changes its speed from second to second, so two rates
are compared only when they were measured side by side."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

Slice = Callable[[float], float]  #: work for about so many seconds; the rate, per second


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to look. Many short slices beat few long ones: noise comes in bursts."""

    pairs: int
    seconds: float  #: of one slice
    jobs: int  #: that go through a table before it counts as used
    snapshot: float  #: seconds that a snapshot is held
    processes: float  #: seconds that processes write side by side
    rounds: int  #: that every worker goes through
    backlog: int  #: jobs that a worker drains in one go
    single: int  #: jobs that come to an idle worker, one by one
    idle: float  #: seconds that a worker has nothing to do
    lasting: int  #: jobs of one worker process


FULL = Pace(
    pairs=11,
    seconds=0.5,
    jobs=100_000,
    snapshot=60.0,
    processes=5.0,
    rounds=5,
    backlog=20_000,
    single=300,
    idle=20.0,
    lasting=200_000,
)
QUICK = Pace(
    pairs=5,
    seconds=0.2,
    jobs=20_000,
    snapshot=15.0,
    processes=2.0,
    rounds=2,
    backlog=5_000,
    single=100,
    idle=10.0,
    lasting=60_000,
)


@dataclass(frozen=True, slots=True)
class Goal:
    """What a ratio has to be, or our own figure."""

    kind: Literal["at least", "at most"]
    bound: float
    of: Literal["ratio", "ours"] = "ratio"

    def met(self, value: float) -> bool:
        return value >= self.bound if self.kind == "at least" else value <= self.bound

    def __str__(self) -> str:
        sign = "≥" if self.kind == "at least" else "≤"
        return f"{'ours ' if self.of == 'ours' else ''}{sign} {self.bound:.2f}"


def at_least(bound: float) -> Goal:
    return Goal("at least", bound)


def at_most(bound: float, of: Literal["ratio", "ours"] = "ratio") -> Goal:
    return Goal("at most", bound, of)


class Row(NamedTuple):
    """One line of the table."""

    case: str
    base: float | None  #: what it is measured against, mostly raw SQL
    ours: float | None
    ratio: float | None
    goal: Goal | None = None  #: None: for information
    note: str = ""  #: why there is no base

    @property
    def passed(self) -> bool | None:
        if self.goal is None:
            return None
        judged = self.ratio if self.goal.of == "ratio" else self.ours
        return None if judged is None else self.goal.met(judged)


def stepwise(step: Callable[[], int], prepare: Callable[[], None] = lambda: None) -> Slice:
    """A slice made of steps, each of which tells how many jobs it did. What `prepare` does before
    each (making arguments, filling the queue) is not counted."""

    def run(seconds: float) -> float:
        done, busy = 0, 0.0
        while busy < seconds:
            prepare()
            begin = time.perf_counter()
            done += step()
            busy += time.perf_counter() - begin
        return done / busy

    return run


def compare(case: str, base: Slice, ours: Slice, pace: Pace, goal: Goal | None = None) -> Row:
    """Both in turn, the median of the ratios of neighbours. Who begins changes, or a machine that
    slows down steadily would favour one of them."""
    base(pace.seconds / 2)
    ours(pace.seconds / 2)
    pairs: list[tuple[float, float]] = []
    for number in range(pace.pairs):
        if number % 2:
            second = ours(pace.seconds)
            pairs.append((base(pace.seconds), second))
        else:
            pairs.append((base(pace.seconds), ours(pace.seconds)))
    return Row(
        case,
        statistics.median(pair[0] for pair in pairs),
        statistics.median(pair[1] for pair in pairs),
        statistics.median(pair[1] / pair[0] for pair in pairs),
        goal,
    )
