"""Histograms, figures, and how a worker counts its runs."""

import json
import math
from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.ids import new_id
from holdfast.errors import DatabaseUnavailable
from holdfast.jobs.job import Job, Status
from holdfast.jobs.outcome import (
    Outcome,
    Recur,
    completed,
    crashed,
    failed,
    released,
    retry_later,
    snoozed,
    stopped,
)
from holdfast.monitoring.metrics import (
    ERROR,
    LEAST_ERROR,
    Histogram,
    Point,
    Rollup,
    Total,
    figures,
    histogram_of,
    kind_of,
    merge,
    since,
    whole_series,
)
from holdfast.worker.housekeeping import rollup_writer
from holdfast.worker.housekeeping.rollup_writer import RollupWriter

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
times = st.lists(st.floats(0, 10_000_000), min_size=1, max_size=200)


def of(values: list[float]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    return histogram


@given(times, st.floats(0.01, 1))
def test_a_quantile_is_off_by_less_than_a_tenth(values: list[float], part: float) -> None:
    exact = sorted(values)[math.ceil(part * len(values)) - 1]
    found = of(values).quantile(part)
    assert found is not None
    assert abs(found - exact) <= max(ERROR * exact, LEAST_ERROR) * (1 + 1e-9)
    assert ERROR < 0.1


@given(times, times)
def test_histograms_add_up_also_as_text(some: list[float], more: list[float]) -> None:
    together = of(some + more)
    text = f"{of(some).to_json()},{of(more).to_json()}"
    assert merge([of(some), of(more)]) == together == histogram_of(text)
    assert together.total() == len(some) + len(more)
    assert len(json.loads(together.to_json())) <= 200  # however long


def test_nothing_has_no_quantile() -> None:
    assert Histogram().quantile(0.5) is None
    nothing = figures([], 60)
    assert (nothing.finished, nothing.failure_rate, nothing.per_minute) == (0, 0.0, 0.0)
    assert (nothing.wait.count, nothing.wait.average, nothing.run.p95) == (0, None, None)


def test_figures_are_of_all_together() -> None:
    totals = [
        Total("a", "q", 8, 1, 0, 5, 14.0, 28.0, of([1.0] * 14), of([2.0] * 14)),
        Total("b", "q", 0, 1, 2, 0, 0.0, 3.0, of([0.0] * 3), of([1.0] * 3)),
    ]
    found = figures(totals, 120)
    assert (found.completed, found.failed, found.cancelled, found.retried) == (8, 2, 2, 5)
    assert (found.finished, found.failure_rate, found.per_minute) == (12, 2 / 12, 6.0)
    assert (found.wait.count, found.wait.average, found.run.average) == (17, 14 / 17, 31 / 17)
    assert found.wait.p50 == pytest.approx(1.0, rel=ERROR)


def test_a_window_is_whole_minutes_up_to_the_running_one() -> None:
    now = NOON + timedelta(seconds=30)
    assert since(now, 60) == NOON
    assert since(now, 3600) == NOON - 59 * MINUTE
    seen = Point(at=NOON - MINUTE, completed=3)
    series = whole_series([seen], since(now, 180), now)
    assert [point.at for point in series] == [NOON - 2 * MINUTE, NOON - MINUTE, NOON]
    assert [point.finished for point in series] == [0, 3, 0]


# how a worker counts its runs


def job() -> Job:
    absent = dict.fromkeys(
        field.name for field in fields(Job) if field.default is MISSING and field.kw_only
    )
    given: dict[str, Any] = {
        **absent,
        "id": new_id(),
        "type": "send",
        "queue": "default",
        "status": Status.RUNNING,
        "attempts": 1,
        "claim_no": 1,
        "worker_id": "w",
        "created_at": NOON - MINUTE,
        "run_at": NOON - 2 * MINUTE,
        "started_at": NOON - timedelta(seconds=50),
    }
    return Job(**given)


def test_which_ends_are_counted() -> None:
    one = job()
    kinds = [
        kind_of(finish)
        for finish in (
            completed(one, keep=1),
            failed(one, "E: no", keep=1),
            stopped(one, keep=1),
            retry_later(one, "E: no", delay=1),
            crashed(one, "died", delay=1),
            snoozed(one, delay=1),
            released(one),
        )
    ]
    assert kinds == ["completed", "failed", "cancelled", "retried", "retried", None, None]


@pytest.mark.parametrize(
    ("error", "ran", "stopped", "kind"),
    [
        (None, True, False, "completed"),
        ("E: no", True, False, "failed"),
        (None, True, True, "cancelled"),
        (None, False, False, None),
    ],
)
def test_runs_of_recurring_jobs_end_for_themselves(
    error: str | None, ran: bool, stopped: bool, kind: str | None
) -> None:
    finish = completed(job(), keep=1)
    finish.outcome, finish.error = Outcome.RECURRED, error  # type: ignore[misc]
    finish.recur = Recur(NOON, NOON, ran, stopped)  # type: ignore[misc]
    assert kind_of(finish) == kind


class Database:
    """What was written, by minute, as the last write left it."""

    def __init__(self) -> None:
        self.rows: dict[datetime, Rollup] = {}
        self.writes = 0
        self.away = False

    def roll_up(self, rollups: list[Rollup]) -> None:
        if self.away:
            raise DatabaseUnavailable("away")
        self.writes += bool(rollups)
        self.rows.update({rollup.minute: rollup for rollup in rollups})


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
def counting(database: Database) -> RollupWriter:
    return RollupWriter(database)  # type: ignore[arg-type]


def test_a_run_is_timed_from_due_or_made(counting: RollupWriter, database: Database) -> None:
    """It was due before it was made; it waited from then on."""
    one = job()
    counting.count(one, completed(one, keep=1), NOON)
    counting.write()
    row = database.rows[NOON]
    assert (row.wait, row.run, row.worker_id) == (10.0, 50.0, "w")
    assert (row.waits.total(), row.runs.total()) == (1, 1)


def test_a_minute_is_written_whole_again_and_again(
    counting: RollupWriter, database: Database
) -> None:
    one = job()
    for number in range(1, 4):
        counting.count(one, completed(one, keep=1), NOON + timedelta(seconds=number))
        assert sum(row.completed for row in database.rows.values()) == number - 1  # not yet
        counting.write()
        assert database.rows[NOON].completed == number
    counting.write()
    assert database.writes == 3  # nothing new: nothing is written


def test_what_cannot_be_written_is_written_later(
    counting: RollupWriter, database: Database
) -> None:
    one = job()
    database.away = True
    for number in range(10):
        counting.count(one, failed(one, "E: no", keep=1), NOON + number * MINUTE)
        with pytest.raises(DatabaseUnavailable):
            counting.write()
    database.away = False
    counting.write()
    assert [row.failed for row in database.rows.values()] == [1] * 10
    assert len(counting._rollups) == 3  # those that may still be added to


def test_while_the_database_is_away_for_long_the_oldest_are_forgotten(
    counting: RollupWriter, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollup_writer, "ROWS", 5)
    one = job()
    database.away = True
    for number in range(10):
        counting.count(one, completed(one, keep=1), NOON + number * MINUTE)
        with pytest.raises(DatabaseUnavailable):
            counting.write()
    database.away = False
    counting.write()
    assert sorted(database.rows) == [NOON + number * MINUTE for number in range(5, 10)]


def test_a_clock_that_is_set_back_undoes_nothing(
    counting: RollupWriter, database: Database
) -> None:
    one = job()
    for moment in (NOON, NOON, NOON + 5 * MINUTE, NOON):
        counting.count(one, completed(one, keep=1), moment)
        counting.write()
    assert database.rows[NOON].completed == 2
    assert sum(row.completed for row in database.rows.values()) == 4
