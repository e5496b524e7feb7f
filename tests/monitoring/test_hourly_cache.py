"""Past hours are read once; what may still change is read each time."""

from datetime import UTC, datetime, timedelta

from holdfast.monitoring.hourly_cache import HourlyCache
from holdfast.monitoring.metrics import Histogram, Total

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)


class Database:
    """One job ends in every minute."""

    def __init__(self) -> None:
        self.read: list[tuple[datetime, datetime]] = []

    def __call__(self, since: datetime, until: datetime) -> list[Total]:
        self.read.append((since, until))
        minutes = (until - since) // timedelta(minutes=1)
        return [Total("t", "q", minutes, 0, 0, 0, 0.0, 0.0, Histogram(), Histogram())]


def ended(totals: list[Total]) -> int:
    return sum(total.completed for total in totals)


def at(hour: int, minute: int = 0) -> datetime:
    return NOON.replace(hour=hour, minute=minute)


def test_every_minute_is_counted_once():
    for start in (at(0), at(0, 17), at(11), at(11, 59), at(12, 5)):
        for now in (at(12, 5), at(12, 10), at(12, 30)):
            database = Database()
            totals = HourlyCache(database).all(start, now)
            whole = (now + timedelta(hours=1) - start) // timedelta(minutes=1)
            assert ended(totals) == whole, (start, now)
            edges = [since for since, _ in database.read] + [now + timedelta(hours=1)]
            assert edges == [start, *(until for _, until in database.read)]


def test_what_has_settled_is_read_once():
    database = Database()
    hours = HourlyCache(database)
    hours.all(at(6, 30), at(12, 30))
    assert (at(7), at(8)) in database.read
    database.read.clear()
    hours.all(at(6, 31), at(12, 31))
    assert database.read == [(at(6, 31), at(7)), (at(12), at(13, 31))]


def test_an_hour_that_has_just_ended_may_still_change():
    database = Database()
    hours = HourlyCache(database)
    for minute in (5, 9):
        database.read.clear()
        hours.all(at(11), at(12, minute))
        assert database.read == [(at(11), at(13, minute))]
    database.read.clear()
    hours.all(at(11), at(12, 10))
    assert database.read == [(at(11), at(12)), (at(12), at(13, 10))]


def test_hours_that_nobody_asks_about_any_more_are_forgotten():
    database = Database()
    hours = HourlyCache(database)
    hours.all(at(6), at(12, 30))
    hours.all(at(12, 30) + timedelta(days=1), at(12, 30) + timedelta(days=2))
    database.read.clear()
    hours.all(at(6), at(12, 30))
    assert (at(7), at(8)) in database.read
