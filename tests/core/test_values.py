"""The rules of ids, durations, names, clocks and retention."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from holdfast import Holdfast, InvalidInput
from holdfast.core.clock import FakeClock, SystemClock, from_microseconds, to_microseconds
from holdfast.core.duration import seconds
from holdfast.core.ids import floor_id, new_id, parse_id
from tests.support.threads import in_threads


def test_ids_are_uuid7_unique_and_sorted_by_time() -> None:
    ids = [new_id() for _ in range(20_000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)
    made = UUID(ids[0])
    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert abs((made.int >> 80) / 1000 - datetime.now(UTC).timestamp()) < 5


def test_ids_of_many_threads_do_not_collide() -> None:
    ids = [id for part in in_threads(8, lambda _: [new_id() for _ in range(2000)]) for id in part]
    assert len(set(ids)) == 16_000


def test_floor_ids_are_below_all_ids_of_a_time() -> None:
    before = datetime.now(UTC)
    made = new_id()
    assert floor_id(before - timedelta(seconds=1)) < made < floor_id(before + timedelta(seconds=5))
    assert floor_id(datetime(1970, 1, 1, tzinfo=UTC)) == str(UUID(int=0))


@pytest.mark.parametrize("value", ["", "7", "x" * 36, None, 7, "0" * 33])
def test_invalid_ids_are_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="is not a job id"):
        parse_id(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0.0),
        (1.5, 1.5),
        (timedelta(minutes=2), 120.0),
        ("90s", 90.0),
        ("30m", 1800.0),
        ("1h 30m", 5400.0),
        ("1H30M", 5400.0),
        ("250ms", 0.25),
        ("7d", 604800.0),
        ("2w", 1209600.0),
        ("1.5h", 5400.0),
    ],
)
def test_durations_are_parsed(value: object, expected: float) -> None:
    assert seconds(value) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [
        "",
        "soon",
        "5",
        "5 minutes",
        "-5m",
        "1h -30m",
        "m",
        -1,
        float("inf"),
        float("nan"),
        True,
        None,
        10**400,
        timedelta(days=-1),
        [1],
        "1e9d",
    ],
)
def test_invalid_durations_are_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="give seconds, a timedelta, or a string"):
        seconds(value)  # type: ignore[arg-type]


def test_times_survive_to_the_microsecond() -> None:
    moment = datetime(2026, 11, 15, 23, 59, 59, 999999, tzinfo=UTC)
    assert from_microseconds(to_microseconds(moment)) == moment
    assert to_microseconds(datetime(1970, 1, 1, tzinfo=UTC)) == 0


def test_clocks_advance() -> None:
    fake = FakeClock()
    before = fake.now()
    fake.advance(1.5)
    assert (fake.now() - before, fake.monotonic()) == (timedelta(seconds=1.5), 1.5)
    system = SystemClock()
    assert abs(system.now() - datetime.now(UTC)) < timedelta(seconds=1)
    assert system.monotonic() <= system.monotonic()


def test_the_url_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    assert Holdfast().url == "sqlite:///holdfast.db"
    monkeypatch.setenv("HOLDFAST_URL", "sqlite:///elsewhere.db")
    assert Holdfast().url == "sqlite:///elsewhere.db"
    assert Holdfast("sqlite:///given.db").url == "sqlite:///given.db"


def test_retention_is_set_per_final_status() -> None:
    ages = Holdfast("sqlite:///x.db", retention={"failed": "90d"}).settings.retention
    assert ages == {"completed": 7 * 86400.0, "failed": 90 * 86400.0, "cancelled": 7 * 86400.0}
    with pytest.raises(InvalidInput, match="pending is no final status"):
        Holdfast("sqlite:///x.db", retention={"pending": 1})
