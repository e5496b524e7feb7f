"""Rates, ratios and rows. A shared machine changes its speed from second to second, so two rates
are compared only when they were measured side by side."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

from bench.job_store import Databases

SomeDatabases = TypeVar("SomeDatabases", bound=Databases, contravariant=True)

Slice = Callable[
    [float], float
]  #: works for about that many seconds and returns the rate per second


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to measure. Many short slices beat few long ones, since noise comes in bursts."""

    pairs: int
    seconds: float  #: of one slice
    jobs: int  #: that go through a table before it counts as used
    snapshot: float  #: seconds that a snapshot is held
    processes: float  #: seconds that processes write concurrently
    rounds: int  #: that every worker goes through
    backlog: int  #: jobs that a worker drains at a time
    single: int  #: jobs that come to an idle worker, one by one
    idle: float  #: seconds that a worker is idle
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
    """A bound of the ratio, or of Holdfast's own figure."""

    kind: Literal["at least", "at most"]
    bound: float
    of: Literal["ratio", "holdfast"] = "ratio"

    def met(self, value: float) -> bool:
        return value >= self.bound if self.kind == "at least" else value <= self.bound

    def __str__(self) -> str:
        sign = "≥" if self.kind == "at least" else "≤"
        return f"{'Holdfast ' if self.of == 'holdfast' else ''}{sign} {self.bound:.2f}"


def at_least(bound: float) -> Goal:
    return Goal("at least", bound)


def at_most(bound: float, of: Literal["ratio", "holdfast"] = "ratio") -> Goal:
    return Goal("at most", bound, of)


class Row(NamedTuple):
    """One line of the table."""

    case: str
    base: float | None  #: what it is measured against, mostly raw SQL
    holdfast: float | None
    ratio: float | None
    goal: Goal | None = None  #: None: for information
    note: str = ""  #: why there is no base

    @property
    def passed(self) -> bool | None:
        if self.goal is None:
            return None
        judged = self.ratio if self.goal.of == "ratio" else self.holdfast
        return None if judged is None else self.goal.met(judged)


@dataclass(frozen=True, slots=True)
class Case(Generic[SomeDatabases]):
    """A case of the bench; `--only` selects it by its name."""

    name: str
    run: Callable[[SomeDatabases, Pace], list[Row]]


def stepwise(step: Callable[[], int], prepare: Callable[[], None] = lambda: None) -> Slice:
    """A slice made of steps, each of which returns its number of jobs. The time of `prepare` before
    each step (making arguments, filling the queue) does not count."""

    def run(seconds: float) -> float:
        done, busy = 0, 0.0
        while busy < seconds:
            prepare()
            begin = time.perf_counter()
            done += step()
            busy += time.perf_counter() - begin
        return done / busy

    return run


def compare(case: str, base: Slice, holdfast: Slice, pace: Pace, goal: Goal | None = None) -> Row:
    """Measure both in turns; the ratio is the median of those of neighbours. The order alternates,
    since a machine that slows down steadily would favour one of them."""
    base(pace.seconds / 2)
    holdfast(pace.seconds / 2)
    pairs: list[tuple[float, float]] = []
    for number in range(pace.pairs):
        if number % 2:
            second = holdfast(pace.seconds)
            pairs.append((base(pace.seconds), second))
        else:
            pairs.append((base(pace.seconds), holdfast(pace.seconds)))
    return Row(
        case,
        statistics.median(pair[0] for pair in pairs),
        statistics.median(pair[1] for pair in pairs),
        statistics.median(pair[1] / pair[0] for pair in pairs),
        goal,
    )
