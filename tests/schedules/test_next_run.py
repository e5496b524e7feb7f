"""Schedules: what makes one, how it is kept, and when the next run is."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from holdfast.errors import InvalidInput
from holdfast.jobs.backoff import Backoff
from holdfast.schedules.next_run import (
    Next,
    Schedule,
    after_failure,
    after_success,
    first_run,
    from_json,
    in_words,
    is_missed,
    make_schedule,
    regular,
    spread,
    to_json,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = (timedelta(seconds=size) for size in (1, 60, 3600, 86400))
HALF_HOURLY = make_schedule(every="30m")
NIGHTLY = make_schedule(cron="0 3 * * *")
SILENT = make_schedule()


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# making one


def test_a_schedule_is_an_interval_or_cron_or_decided_by_the_runs() -> None:
    assert make_schedule(every="1h 30m") == Schedule(every=5400.0)
    assert make_schedule(every=timedelta(days=1), missed="all").missed == "all"
    assert make_schedule(cron=" 0   3 * *\tMON ") == Schedule(cron="0 3 * * MON")
    assert make_schedule() == Schedule()
    assert make_schedule(every=0.1).every == 0.1


def test_cron_nicknames_become_five_fields() -> None:
    words = ("@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@ANNUALLY")
    assert [make_schedule(cron=word).cron for word in words] == [
        *("0 * * * *", "0 0 * * *", "0 0 * * *", "0 0 * * 0"),
        *("0 0 1 * *", "0 0 1 1 *", "0 0 1 1 *"),
    ]


def test_utc_has_one_spelling() -> None:
    assert make_schedule(cron="0 3 * * *", timezone="UTC") == NIGHTLY
    assert make_schedule(cron="0 3 * * *", timezone="Europe/Paris").timezone == "Europe/Paris"


def test_a_duration_as_backoff_is_a_constant_delay() -> None:
    backoff = make_schedule(every=60, backoff="2h").backoff
    assert backoff == Backoff(delay=7200, multiplier=1, cap=7200, jitter=0)
    assert [backoff.after(failures) for failures in (1, 2, 50)] == [7200.0] * 3
    assert make_schedule(every=60, backoff=Backoff(delay=1)).backoff == Backoff(delay=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 60, "cron": "0 3 * * *"}, "every=60 and cron='0 3 .*one of them"),
        ({"every": 0}, "every=0: an interval is at least 0.1 s"),
        ({"every": "50ms"}, "at least 0.1 s"),
        ({"every": -5}, "every=-5: give seconds"),
        ({"every": "soon"}, "every='soon': give seconds"),
        ({"every": True}, "every=True"),
        ({"timezone": "Europe/Paris"}, "timezone='Europe/Paris' is for cron"),
        ({"every": 60, "timezone": "Europe/Paris"}, "is for cron"),
        ({"cron": "0 3 * * *", "timezone": "Mars/Base"}, "'Mars/Base'.*IANA.*pip install tzdata"),
        ({"cron": "0 3 * * *", "timezone": "America"}, "no such time zone"),
        ({"cron": "0 3 * * *", "timezone": "../../etc/passwd"}, "no such time zone"),
        ({"cron": "0 3 * * *", "timezone": ""}, "no such time zone"),
        ({"cron": "0 3 * * *", "timezone": UTC}, "give an IANA name"),
        ({"cron": "", "timezone": None}, "cron='': give five fields"),
        ({"cron": "0 3 * *"}, "give five fields"),
        ({"cron": "0 0 3 * * *"}, "give five fields.*under a minute there is every="),
        ({"cron": "@reboot"}, "@reboot.*one of @hourly"),
        ({"cron": 5}, "cron='5': give a string"),
        ({"cron": "60 3 * * *"}, "bad minute"),
        ({"cron": "0 24 * * *"}, "bad hour"),
        ({"cron": "0 3 * * FUNDAY"}, "bad day-of-week"),
        ({"cron": "0 3 30 2 *"}, "bad day-of-month.*30 February"),
        ({"cron": "* * */20 * 1L"}, "no day in 50 years"),  # the 1st or 21st, and the last Monday
        ({"cron": "0 0 */30 2 1#5"}, "no day in 50 years"),
        ({"cron": ",".join(["0"] * 60) + " 3 * * *"}, "at most 100 characters"),
        ({"every": 60, "missed": "twice"}, "missed='twice': give 'once'"),
        ({"missed": "skip"}, "missed='skip' is for every and cron"),
        ({"every": 60, "jitter": 61}, "jitter=61: at most one interval"),
        ({"cron": "0 3 * * *", "jitter": "2d"}, "at most a day"),
        ({"every": 60, "jitter": -1}, "jitter=-1"),
        ({"every": 60, "backoff": "never"}, "backoff='never'"),
        (
            {"every": 60, "backoff": lambda failures: 5},
            r"a function cannot be stored with the row: give it to @app.task\(backoff=...\)",
        ),
    ],
)
def test_invalid_schedules_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make_schedule(**options)


# keeping it


def test_the_stored_text_is_short_sorted_and_without_defaults() -> None:
    assert to_json(SILENT) == "{}"
    assert to_json(HALF_HOURLY) == '{"every":1800}'
    assert to_json(make_schedule(every=0.5)) == '{"every":0.5}'
    paris = make_schedule(cron="0 3 * * *", timezone="Europe/Paris", missed="skip", jitter="1m")
    assert to_json(paris) == (
        '{"cron":"0 3 * * *","jitter":60,"missed":"skip","timezone":"Europe/Paris"}'
    )
    assert to_json(make_schedule(backoff=Backoff())) == (
        '{"backoff":{"cap":3600,"delay":5,"jitter":0.1,"multiplier":2}}'
    )


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "null", "5", "{", '{"every":"x"}', '{"later":1}', '{"missed":"twice"}'),
        *('{"backoff":5}', '{"backoff":{"delay":-1}}', '{"every":null}'),
    ],
)
def test_an_unreadable_stored_schedule_is_named(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"schedule .* of a stored job cannot be read"):
        from_json(text)


def test_an_unknown_time_zone_can_be_shown_and_is_named_when_needed() -> None:
    schedule = from_json('{"cron":"0 3 * * *","timezone":"Mars/Base"}')
    assert in_words(schedule) == "at 03:00 every day (Mars/Base)"
    with pytest.raises(InvalidInput, match="'Mars/Base'"):
        regular(schedule, NOON, NOON)


def test_a_stored_expression_that_never_matches_is_named() -> None:
    with pytest.raises(InvalidInput, match="no moment in the 50 years after 2026-03-01"):
        regular(Schedule(cron="* * */20 * 1L"), NOON, NOON)
    with pytest.raises(InvalidInput, match="no moment in the 50 years"):
        regular(Schedule(cron="0 0 30 2 *", timezone="Europe/Paris"), NOON, NOON)
    with pytest.raises(InvalidInput, match="no moment in the 50 years"):
        regular(Schedule(cron="0 0 */31 2 5#5", timezone="Europe/Paris"), NOON, NOON)


# the next due time


def test_the_first_run_is_at_the_given_start_or_crons_next_or_now() -> None:
    start = datetime(2026, 5, 1, 8, tzinfo=timezone(2 * HOUR))
    for schedule in (HALF_HOURLY, NIGHTLY, SILENT):
        assert first_run(schedule, NOON, start) == at("2026-05-01T06:00")
    assert first_run(HALF_HOURLY, NOON) == first_run(SILENT, NOON) == NOON
    assert first_run(NIGHTLY, NOON) == at("2026-03-02T03:00")
    with pytest.raises(InvalidInput, match=r"start=.*timezone"):
        first_run(NIGHTLY, NOON, datetime(2026, 5, 1))


@pytest.mark.parametrize(
    ("missed", "late", "expected"),
    [
        ("once", timedelta(0), 30 * MINUTE),
        ("once", 10 * MINUTE, 30 * MINUTE),
        ("once", 30 * MINUTE, 60 * MINUTE),  # a due time that is now is not after now
        ("once", 95 * MINUTE, 120 * MINUTE),
        ("skip", 95 * MINUTE, 120 * MINUTE),
        ("all", 10 * MINUTE, 30 * MINUTE),
        ("all", 95 * MINUTE, 30 * MINUTE),
        ("once", -10 * MINUTE, 20 * MINUTE),  # the clock went back
        ("once", -DAY, 30 * MINUTE - DAY),
        ("skip", -DAY, 30 * MINUTE - DAY),
        ("all", -DAY, 30 * MINUTE - DAY),
    ],
)
def test_intervals_are_counted_from_the_due_time(
    missed: Any, late: timedelta, expected: timedelta
) -> None:
    schedule = make_schedule(every="30m", missed=missed)
    assert regular(schedule, NOON, NOON + late) == NOON + expected


@pytest.mark.parametrize(
    ("missed", "now", "expected"),
    [
        ("once", "2026-03-02T03:00:10", "2026-03-03T03:00"),
        ("once", "2026-03-05T11:00:00", "2026-03-06T03:00"),
        ("all", "2026-03-05T11:00:00", "2026-03-03T03:00"),
        ("once", "2026-03-02T02:59:59", "2026-03-03T03:00"),  # the clock went back
    ],
)
def test_cron_times_follow_each_other(missed: Any, now: str, expected: str) -> None:
    schedule = make_schedule(cron="0 3 * * *", missed=missed)
    assert regular(schedule, at("2026-03-02T03:00"), at(now)) == at(expected)


def test_a_schedule_decided_by_its_runs_has_no_next_time() -> None:
    assert regular(SILENT, NOON, NOON) is None
    assert after_success(SILENT, due=NOON, now=NOON) is None


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        # Put back at 01:00 UTC: 2:00 to 3:00 comes twice. CronSim alone gives 00:30 for the first.
        ("30 2 * * *", "2026-10-25T01:15", "2026-10-26T01:30"),
        ("30 2 * * *", "2026-10-25T00:15", "2026-10-25T00:30"),
        ("*/30 2 * * *", "2026-10-25T00:45", "2026-10-25T01:00"),
        ("0 * * * *", "2026-10-25T00:00", "2026-10-25T01:00"),
        # Put forward at 01:00 UTC: 2:00 to 3:00 is left out.
        ("30 2 * * *", "2026-03-29T00:59:59", "2026-03-29T01:00"),
        ("30 2 * * *", "2026-03-29T01:00", "2026-03-30T00:30"),
        ("*/30 2 * * *", "2026-03-29T00:45", "2026-03-30T00:00"),
        ("0 3 * * *", "2026-03-28T12:00", "2026-03-29T01:00"),
        # A year ahead, with two changes between: the first of the two passes.
        ("*/30 2 25 10 *", "2025-10-26T12:00", "2026-10-25T00:00"),
    ],
)
def test_cron_in_paris_across_daylight_saving_changes(cron: str, after: str, expected: str) -> None:
    schedule = make_schedule(cron=cron, timezone="Europe/Paris")
    found = regular(schedule, at(after), at(after))
    assert found == at(expected)
    assert found.utcoffset() == timedelta(0)


def test_a_distant_date_is_found_across_many_clock_changes() -> None:
    schedule = make_schedule(cron="*/30 14 29 2 *", timezone="America/New_York")
    assert regular(schedule, NOON, NOON) == at("2028-02-29T19:00")


# jitter


def test_jitter_delays_the_run_and_not_the_due_time() -> None:
    schedule = make_schedule(every="30m", jitter="5m")
    for roll, more in ((0.0, 0 * MINUTE), (0.5, 2.5 * MINUTE), (1.0, 5 * MINUTE)):
        found = after_success(schedule, due=NOON, now=NOON + MINUTE, random=iter([roll]).__next__)
        assert found == Next(run_at=NOON + 30 * MINUTE + more, due_at=NOON + 30 * MINUTE)
    assert spread(schedule, NOON, lambda: 0.2) == Next(NOON + MINUTE, NOON)
    rolled = {spread(schedule, NOON).run_at for _ in range(50)}
    assert len(rolled) > 1
    assert all(NOON <= run_at <= NOON + 5 * MINUTE for run_at in rolled)


# failures


def doubling(failures: int) -> float:
    return 5.0 * 2.0 ** (failures - 1)


@pytest.mark.parametrize(
    ("schedule", "failures", "exact", "run_at", "due_at"),
    [
        # Retried soon, for the same due time ...
        (HALF_HOURLY, 1, False, 65 * SECOND, 0 * SECOND),
        (HALF_HOURLY, 4, False, 100 * SECOND, 0 * SECOND),
        (NIGHTLY, 4, False, 100 * SECOND, 0 * SECOND),
        # ... but no later than the next one, ...
        (HALF_HOURLY, 10, False, 30 * MINUTE, 30 * MINUTE),
        (NIGHTLY, 20, False, 15 * HOUR, 15 * HOUR),
        # ... unless the delay was chosen.
        (HALF_HOURLY, 10, True, 2620 * SECOND, 0 * SECOND),
        (make_schedule(every="30m", backoff="2h"), 1, False, 2 * HOUR + MINUTE, 0 * SECOND),
        (make_schedule(every="30m", backoff="1s"), 9, False, 61 * SECOND, 0 * SECOND),
        # Nothing to be earlier than.
        (SILENT, 1, False, 65 * SECOND, 0 * SECOND),
        (SILENT, 12, False, 10300 * SECOND, 0 * SECOND),
        # Each due time until a run for it succeeds.
        (make_schedule(every="30m", missed="all"), 10, False, 30 * MINUTE, 0 * SECOND),
        (make_schedule(every="30m", missed="skip"), 10, False, 30 * MINUTE, 30 * MINUTE),
    ],
)
def test_the_next_run_after_a_failure(
    schedule: Schedule, failures: int, exact: bool, run_at: timedelta, due_at: timedelta
) -> None:
    found = after_failure(
        schedule, due=NOON, now=NOON + MINUTE, failures=failures, fallback=doubling, exact=exact
    )
    assert found == Next(NOON + run_at, NOON + due_at)


def test_a_failing_job_does_not_run_its_missed_times_in_a_burst() -> None:
    schedule = make_schedule(every="30m", missed="all")
    now = NOON + 10 * HOUR + MINUTE
    options: dict[str, Any] = {"due": NOON, "now": now, "fallback": doubling, "exact": False}
    assert after_failure(schedule, failures=1, **options) == Next(now + 5 * SECOND, NOON)
    assert after_failure(schedule, failures=15, **options) == Next(now + 29 * MINUTE, NOON)


def test_jitter_applies_to_regular_runs_and_not_to_retries() -> None:
    schedule = make_schedule(every="30m", jitter="10m")
    options: dict[str, Any] = {"due": NOON, "now": NOON + MINUTE, "fallback": doubling}
    options |= {"exact": False, "random": lambda: 0.5}
    early = after_failure(schedule, failures=1, **options)
    late = after_failure(schedule, failures=12, **options)
    assert early == Next(NOON + 65 * SECOND, NOON)
    assert late == Next(NOON + 35 * MINUTE, NOON + 30 * MINUTE)


def test_the_regular_times_continue_after_retries() -> None:
    schedule = make_schedule(every="30m", backoff=Backoff(delay="50m", multiplier=1, jitter=0))
    failed = after_failure(
        schedule, due=NOON, now=NOON + MINUTE, failures=1, fallback=doubling, exact=False
    )
    assert failed == Next(NOON + 51 * MINUTE, NOON)
    then = after_success(schedule, due=failed.due_at, now=failed.run_at + SECOND)
    assert then == Next(NOON + HOUR, NOON + HOUR)


# late runs, and descriptions


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"every": "30m"}, 60.0),
        ({"every": 5}, 5.0),
        ({"cron": "0 3 * * *"}, 60.0),
        ({"every": "30m", "jitter": 20}, 80.0),
        ({"every": 5, "jitter": 2}, 7.0),
    ],
)
def test_a_run_counts_as_missed_a_minute_or_an_interval_late(
    options: dict[str, Any], limit: float
) -> None:
    schedule = make_schedule(**options, missed="skip")
    last = NOON + timedelta(seconds=limit)
    assert not is_missed(schedule, due=NOON, now=NOON - HOUR)
    assert not is_missed(schedule, due=NOON, now=last)
    assert is_missed(schedule, due=NOON, now=last + timedelta(microseconds=1))
    for missed in ("once", "all"):
        assert not is_missed(make_schedule(**options, missed=missed), due=NOON, now=NOON + DAY)


def test_a_run_of_a_job_that_decides_its_next_run_is_never_skipped() -> None:
    """It would not run again: only a run can say when the next is."""
    assert not is_missed(Schedule(missed="skip"), due=NOON, now=NOON + DAY)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "decided by each run"),
        ({"every": 1}, "every second"),
        ({"every": 0.25}, "every 0.25 seconds"),
        ({"every": 90}, "every 90 seconds"),
        ({"every": "1m"}, "every minute"),
        ({"every": "30m"}, "every 30 minutes"),
        ({"every": "90m"}, "every 90 minutes"),
        ({"every": "1h"}, "every hour"),
        ({"every": "36h"}, "every 36 hours"),
        ({"every": "1w"}, "every 7 days"),
        ({"cron": "0 3 * * *"}, "at 03:00 every day (UTC)"),
        ({"cron": "0 3 * * *", "timezone": "Europe/Paris"}, "at 03:00 every day (Europe/Paris)"),
        ({"cron": "*/5 * * * mon"}, "every fifth minute of every hour on Monday (UTC)"),
    ],
)
def test_a_schedule_is_described_in_words(options: dict[str, Any], words: str) -> None:
    assert in_words(make_schedule(**options)) == words
