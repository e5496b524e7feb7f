"""When a cron job runs, found the slow and plain way: by looking at the wall clock every minute.

Knows nothing of CronSim or of `holdfast.recurrence`. The rules, from crontab(5) and cron(8) of Debian:

- Five fields; day of month and day of week must both fit if one of them begins with `*`, else one of
  them is enough.
- If minute or hour begins with `*`, the job runs whenever the wall clock shows a time that fits.
- Otherwise it has fixed times. One that the clock skips is run right after the gap (once, however
  many were skipped); one that the clock shows twice is run the first time only.

Besides, as CronSim has them: `L` and `LW` as day of month (the last day, the last Monday to Friday),
`5L` and `5#2` as day of week (the last, the second Friday of the month).
"""

import calendar
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

DAY = 24 * 60
MONTHS = [name.upper() for name in calendar.month_abbr]  # "", JAN, FEB, ...
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
Fits = Callable[[date], bool]


class Minute(NamedTuple):
    """One minute of real time. Walls are minutes of the local calendar, counted from year 1."""

    real: datetime
    wall: int
    shown_before: bool  #: the clock was put back, and shows this time again
    skipped: range  #: walls that the clock left out right before


def walk(zone: ZoneInfo, start: datetime, end: datetime) -> list[Minute]:
    """Every minute from `start`, which should be a day or more from any change, to `end`."""
    return list(_walk(zone, start, end))


def _walk(zone: ZoneInfo, start: datetime, end: datetime) -> Iterator[Minute]:
    real, latest = start, None
    while real < end:
        local = real.astimezone(zone)
        wall = local.toordinal() * DAY + local.hour * 60 + local.minute
        if latest is None:
            latest = wall - 1
        yield Minute(real, wall, wall <= latest, range(latest + 1, wall))
        latest = max(latest, wall)
        real += timedelta(minutes=1)


@dataclass
class Oracle:
    """One expression."""

    expression: str
    is_fixed: bool = field(init=False)

    def __post_init__(self) -> None:
        minute, hour, day, month, weekday = self.expression.upper().split()
        minutes, hours = _numbers(minute, 0, 59), _numbers(hour, 0, 23)
        self._times = {h * 60 + m for h in hours for m in minutes}
        self._months = _numbers(month, 1, 12, MONTHS)
        self._days = [_day(term) for term in day.split(",")]
        self._weekdays = [_weekday(term) for term in weekday.split(",")]
        self._needs_both = day.startswith("*") or weekday.startswith("*")
        self._known: dict[int, bool] = {}  # by the day's number
        self.is_fixed = not (minute.startswith("*") or hour.startswith("*"))

    def moments(self, minutes: list[Minute]) -> list[datetime]:
        if not self.is_fixed:
            return [minute.real for minute in minutes if self._fits(minute.wall)]
        return [
            minute.real
            for minute in minutes
            if (not minute.shown_before and self._fits(minute.wall))
            or (minute.skipped and any(self._fits(wall) for wall in minute.skipped))
        ]

    def _fits(self, wall: int) -> bool:
        number, time = divmod(wall, DAY)
        return time in self._times and self._fits_day(number)

    def _fits_day(self, number: int) -> bool:
        if number not in self._known:
            day = date.fromordinal(number)
            of_month = any(fits(day) for fits in self._days)
            of_week = any(fits(day) for fits in self._weekdays)
            both, one = of_month and of_week, of_month or of_week
            fitting = both if self._needs_both else one
            self._known[number] = fitting and day.month in self._months
        return self._known[number]


def _numbers(text: str, low: int, high: int, names: list[str] | None = None) -> set[int]:
    """`*`, `5`, `1-5`, `MON-FRI`, each with `/step` or without, and lists of these."""
    found: set[int] = set()
    for term in text.split(","):
        span, _, step = term.partition("/")
        if span == "*":
            first, last = low, high
        else:
            one, dash, other = span.partition("-")
            first = _number(one, names)
            last = _number(other, names) if dash else (high if step else first)
        assert low <= first <= last <= high, text
        found.update(range(first, last + 1, int(step or 1)))
    return found


def _number(text: str, names: list[str] | None) -> int:
    return names.index(text) if names and text in names else int(text)


def _day(term: str) -> Fits:
    if term == "L":
        return lambda day: (day + timedelta(days=1)).day == 1
    if term == "LW":
        return _is_last_working_day
    days = _numbers(term, 1, 31)
    return lambda day: day.day in days


def _is_last_working_day(day: date) -> bool:
    rest = [day + timedelta(days=more) for more in range(1, 5)]
    later = [other for other in rest if other.month == day.month and other.isoweekday() <= 5]
    return day.isoweekday() <= 5 and not later


def _weekday(term: str) -> Fits:
    if term.endswith("L"):
        wanted = int(term[:-1]) % 7
        return lambda day: (
            day.isoweekday() % 7 == wanted and (day + timedelta(days=7)).month != day.month
        )
    if "#" in term:
        name, _, count = term.partition("#")
        wanted = _number(name, WEEKDAYS) % 7
        return lambda day: day.isoweekday() % 7 == wanted and -(-day.day // 7) == int(count)
    numbers = {number % 7 for number in _numbers(term, 0, 7, WEEKDAYS)}
    return lambda day: day.isoweekday() % 7 in numbers


def moments(expression: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    """The moments from `start` up to `end`, without `end`; whole minutes, UTC."""
    return Oracle(expression).moments(
        walk(ZoneInfo(zone), start.astimezone(UTC), end.astimezone(UTC))
    )
