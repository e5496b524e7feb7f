"""Figures of finished work: counts and times by the minute, small enough to be kept and summed.

Times go into histograms whose buckets grow by a fifth, so that those of many workers and minutes can
be merged. A quantile is off by at most a tenth, or by half a millisecond if that is more.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from holdfast.core.duration import Duration, seconds
from holdfast.errors import InvalidInput
from holdfast.jobs.job import Job
from holdfast.jobs.outcome import Finish, Outcome

MINUTE = timedelta(minutes=1)
KEPT = 86400.0  #: seconds that roll-ups are kept

FIRST = 0.001  # seconds: shorter times are in the first bucket
GROWTH = 1.2
LONGEST = 10 * 365 * 86400.0
ERROR = math.sqrt(GROWTH) - 1  #: a quantile may be off by this part of itself...
LEAST_ERROR = FIRST / 2  #: ... or by so many seconds, if that is more
_LOG = math.log(GROWTH)


class Histogram(Counter[int]):
    """The number of times in each bucket."""

    def add(self, seconds: float) -> None:
        bucket = 0
        if seconds > FIRST:
            bucket = math.ceil(math.log(min(seconds, LONGEST) / FIRST) / _LOG)
        self[bucket] += 1

    def quantile(self, part: float) -> float | None:
        """Return the time that this part of all times did not exceed; None if there are none."""
        wanted = max(1, math.ceil(part * self.total()))
        seen = 0
        for bucket, number in sorted(self.items()):
            seen += number
            if seen >= wanted:
                return FIRST * GROWTH ** (bucket - 0.5) if bucket else LEAST_ERROR
        return None

    def to_json(self) -> str:
        return json.dumps(self, separators=(",", ":"))


def merge(histograms: Iterable[Histogram]) -> Histogram:
    merged = Histogram()
    for one in histograms:
        merged.update(one)
    return merged


def histogram_of(texts: str) -> Histogram:
    """Merge histograms, given as JSON texts with commas between them."""
    merged = Counter[str]()
    for one in json.loads(f"[{texts}]"):
        merged.update(one)
    return Histogram({int(bucket): number for bucket, number in merged.items()})


@dataclass(slots=True)
class Rollup:
    """The runs of one task in one queue that one worker ended in one minute: a row that only it
    writes."""

    minute: datetime
    type: str
    queue: str
    worker_id: str
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    wait: float = 0.0  #: seconds, the sum over all runs
    run: float = 0.0
    waits: Histogram = field(default_factory=Histogram)
    runs: Histogram = field(default_factory=Histogram)

    def count(self, kind: str, job: Job, now: datetime) -> None:
        """Count a run that ended now."""
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
        """Return a copy, since counting goes on while a roll-up is written."""
        return replace(self, waits=self.waits.copy(), runs=self.runs.copy())


_KINDS = {
    Outcome.COMPLETED: "completed",
    Outcome.FAILED: "failed",
    Outcome.STOPPED: "cancelled",
    Outcome.RETRY_LATER: "retried",
    Outcome.CRASHED: "retried",
}


def kind_of(finish: Finish) -> str | None:
    """Return the name of the count that a finish adds to; None if it spent no attempt, or there was no
    run. Each run of a recurring job counts as an end, since nothing else would show its failures."""
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


def length_of(window: Duration) -> float:
    """Return the seconds of a window. Raises InvalidInput outside of 1m to 24h."""
    length = seconds(window, what="window")
    if not 60 <= length <= KEPT:
        raise InvalidInput(f"window={window!r}: give a duration from 1m to 24h")
    return length


def since(now: datetime, window: float) -> datetime:
    """Return the first minute of a window, which ends with the present minute."""
    minutes = max(1, math.ceil(window / 60))
    return minute_of(now) - (minutes - 1) * MINUTE


# what statistics consist of


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds; None if nothing was measured. p50 and p95 are off by at most a tenth."""

    count: int = 0
    average: float | None = None
    p50: float | None = None
    p95: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How jobs ended in a window."""

    completed: int = 0
    failed: int = 0  #: for good; of a recurring job, each failed run
    cancelled: int = 0  #: by their workers; jobs that are cancelled while they wait are not counted
    retried: int = 0  #: failed runs that are followed by another
    finished: int = 0  #: completed, failed and cancelled
    failure_rate: float = 0.0  #: failed of finished; 0 if nothing finished
    per_minute: float = 0.0  #: finished, on average over the window
    wait: Times = Times()  #: from due (or enqueued, if that was later) to started
    run: Times = Times()  #: from started to finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The runs that ended in one minute."""

    at: datetime  #: the start of the minute
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    retried: int = 0
    wait: float | None = None  #: average seconds; None if no run ended
    run: float | None = None

    @property
    def finished(self) -> int:
        return self.completed + self.failed + self.cancelled

    @property
    def ended(self) -> int:
        return self.finished + self.retried


class Total(NamedTuple):
    """The sum of the roll-ups of one task in one queue."""

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
    """The number of jobs of a queue that one worker finished."""

    queue: str
    worker_id: str
    finished: int


def figures(totals: Sequence[Total], window: float) -> Figures:
    """Sum totals into the figures of a window of so many seconds."""
    kinds = ("completed", "failed", "cancelled", "retried")
    counts = {kind: sum(getattr(total, kind) for total in totals) for kind in kinds}
    finished = sum(counts.values()) - counts["retried"]
    return Figures(
        **counts,
        finished=finished,
        failure_rate=rate(counts["failed"], finished),
        per_minute=60 * finished / window,
        wait=_times(sum(total.wait for total in totals), [total.waits for total in totals]),
        run=_times(sum(total.run for total in totals), [total.runs for total in totals]),
    )


def rate(failed: int, finished: int) -> float:
    return failed / finished if finished else 0.0


def _times(seconds: float, histograms: Iterable[Histogram]) -> Times:
    merged = merge(histograms)
    count = merged.total()
    average = seconds / count if count else None
    return Times(count=count, average=average, p50=merged.quantile(0.5), p95=merged.quantile(0.95))


def whole_series(points: Sequence[Point], start: datetime, now: datetime) -> list[Point]:
    """Return a point for each minute of a window, also for minutes in which no run ended."""
    known = {point.at: point for point in points}
    minutes = max(0, (minute_of(now) - start) // MINUTE)
    moments = [start + number * MINUTE for number in range(minutes + 1)]
    return [known.get(moment) or Point(at=moment) for moment in moments]
