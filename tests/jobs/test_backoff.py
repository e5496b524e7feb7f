"""Delays between attempts: how they grow, how they vary, and users' own functions."""

import random
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Backoff, Holdfast, InvalidInput
from holdfast.jobs.backoff import backoff

EXACT = Backoff(jitter=0)
YEAR = 365 * 86400.0


def delays(backoff: Backoff, count: int) -> list[float]:
    return [backoff.after(attempts) for attempts in range(1, count + 1)]


def test_delays_double_from_five_seconds_up_to_an_hour() -> None:
    assert delays(EXACT, 12) == [
        *(5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0, 2560.0),
        *(3600.0, 3600.0),
    ]


def test_delays_can_be_chosen() -> None:
    assert delays(Backoff(delay=1, multiplier=3, cap="30s", jitter=0), 5) == [1, 3, 9, 27, 30]
    assert delays(Backoff(delay=timedelta(minutes=1), multiplier=1, jitter=0), 3) == [60.0] * 3
    assert delays(Backoff(delay=0, jitter=1), 3) == [0.0] * 3
    assert delays(Backoff(delay="2h", jitter=0), 2) == [3600.0] * 2


@pytest.mark.parametrize("multiplier", [2, 2.0, 1000, 1000.0])
def test_every_number_of_attempts_gives_a_delay(multiplier: float) -> None:
    """The power overflows long before the attempts do."""
    for attempts in (60, 1100, 5000):
        assert Backoff(multiplier=multiplier, jitter=0).after(attempts) == 3600.0


@pytest.mark.parametrize("jitter", [0.1, 0.5, 1.0])
def test_jitter_adds_at_most_its_fraction(jitter: float) -> None:
    seen = [Backoff(jitter=jitter).after(2) for _ in range(2000)]
    assert min(seen) >= 10.0
    assert max(seen) <= 10.0 * (1 + jitter)
    assert max(seen) - min(seen) > 10.0 * jitter * 0.9  # they come back apart


def test_jitter_is_a_tenth_by_default_and_never_exceeds_the_cap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(random, "random", lambda: 0.999999)
    assert Backoff().after(1) == pytest.approx(5.5, rel=1e-3)
    assert Backoff().after(10) == pytest.approx(2816.0, rel=1e-3)
    assert Backoff().after(11) == 3600.0
    assert Backoff(jitter=0).after(1) == 5.0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"delay": -1}, "backoff delay=-1"),
        ({"delay": "soon"}, "backoff delay='soon'"),
        ({"cap": float("inf")}, "backoff cap=inf"),
        ({"multiplier": 0.5}, "backoff multiplier=0.5: from 1 to 1000"),
        ({"multiplier": 1001}, "backoff multiplier=1001"),
        ({"multiplier": "2"}, "backoff multiplier='2': give a number"),
        ({"multiplier": True}, "backoff multiplier=True: give a number"),
        ({"multiplier": float("nan")}, "backoff multiplier=nan"),
        ({"jitter": -0.1}, "backoff jitter=-0.1: from 0 to 1"),
        ({"jitter": 1.1}, "backoff jitter=1.1"),
        ({"jitter": None}, "backoff jitter=None: give a number"),
    ],
)
def test_invalid_backoffs_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Backoff(**fields)


def test_a_duration_as_backoff_is_a_constant_delay() -> None:
    constant = backoff("30s")
    assert [constant(attempts) for attempts in (1, 2, 50)] == [30.0] * 3
    with pytest.raises(InvalidInput, match="backoff='soon'"):
        backoff("soon")
    with pytest.raises(InvalidInput, match="backoff=True"):
        backoff(True)


def test_a_function_gets_the_number_of_attempts() -> None:
    assert [backoff(lambda attempts: attempts * 7)(n) for n in (1, 2, 3)] == [7.0, 14.0, 21.0]
    assert backoff(lambda attempts: "2m")(1) == 120.0
    assert backoff(lambda attempts: timedelta(seconds=3))(1) == 3.0


def raises(attempts: int) -> float:
    raise RuntimeError("a bug in it")


NONSENSE = [
    *("soon", "", None, True, -1, float("nan"), float("inf"), [5], object()),
    *(timedelta(days=-1), 10**400),
]


@pytest.mark.parametrize(
    "function",
    [
        raises,
        lambda: 5.0,
        lambda attempts, more: 5.0,
        *[lambda attempts, value=value: value for value in NONSENSE],
    ],
)
def test_a_function_that_fails_or_returns_nonsense_is_replaced(function: Any) -> None:
    """The failure of the job must be recorded, whatever its backoff does."""
    for attempts, lowest in [(1, 5.0), (3, 20.0)]:
        assert lowest <= backoff(function)(attempts) <= lowest * 1.1


def test_a_function_cannot_delay_a_job_by_more_than_a_year() -> None:
    assert backoff(lambda attempts: 50 * YEAR)(1) == YEAR


def test_a_task_uses_its_own_backoff_or_the_applications() -> None:
    app = Holdfast("sqlite:///x.db", backoff=3)
    own = app.task(backoff=lambda attempts: 9)(_nothing)
    other = app.task(name="other")(_nothing)
    assert (own.policy.backoff(1), other.policy.backoff(1)) == (9.0, 3.0)
    with pytest.raises(InvalidInput, match="backoff='soon'"):
        app.task(name="third", backoff="soon")(_nothing)


def _nothing() -> None: ...
