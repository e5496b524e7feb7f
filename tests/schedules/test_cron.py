"""Cron around changes of the clock: a sample; `python -m tests.schedules` compares every zone."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from tests.schedules.comparison import EXPRESSIONS, QUIET, Comparison, compare, transitions
from tests.schedules.oracle import moments

ZONES = {  # and how many changes they have in 2026
    "UTC": 0,
    "Asia/Tokyo": 0,
    "Europe/Paris": 2,
    "America/New_York": 2,
    "Australia/Lord_Howe": 2,  # by half an hour
    "America/Havana": 2,  # at midnight: 0:00 is left out, and comes twice
    "Africa/Cairo": 2,  # at midnight: back into the day before
    "Asia/Beirut": 2,
    "Europe/Dublin": 2,  # winter time is the exception, by a negative offset
    "Africa/Casablanca": 2,  # for Ramadan
    "Antarctica/Troll": 2,  # by two hours
}


@pytest.mark.parametrize("name", ZONES)
def test_cron_agrees_with_the_oracle(name: str) -> None:
    changes = transitions(ZoneInfo(name), 2026, 2026)
    assert len(changes) == ZONES[name]
    comparison = Comparison()
    compare(name, changes or [QUIET], EXPRESSIONS, comparison)
    assert comparison.moments > 5760  # every minute of four days, for a beginning
    assert not comparison.differences, "\n".join(comparison.differences[:20])


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "zone", "day", "expected"),
    [
        # Worked out by hand. Paris, spring: 2:00 to 3:00 is left out, at 01:00 UTC.
        ("30 2 * * *", "Europe/Paris", "2026-03-29", ["01:00"]),
        ("0,15,30 2 * * *", "Europe/Paris", "2026-03-29", ["01:00"]),
        ("*/30 2 * * *", "Europe/Paris", "2026-03-29", []),
        (
            "0 */2 * * SUN",
            "Europe/Paris",
            "2026-03-29",
            [f"{hour:02}:00" for hour in range(2, 21, 2)],
        ),
        # Autumn: 2:00 to 3:00 comes twice, at 00:00 and at 01:00 UTC.
        ("30 2 * * *", "Europe/Paris", "2026-10-25", ["00:30"]),
        ("*/30 2 * * *", "Europe/Paris", "2026-10-25", ["00:00", "00:30", "01:00", "01:30"]),
        # Lord Howe, spring: 2:00 to 2:30 is left out, at 15:30 UTC the day before.
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03", ["15:30"]),
        ("*/20 3 * * *", "Australia/Lord_Howe", "2026-10-03", ["16:00", "16:20", "16:40"]),
        # Cairo, spring: 0:00 to 1:00 of a Friday is left out, at 22:00 UTC on Thursday.
        ("*/30 0 * * FRI", "Africa/Cairo", "2026-04-23", []),
        ("30 0 * * FRI", "Africa/Cairo", "2026-04-23", ["22:00"]),
        # Days.
        ("0 12 L * *", "UTC", "2026-02-28", ["12:00"]),
        ("0 12 L * *", "UTC", "2028-02-28", []),
        ("0 12 LW * *", "UTC", "2026-01-30", ["12:00"]),
        ("0 12 LW * *", "UTC", "2026-01-31", []),
        ("0 12 1 * FRI", "UTC", "2026-01-02", ["12:00"]),
        ("0 12 */2 * FRI", "UTC", "2026-01-02", []),
        ("0 12 * * 5L", "UTC", "2026-01-30", ["12:00"]),
        ("0 12 * * 5L", "UTC", "2026-01-23", []),
        ("0 12 * JAN FRI#2", "UTC", "2026-01-09", ["12:00"]),
        ("0 12 29 2 *", "UTC", "2028-02-29", ["12:00"]),
    ],
)
def test_the_oracle_agrees_with_known_dates(
    expression: str, zone: str, day: str, expected: list[str]
) -> None:
    start, end = utc(f"{day}T00:00"), utc(f"{day}T23:59")
    found = moments(expression, zone, start, end)
    assert [f"{moment:%H:%M}" for moment in found] == expected
