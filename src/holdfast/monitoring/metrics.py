"""Figures of what was done: counts and times by the minute, small enough to be kept and added up.

Times go into histograms whose buckets grow by a fifth, so that those of many workers and minutes can
be added. A quantile of one is off by at most a tenth, or by half a millisecond if that is more.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from holdfast.jobs.job import Job
from holdfast.jobs.outcome import Finish, Outcome

MINUTE = timedelta(minutes=1)
KEPT = 86400.0  #: seconds that roll-ups are kept

FIRST = 0.001  # seconds: all that is shorter is in the first bucket
GROWTH = 1.2
LONGEST = 10 * 365 * 86400.0
ERROR = math.sqrt(GROWTH) - 1  #: a quantile may be off by this part of itself ...
LEAST_ERROR = FIRST / 2  #: ... or by so many seconds
_LOG = math.log(GROWTH)


class Histogram:
    """How often times of each size occurred, to a tenth of the size."""

    __slots__ = ("buckets",)

    def __init__(self, buckets: dict[int, int] | None = None) -> None:
        self.buckets: dict[int, int] = {} if buckets is None else buckets

    def add(self, seconds: float) -> None:
        bucket = 0
        if seconds > FIRST:
            bucket = math.ceil(math.log(min(seconds, LONGEST) / FIRST) / _LOG)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1

    def merge(self, other: "Histogram") -> None:
        mine = self.buckets
        for bucket, number in other.buckets.items():
            mine[bucket] = mine.get(bucket, 0) + number

    def copy(self) -> "Histogram":
        return Histogram(dict(self.buckets))

    @property
    def count(self) -> int:
        return sum(self.buckets.values())

    def quantile(self, part: float) -> float | None:
        """The time that this part of all did not exceed; None: there are none."""
        wanted = max(1, math.ceil(part * self.count))
        seen = 0
        for bucket, number in sorted(self.buckets.items()):
            seen += number
            if seen >= wanted:
                return FIRST * GROWTH ** (bucket - 0.5) if bucket else LEAST_ERROR
        return None

    def to_json(self) -> str:
        return json.dumps(self.buckets, separators=(",", ":"))


def histogram_of(texts: str) -> Histogram:
    """One of many: their JSON texts, with commas between them."""
    merged: dict[int, int] = {}
    for one in json.loads(f"[{texts}]"):
        for bucket, number in one.items():
            merged[bucket] = merged.get(bucket, 0) + number
    return Histogram({int(bucket): number for bucket, number in merged.items()})


@dataclass(slots=True)
class Rollup:
    """What one worker did of one task in one minute. A row of its own: nobody else writes it."""

    minute: datetime
    type: str
    queue: str
    worker_id: str
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    wait: float = 0.0  #: seconds, of all together
    run: float = 0.0
    waits: Histogram = field(default_factory=Histogram)
    runs: Histogram = field(default_factory=Histogram)

    def count(self, kind: str, job: Job, now: datetime) -> None:
        """One more run, that ended now."""
        setattr(self, kind, getattr(self, kind) + 1)
        due = max(job.run_at, job.created_at)
        started = job.started_at or due
        wait = max(0.0, (started - due).total_seconds())
        run = max(0.0, (now - started).total_seconds())
        self.wait += wait
        self.run += run
        self.waits.add(wait)
        self.runs.add(run)

    def copy(self) -> "Rollup":
        """As it is now: it may be counted on while it is written."""
        return replace(self, waits=self.waits.copy(), runs=self.runs.copy())


_KINDS = {
    Outcome.COMPLETED: "completed",
    Outcome.FAILED: "failed",
    Outcome.STOPPED: "cancelled",
    Outcome.RETRY_LATER: "retried",
    Outcome.CRASHED: "retried",
}


def kind_of(finish: Finish) -> str | None:
    """Which count a finish adds to; None: none (it comes back and no attempt was spent, or it was not
    run at all). A run of a recurring job ends for itself: nothing else would tell that it fails."""
    recur = finish.recur
    if recur is None:
        return _KINDS.get(finish.outcome)
    if not recur.ran:
        return None
    if finish.error is not None:
        return "failed"
    return "cancelled" if recur.stopped else "completed"


def minute_of(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


def since(now: datetime, window: float) -> datetime:
    """The first of the minutes that a window is made of; the last is the one that runs."""
    minutes = max(1, math.ceil(window / 60))
    return minute_of(now) - (minutes - 1) * MINUTE


# what is told of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds; None where nothing was measured. p50 and p95 are off by at most a tenth."""

    count: int = 0
    average: float | None = None
    p50: float | None = None
    p95: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How jobs ended in a window."""

    completed: int = 0
    failed: int = 0  #: for good; of a recurring job, each failed run
    cancelled: int = 0  #: by their workers; what is cancelled while it waits is not counted
    retried: int = 0  #: runs that failed, and were followed or will be followed by another
    finished: int = 0  #: completed, failed and cancelled
    failure_rate: float = 0.0  #: failed of finished; 0 where nothing finished
    per_minute: float = 0.0  #: finished, on the average of the window
    wait: Times = Times()  #: from due (or made, if that was later) to started
    run: Times = Times()  #: from started to finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What ended in one minute."""

    at: datetime  #: its beginning
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    wait: float | None = None  #: average, in seconds; None: nothing ended
    run: float | None = None

    @property
    def finished(self) -> int:
        return self.completed + self.failed + self.cancelled

    @property
    def ended(self) -> int:
        return self.finished + self.retried


class Total(NamedTuple):
    """All that was done of one task in one queue."""

    type: str
    queue: str
    completed: int
    failed: int
    cancelled: int
    retried: int
    wait: float
    run: float
    waits: Histogram
    runs: Histogram


class Share(NamedTuple):
    """How many jobs of a queue one worker finished."""

    queue: str
    worker_id: str
    finished: int


def figures(totals: Iterable[Total], window: float) -> Figures:
    """All of these together."""
    counts = [0, 0, 0, 0]
    wait = run = 0.0
    waits, runs = Histogram(), Histogram()
    for total in totals:
        counts = [a + b for a, b in zip(counts, total[2:6], strict=True)]
        wait, run = wait + total.wait, run + total.run
        waits.merge(total.waits)
        runs.merge(total.runs)
    completed, failed, cancelled, retried = counts
    finished = completed + failed + cancelled
    return Figures(
        completed=completed,
        failed=failed,
        cancelled=cancelled,
        retried=retried,
        finished=finished,
        failure_rate=rate(failed, finished),
        per_minute=60 * finished / window,
        wait=_times(wait, waits),
        run=_times(run, runs),
    )


def rate(failed: int, finished: int) -> float:
    return failed / finished if finished else 0.0


def _times(total: float, histogram: Histogram) -> Times:
    count = histogram.count
    return Times(
        count=count,
        average=total / count if count else None,
        p50=histogram.quantile(0.5),
        p95=histogram.quantile(0.95),
    )


def whole_series(points: Sequence[Point], start: datetime, now: datetime) -> list[Point]:
    """A point for each minute of a window, also for those in which nothing ended."""
    known = {point.at: point for point in points}
    minutes = max(0, (minute_of(now) - start) // MINUTE)
    moments = [start + number * MINUTE for number in range(minutes + 1)]
    return [known.get(moment) or Point(at=moment) for moment in moments]
