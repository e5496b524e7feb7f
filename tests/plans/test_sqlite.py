"""SQLite: every statement walks an index, and takes as many steps in a large table as in a small."""

import contextlib
import sqlite3
from collections.abc import Iterator

import pytest

from holdfast.errors import HoldfastError
from tests.plans import access_cases, event_cases, workflow_cases  # noqa: F401 - their cases
from tests.plans.cases import CASES, Case
from tests.plans.conftest import LARGE, SMALL, TINY, SqliteDataset
from tests.plans.explained import Explained, growth, problems
from tests.plans.sqlite_probe import SqliteProbe

Worlds = dict[int, SqliteDataset]
EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def run(case: Case, filled: SqliteDataset, *before: str) -> list[Explained]:
    with contextlib.closing(SqliteProbe(filled.path)) as probe:
        return probe.run_case(case, filled.dataset, *before)


def learn(known: SqliteDataset) -> Iterator[str]:
    """What an application's own ANALYZE would leave behind; the library never asks for it."""
    for table, index, numbers in known.statistics:
        yield f"INSERT INTO sqlite_stat1 VALUES ('{table}', '{index}', '{numbers}')"
    yield "ANALYZE sqlite_schema"  # read them


@EVERY_CASE
@pytest.mark.parametrize("statistics", ["none", "fresh", "of a small table"])
def test_the_work_grows_with_the_batch_and_not_with_the_table(
    sqlite_datasets: Worlds, case: Case, statistics: str
):
    ran = {}
    for size in (SMALL, LARGE):
        known = {"none": None, "fresh": size, "of a small table": TINY}[statistics]
        before = [] if known is None else learn(sqlite_datasets[known])
        ran[size] = run(case, sqlite_datasets[size], *before)
    assert problems(case, ran[LARGE]) == []
    assert growth(ran[SMALL], ran[LARGE], factor=1.5, free=100) == []


# The primary key is the table, and cannot be dropped.
WITHOUT = [
    (case, index)
    for case in CASES
    for index in case.needs
    if index not in ("id", "attempts", "logs")
]


@pytest.mark.parametrize(
    ("case", "index"), WITHOUT, ids=[f"{case.name} without {index}" for case, index in WITHOUT]
)
def test_a_lost_index_is_noticed(sqlite_datasets: Worlds, case: Case, index: str):
    """The check of the check: without the index that it needs, a case must be found out."""
    try:
        ran = run(case, sqlite_datasets[SMALL], f"DROP INDEX holdfast_jobs_{index}")
    except (sqlite3.OperationalError, HoldfastError) as problem:
        if "no such index" not in str(problem):  # which is what a statement that names it says
            raise
    else:
        assert problems(case, ran) != []


def test_finish_goes_by_primary_key(sqlite_datasets: Worlds):
    [case] = [case for case in CASES if case.name == "finish"]
    for known in (None, SMALL, TINY):
        before = [] if known is None else learn(sqlite_datasets[known])
        ran = run(case, sqlite_datasets[SMALL], *before)
        plans = {one.name: one.plan for one in ran if one.sql.startswith("UPDATE holdfast_jobs")}
        by_key = "SEARCH holdfast_jobs USING PRIMARY KEY (id=?)"
        assert plans.keys() == {"complete", "finish"}
        assert plans["complete"].splitlines()[0] == by_key
        assert plans["finish"] == by_key
