"""Schedules of any kind: what holds for all of them, and over a life with outages."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.jobs.backoff import Backoff
from holdfast.schedules.next_run import (
    Next,
    Schedule,
    after_success,
    first_run,
    from_json,
    is_missed,
    make_schedule,
    regular,
    to_json,
)

SECOND, DAY = timedelta(seconds=1), timedelta(days=1)
BACKOFFS = st.builds(
    Backoff,
    delay=st.floats(0, 1e6),
    multiplier=st.floats(1, 1000),
    cap=st.floats(0, 1e6),
    jitter=st.floats(0, 1),
)
CRONS = ["0 3 * * *", "*/5 * * * *", "30 2 * * *", "15 1-4 * * SUN", "0 */2 L * *", "10 0 29 2 *"]
ZONES = [None, "Europe/Paris", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Tokyo"]
PACES = st.one_of(
    st.fixed_dictionaries({"every": st.floats(0.1, 1e6)}),
    st.fixed_dictionaries({"cron": st.sampled_from(CRONS), "timezone": st.sampled_from(ZONES)}),
)
SCHEDULES = st.builds(
    lambda pace, missed, jitter, backoff: make_schedule(
        **pace, missed=missed, jitter=jitter, backoff=backoff
    ),
    pace=PACES,
    missed=st.sampled_from(["once", "skip", "all"]),
    jitter=st.floats(0, 0.1),
    backoff=st.none() | BACKOFFS,
)
MOMENTS = st.datetimes(
    datetime(2020, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC), allow_imaginary=False
)
OUTAGES = st.lists(st.tuples(st.integers(0, 5 * 86400), st.integers(1, 86400)), max_size=6)
LIVES = st.sampled_from(
    [
        {"every": "37m"},
        {"every": "37m", "jitter": "36m"},
        {"cron": "*/30 * * * *", "timezone": "Europe/Paris"},
        {"cron": "15 */2 * * *", "timezone": "Australia/Lord_Howe"},
        {"cron": "30 2,14 * * *", "timezone": "America/New_York"},
    ]
)
BEGIN = datetime(2026, 10, 23, 12, tzinfo=UTC)  # Paris puts its clock back two days later


@given(SCHEDULES)
def test_a_stored_schedule_is_read_back(schedule: Schedule) -> None:
    text = to_json(schedule)
    assert from_json(text) == schedule
    assert to_json(from_json(text)) == text


@given(SCHEDULES, MOMENTS, st.timedeltas(-DAY, 30 * DAY))
@settings(deadline=None)
def test_the_next_due_time_does_not_depend_on_the_path_to_it(
    schedule: Schedule, due: datetime, late: timedelta
) -> None:
    now = due + late
    found = regular(schedule, due, now)
    assert found is not None
    if schedule.every is not None and now < due:  # the clock went back: counted from now
        assert found == now + timedelta(seconds=schedule.every)
        return
    assert found > due
    if schedule.missed != "all":
        assert found > now
    if schedule.every is not None:
        period = timedelta(seconds=schedule.every)
        assert (found - due) % period == timedelta(0)
        assert found - period <= (due if schedule.missed == "all" else max(due, now))
    else:
        # There is no due time in between: from any time there, too, this one is the next.
        assert regular(schedule, found - SECOND, found - SECOND) == found


def live(
    schedule: Schedule, outages: list[tuple[int, int]], dice: random.Random
) -> list[tuple[datetime, datetime]]:
    """The runs of five days, as (due, begun); no worker runs during the outages."""
    downs = sorted(
        (BEGIN + timedelta(seconds=begin), BEGIN + timedelta(seconds=begin + length))
        for begin, length in outages
    )
    upcoming = Next(*[first_run(schedule, BEGIN)] * 2)
    runs: list[tuple[datetime, datetime]] = []
    now = BEGIN
    while True:
        now = max(now, upcoming.run_at)
        for begin, end in downs:
            now = end if begin <= now < end else now
        if now > BEGIN + 5 * DAY:
            return runs
        if not is_missed(schedule, due=upcoming.run_at, now=now):
            runs.append((upcoming.due_at, now))
            now += timedelta(seconds=dice.uniform(0, 20))
        following = after_success(schedule, due=upcoming.due_at, now=now, random=dice.random)
        assert following is not None
        upcoming = following


@given(LIVES, OUTAGES, st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=60)
def test_missed_all_runs_every_due_time_once(
    options: dict[str, Any], outages: list[tuple[int, int]], dice: random.Random
) -> None:
    schedule = make_schedule(**options, missed="all")
    dues = [due for due, _ in live(schedule, outages, dice)]
    moments = [first_run(schedule, BEGIN)]
    while len(moments) < len(dues):
        following = regular(schedule, moments[-1], moments[-1])
        assert following is not None
        moments.append(following)
    assert dues == moments[: len(dues)]


@given(LIVES, OUTAGES, st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=60)
def test_missed_once_runs_once_for_an_outage(
    options: dict[str, Any], outages: list[tuple[int, int]], dice: random.Random
) -> None:
    schedule = make_schedule(**options, missed="once")
    runs = live(schedule, outages, dice)
    for begin, length in outages:
        down = BEGIN + timedelta(seconds=begin)
        up = down + timedelta(seconds=length)
        late = [due for due, begun in runs if down <= due < up <= begun]
        assert len(late) <= 1
    dues = [due for due, _ in runs]
    assert dues == sorted(set(dues))


@given(LIVES, OUTAGES, st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=60)
def test_missed_skip_omits_late_runs(
    options: dict[str, Any], outages: list[tuple[int, int]], dice: random.Random
) -> None:
    schedule = make_schedule(**options, missed="skip")
    grace = timedelta(seconds=60 + 2 * schedule.jitter)
    assert all(begun - due <= grace for due, begun in live(schedule, outages, dice))
