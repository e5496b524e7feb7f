"""The compared windows of time, and the comparison of `schedules.next_run` with the oracle."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from holdfast.schedules.next_run import Schedule, make_schedule, regular
from tests.schedules.oracle import Minute, Oracle, walk

FIRST, LAST = 2025, 2030
AROUND = timedelta(days=2)
QUIET = datetime(
    2028, 2, 29, 12, tzinfo=UTC
)  # far from changes in most zones; a leap day, a month's end
EXPRESSIONS = """\
* * * * *
*/5 * * * *
*/15 0-5 * * *
7 * * * *
0,30 * * * *
45 * * * *
15-20 * * * *
0 */2 * * *
20 */3 * * *
* 2 * * *
*/10 3 * * *
*/30 0 * * FRI,SAT,SUN
59 */4 * * SUN
0 0 * * *
15 0 * * *
30 1 * * *
0 2 * * *
30 2 * * *
15,45 2,3 * * *
0 3 * * *
59 23 * * *
30 23 * * SAT
0-30/10 1-4 * * MON-FRI
5 0-23 * * *
0 12 1,15,29-31 * SUN
30 2 */2 MAR,OCT,NOV *
10 2 L * *
0 0 LW * 0L
0 1 * 3-11 7#1,SUN#5,5L
30 0 29 2 *
""".splitlines()


@dataclass
class Comparison:
    zones: int = 0
    transitions: int = 0
    moments: int = 0
    starts: int = 0
    differences: list[str] = field(default_factory=list)


def transitions(zone: ZoneInfo, first: int = FIRST, last: int = LAST) -> list[datetime]:
    """The minutes at which the offset changes, from the year `first` to the end of `last`."""
    found = []
    day, end = datetime(first, 1, 1, tzinfo=UTC), datetime(last + 1, 1, 1, tzinfo=UTC)
    while day < end:
        following = day + timedelta(days=1)
        if offset(zone, day) != offset(zone, following):
            low, high = 0, 24 * 60
            while high - low > 1:
                middle = (low + high) // 2
                same = offset(zone, day + timedelta(minutes=middle)) == offset(zone, day)
                low, high = (middle, high) if same else (low, middle)
            found.append(day + timedelta(minutes=high))
        day = following
    return found


def offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta()


def fingerprint(zone: ZoneInfo) -> tuple:
    """Equal for zones whose clocks agree over all these years."""
    changes = transitions(zone)
    start = datetime(FIRST, 1, 1, tzinfo=UTC)
    return tuple((moment, offset(zone, moment)) for moment in [start, *changes])


def compare(
    name: str, centres: list[datetime], expressions: list[str], comparison: Comparison
) -> None:
    """Compare the days around each centre, in one zone, by every expression."""
    for centre in centres:
        minutes = walk(ZoneInfo(name), centre - AROUND, centre + AROUND)
        for expression in expressions:
            expected = Oracle(expression).moments(minutes)
            # Stored with the name of the zone as is, so that "UTC" takes the way of the zones too.
            checked = make_schedule(cron=expression, timezone=name, missed="all")
            schedule = Schedule(cron=checked.cron, timezone=name, missed="all")
            for found in differences(schedule, expected, minutes, centre, comparison):
                comparison.differences.append(f"{name} {centre:%Y-%m-%d} {expression!r}: {found}")


def differences(
    schedule: Schedule,
    expected: list[datetime],
    minutes: list[Minute],
    centre: datetime,
    comparison: Comparison,
) -> Iterator[str]:
    """Compare run after run through the window, and then from odd times around the change."""
    start, end = minutes[0].real, minutes[-1].real + timedelta(minutes=1)
    chain = []
    latest = following(schedule, start - timedelta(microseconds=1))
    while latest < end:
        chain.append(latest)
        latest, previous = following(schedule, latest), latest
        if latest <= previous:
            yield f"{latest} is given as the moment after {previous}"
            break
    comparison.moments += len(expected)
    for wrong in sorted(set(chain) ^ set(expected)):
        yield f"{wrong} is {'missing' if wrong in expected else 'too many'}"
    for minute in range(-300, 300, 13):
        comparison.starts += 1
        asked = centre + timedelta(minutes=minute, seconds=minute % 60)
        index = bisect_right(expected, asked)
        given = following(schedule, asked)
        wanted = expected[index] if index < len(expected) else None
        if given != wanted if wanted else given < end:
            yield f"after {asked} comes {given}, expected {wanted or 'none in the window'}"


def following(schedule: Schedule, moment: datetime) -> datetime:
    found = regular(schedule, moment, moment)
    assert found is not None
    return found
