"""When a recurring job runs again. `jobs/outcome.decide` calls `after_success` and `after_failure` when
a run has ended; `task.schedule()` and the start of a worker call `first_run`.

A recurring job is one row that returns to `scheduled` after each run; its schedule is stored with it
as JSON text. All functions are pure: they read no clock and no database. Each run has two times: `due`
is the time that the schedule names, from which the next one is counted, so that neither a late run nor
jitter makes a schedule drift; `run_at` is when the run may begin. All times are UTC; a cron expression
is read in the schedule's time zone.
"""

import json
import random as _random
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from holdfast.core.duration import Duration, seconds
from holdfast.core.validation import moment
from holdfast.errors import InvalidInput
from holdfast.jobs.backoff import Backoff

Missed = Literal["once", "skip", "all"]

CODE = "@code"  #: the key of a schedule that is written at the task
_SHORTEST = 0.1  # seconds; below it a loop inside one job is the better tool
_LATE = 60.0  # seconds after its due time, after which a run counts as missed
_LONGEST_CRON = 100
_LONGEST_JITTER = 86400.0
_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_READERS: dict[str, Callable[[Any], Any]] = {
    "every": float,
    "cron": str,
    "timezone": str,
    "missed": {word: word for word in get_args(Missed)}.__getitem__,
    "jitter": float,
    "backoff": lambda stored: Backoff(**stored),
}
_UNITS = (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When a job recurs. With neither `every` nor `cron`, each run says when the next one is."""

    every: float | None = None  #: seconds
    cron: str | None = None  #: five fields, one space between them
    timezone: str | None = None  #: an IANA name, for cron only; None is UTC
    missed: Missed = "once"  #: how due times are made up for that passed while no worker ran
    jitter: float = 0.0  #: the most seconds that are added to each due time, at random
    backoff: Backoff | None = None  #: after failed runs, instead of the task's


class Next(NamedTuple):
    """The next run: when it may begin, and the due time that it is for."""

    run_at: datetime
    due_at: datetime


def make_schedule(
    *,
    every: Duration | None = None,
    cron: str | None = None,
    timezone: str | None = None,
    missed: Missed = "once",
    jitter: Duration = 0,
    backoff: Backoff | Duration | None = None,
) -> Schedule:
    """Return the schedule for the options of a task or of `using(...)`. Raises InvalidInput, also if a
    cron expression never matches."""
    if every is not None and cron is not None:
        raise InvalidInput(f"every={every!r} and cron={cron!r}: give one of them, not both")
    if timezone is not None and cron is None:
        raise InvalidInput(f"timezone={timezone!r} is for cron: give cron=, or no timezone")
    if missed not in get_args(Missed):
        raise InvalidInput(
            f"missed={missed!r}: give 'once' (one run for all that were missed), 'skip' (none) or "
            "'all' (one for each)"
        )
    if missed != "once" and every is None and cron is None:
        raise InvalidInput(
            f"missed={missed!r} is for every and cron: give one of them, or no missed"
        )
    interval = None if every is None else _interval(every)
    return Schedule(
        every=interval,
        cron=None if cron is None else _expression(cron),
        timezone=_zone_name(timezone),
        missed=missed,
        jitter=_jitter(jitter, interval),
        backoff=_backoff(backoff),
    )


def _interval(every: Duration) -> float:
    result = round(seconds(every, what="every"), 6)
    if result < _SHORTEST:
        raise InvalidInput(f"every={every!r}: an interval is at least {_SHORTEST:g} s")
    return result


def _jitter(jitter: Duration, every: float | None) -> float:
    result = round(seconds(jitter, what="jitter"), 6)
    longest = _LONGEST_JITTER if every is None else min(every, _LONGEST_JITTER)
    if result > longest:
        raise InvalidInput(
            f"jitter={jitter!r}: at most one interval, and at most a day (here {longest:g} s)"
        )
    return result


def _backoff(value: Any) -> Backoff | None:
    if value is None or isinstance(value, Backoff):
        return value
    if callable(value):
        raise InvalidInput(
            f"backoff={value!r}: a function cannot be stored with the row: give it to "
            "@app.task(backoff=...)"
        )
    delay = seconds(value, what="backoff")
    return Backoff(delay=delay, multiplier=1, cap=delay, jitter=0)


def _expression(cron: Any) -> str:
    """Return a cron expression as five fields with one space between them. Raises InvalidInput if it is
    none, or if it never matches."""
    shown = f"cron={str(cron)[:120]!r}"
    if not isinstance(cron, str):
        raise InvalidInput(f"{shown}: give a string of five fields, e.g. '0 3 * * *'")
    text = " ".join(cron.split())
    text = _ALIASES.get(text.lower(), text)
    if len(text) > _LONGEST_CRON:
        raise InvalidInput(f"{shown}: at most {_LONGEST_CRON} characters")
    if len(text.split()) != 5:
        raise InvalidInput(
            f"{shown}: give five fields: minute, hour, day of month, month, day of week; or one of "
            f"{', '.join(_ALIASES)}. For intervals under a minute there is every="
        )
    try:
        # From a fixed day: this module reads no clock. CronSim searches 50 years; no expression has
        # a longer gap than 40 (29 February on a given weekday, around 2100).
        next(CronSim(text, datetime(2000, 1, 1)))
    except CronSimError as problem:
        raise InvalidInput(
            f"{shown}: {str(problem).lower()}; the fields are minute 0-59, hour 0-23, day of month "
            "1-31 or L, month 1-12 or JAN-DEC, day of week 0-7 or SUN-SAT, and no such day as 30 "
            "February"
        ) from None
    except StopIteration:
        raise InvalidInput(
            f"{shown}: no day in 50 years is such a day; check the day of month, the month and the "
            "day of week together"
        ) from None
    return text


def _zone_name(timezone: Any) -> str | None:
    if timezone in (None, "UTC"):  # stored as None, which needs no time zone data
        return None
    if not isinstance(timezone, str):
        raise InvalidInput(f"timezone={timezone!r}: give an IANA name, e.g. 'Europe/Paris'")
    _zone(timezone)
    return timezone


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown; not a name; a folder such as "America"
        raise InvalidInput(
            f"timezone={name[:80]!r}: this machine knows no such time zone; give an IANA name, e.g. "
            "'Europe/Paris', and where the system has no time zone data: pip install tzdata"
        ) from None


def to_json(schedule: Schedule) -> str:
    """Return the JSON text that is stored with the row, without defaults; equal for equal schedules."""
    chosen = {
        field.name: _plain(getattr(schedule, field.name))
        for field in fields(schedule)
        if getattr(schedule, field.name) != field.default
    }
    return json.dumps(chosen, sort_keys=True, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, Backoff):
        # All fields: the defaults of Backoff may change, a schedule that was stored must not.
        return {name: _plain(number) for name, number in asdict(value).items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


@lru_cache(maxsize=1024)
def from_json(text: str) -> Schedule:
    """Return the schedule of a row. Its time zone is not checked, so that a row that was written on a
    machine with more time zones can still be shown."""
    try:
        stored = json.loads(text).items()
        return Schedule(**{name: _READERS[name](value) for name, value in stored})
    except (ValueError, LookupError, TypeError, AttributeError) as problem:
        raise InvalidInput(
            f"schedule {text[:200]!r} of a stored job cannot be read ({problem}); schedule the job "
            "again, or use the release that wrote it"
        ) from problem


# the next run


def first_run(schedule: Schedule, now: datetime, start: datetime | None = None) -> datetime:
    """Return the first due time: `start` if it is given (due times since a past `start` were missed),
    else the next time of a cron expression, else now."""
    if start is not None:
        return moment(start, "start")
    return now if schedule.cron is None else _cron_after(schedule, now)


def regular(schedule: Schedule, due: datetime, now: datetime) -> datetime | None:
    """Return the due time after `due`; None if each run says when the next one is.

    With `missed="all"` it is the next one after `due`, even if that is long past. Otherwise it is the
    first one after both `due` and `now`. Intervals are counted from `due`, so they never drift. If the
    clock went back (`now` is before `due`), an interval is counted from `now`: the next run is at most
    one interval away; a time of cron that has had its run does not come again. To run a
    job before its due time and keep its later due times, give `now` as its `due`.
    """
    due = due if schedule.every is None else min(due, now)
    after = due if schedule.missed == "all" else max(due, now)
    return _following(schedule, due, after)


def after_success(
    schedule: Schedule,
    *,
    due: datetime,
    now: datetime,
    random: Callable[[], float] = _random.random,
) -> Next | None:
    """Return the run after one that succeeded; None if the schedule leaves that to each run."""
    upcoming = regular(schedule, due, now)
    return None if upcoming is None else spread(schedule, upcoming, random)


def after_failure(
    schedule: Schedule,
    *,
    due: datetime,
    now: datetime,
    failures: int,
    fallback: Callable[[int], float],
    exact: bool,
    random: Callable[[], float] = _random.random,
) -> Next:
    """Return the run after one that failed. `failures`: how many failed in a row, with this one.

    The schedule's own backoff decides when, or the task's, if the task has one of its own (`exact`).
    Otherwise the job is retried soon, but not after its next due time: a nightly job does not wait for
    the next night, and a frequent one runs as often as its schedule says.

    A retry has the `due` of the failed run. If the next due time comes before the retry, the run is for
    that one, and the failed one is given up; except with `missed="all"`, where each due time stays
    until a run for it succeeded. Later due times that have passed do not hasten the retry.
    """
    delay = (schedule.backoff.after if schedule.backoff else fallback)(failures)
    retry = Next(now + timedelta(seconds=delay), due)
    if exact or schedule.backoff:
        return retry
    begin = due if schedule.every is None else min(due, now)
    upcoming = _following(schedule, begin, max(begin, now))
    if upcoming is None or retry.run_at < upcoming:
        return retry
    following = spread(schedule, upcoming, random)
    return following._replace(due_at=due) if schedule.missed == "all" else following


def spread(schedule: Schedule, due: datetime, random: Callable[[], float] = _random.random) -> Next:
    """Return the run for a due time, with the schedule's jitter."""
    return Next(due + timedelta(seconds=schedule.jitter * random()), due)


def is_missed(schedule: Schedule, *, due: datetime, now: datetime) -> bool:
    """Return whether `missed="skip"` leaves a run out: it is over a minute late, or over one interval
    if that is shorter. Give the row's `run_at` as `due`, or retries would count as late."""
    if schedule.missed != "skip" or (schedule.every is None and schedule.cron is None):
        return False
    grace = min(_LATE, schedule.every or _LATE) + schedule.jitter
    return now - due > timedelta(seconds=grace)


def in_words(schedule: Schedule) -> str:
    """Describe a schedule: "every 30 minutes", "at 03:00 every day (Europe/Paris)"."""
    if schedule.every is not None:
        name, size = next((unit for unit in _UNITS if schedule.every % unit[1] == 0), ("second", 1))
        count = schedule.every / size
        return f"every {name}" if count == 1 else f"every {count:.15g} {name}s"
    if schedule.cron is None:
        return "decided by each run"
    try:
        words = CronSim(schedule.cron, datetime(2000, 1, 1)).explain()
    except Exception:  # `explain` has a parser of its own, and its bugs must not break a page
        words = f"cron {schedule.cron}"
    return f"{words[:1].lower()}{words[1:]} ({schedule.timezone or 'UTC'})"


def _following(schedule: Schedule, due: datetime, after: datetime) -> datetime | None:
    """Return the first due time after `after`, which is not before `due`."""
    if schedule.cron is not None:
        return _cron_after(schedule, after)
    if schedule.every is None:
        return None
    period = timedelta(seconds=schedule.every)
    return due + ((after - due) // period + 1) * period  # whole microseconds: exact


# cron, where the clock is put forward and back
#
# The rules are those of Debian's cron, which CronSim follows too. CronSim only parses expressions and
# walks over wall-clock times, though: with a time zone, CronSim 2.8 returns a time before the one given
# (when started in the second pass of a repeated hour), leaves times out where the clock moves by half
# an hour (Australia/Lord_Howe), and returns one that does not exist where a midnight is left out
# (Africa/Cairo). tests/schedules compares these functions with an oracle in every zone.


def _cron_after(schedule: Schedule, after: datetime) -> datetime:
    cron = schedule.cron or ""
    after = after.astimezone(UTC)
    zone = None if schedule.timezone is None else _zone(schedule.timezone)
    try:
        if zone is None:
            return next(CronSim(cron, after))
        minute, hour = cron.split()[:2]
        if minute.startswith("*") or hour.startswith("*"):
            return _floating_after(cron, zone, after)
        return _fixed_after(cron, zone, after)
    except (CronSimError, StopIteration, OverflowError) as problem:
        raise InvalidInput(
            f"cron={cron!r} names no moment in the 50 years after {after:%Y-%m-%d}; schedule the job "
            "again"
        ) from problem


def _fixed_after(cron: str, zone: ZoneInfo, after: datetime) -> datetime:
    """Return the next time of an expression with a fixed hour and minute. It has one run a day: in the
    first pass of an hour that comes twice, and right after the gap if the clock is put forward."""
    for wall in CronSim(cron, after.astimezone(zone).replace(tzinfo=None)):
        found = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
        if found.astimezone(zone).replace(tzinfo=None) != wall:
            # The time is in a gap. fold=0 reads it by the offset before the change, which gives a time
            # after the change; fold=1 gives one before it.
            before = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
            found = _change(zone, before, found) or found
        if found > after:
            return found
    raise StopIteration


def _floating_after(cron: str, zone: ZoneInfo, after: datetime) -> datetime:
    """Return the next time of an expression whose hour or minute is a wildcard. Every time that the
    clock shows counts, also when the clock shows it again. Between two changes of the offset,
    wall-clock time is UTC plus a constant."""
    wall, start = after.astimezone(zone).replace(tzinfo=None), after
    while True:
        offset = start.astimezone(zone).utcoffset() or timedelta()
        found = (next(CronSim(cron, wall)) - offset).replace(tzinfo=UTC)
        change = _change(zone, start, found)
        if change is None:
            return found
        start = change
        # CronSim searches after the time given, and the time of the change itself may match.
        wall = change.astimezone(zone).replace(tzinfo=None) - timedelta(seconds=1)


def _change(zone: ZoneInfo, start: datetime, end: datetime) -> datetime | None:
    """Return when the offset at `start` first changes, up to `end`; None if it does not. Compares the
    offsets of every third day: since 1970 no zone changed twice within a week (tzdata 2025b)."""
    offset = start.astimezone(zone).utcoffset()
    low = start.replace(microsecond=0)
    while low < end:
        high = min(low + timedelta(days=3), end)
        if high.astimezone(zone).utcoffset() != offset:
            while high - low > timedelta(seconds=1):
                middle = low + (high - low) // timedelta(seconds=2) * timedelta(seconds=1)
                same = middle.astimezone(zone).utcoffset() == offset
                low, high = (middle, high) if same else (low, middle)
            return high
        low = high
    return None
