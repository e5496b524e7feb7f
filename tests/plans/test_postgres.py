"""PostgreSQL: every statement walks an index, whatever the settings, with plans of either kind."""

import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from holdfast.engine.records import Filter
from holdfast.engine.script import Statements
from holdfast.engine.sqlite.engine import WORDS
from holdfast.jobs.job import Status
from tests.plans import access_cases, event_cases, workflow_cases  # noqa: F401 - their cases
from tests.plans.cases import CASES, LIMIT, Case
from tests.plans.conftest import (
    SMALL,
    FilledAfterPrepare,
    PostgresDatasets,
    SqliteDatasets,
    make_tables,
)
from tests.plans.dataset import OnlyCompleted, fill_postgres
from tests.plans.explained import growth, problems
from tests.plans.postgres_probe import Explain, PostgresProbe, ProbeConnection, custom, generic
from tests.plans.sqlite_probe import SqliteProbe

EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
# Sessions of ours always plan for any parameters.
MODES = [
    pytest.param((library, plan), id=f"{'library' if library else 'default'}-{plan.__name__}")
    for library, plan in ((True, generic), (False, custom), (False, generic))
]


@pytest.fixture(scope="module", params=MODES)
def mode(
    request: pytest.FixtureRequest, postgres_datasets: PostgresDatasets
) -> Iterator[tuple[ProbeConnection, Explain]]:
    """With the library's session settings or the server's own (a pooler, the caller's connection);
    with plans for the parameters or for any."""
    library, plan = request.param
    with contextlib.closing(ProbeConnection.open(postgres_datasets.url, library=library)) as opened:
        yield opened, plan


@EVERY_CASE
def test_the_work_grows_with_the_batch_and_not_with_the_table(
    mode: Any, postgres_datasets: PostgresDatasets, case: Case
):
    connection, plan = mode
    less = PostgresProbe(connection, "small", plan).run_case(case, postgres_datasets.small)
    more = PostgresProbe(connection, "large", plan).run_case(case, postgres_datasets.large)
    assert problems(case, more) == []
    assert growth(less, more, factor=2.0, free=400) == []


@EVERY_CASE
@pytest.mark.parametrize("plan", [custom, generic], ids=["custom", "generic"])
def test_plans_without_statistics_use_indexes(
    filled_after_prepare: FilledAfterPrepare, case: Case, plan: Explain
):
    """Much was enqueued, and autovacuum has not come yet."""
    assert problems(case, filled_after_prepare.without_statistics(case, plan), by_name=False) == []


def test_plans_made_on_empty_tables_walk_indexes(filled_after_prepare: FilledAfterPrepare):
    assert [found.says("scans") for found in filled_after_prepare.when_empty if found.scans] == []


@EVERY_CASE
def test_plans_made_on_empty_tables_stay_efficient(
    filled_after_prepare: FilledAfterPrepare, case: Case
):
    """A prepared statement keeps the plan that was made before the first job came."""
    assert problems(case, filled_after_prepare.with_kept_plans(case), by_name=False) == []


def test_finish_goes_by_primary_key(
    mode: Any, filled_after_prepare: FilledAfterPrepare, postgres_datasets: PostgresDatasets
):
    """The index of running rows would be walked past every row that left it since the vacuum."""
    [case] = [case for case in CASES if case.name == "finish"]
    connection, plan = mode
    ran = [
        *PostgresProbe(connection, "large", plan).run_case(case, postgres_datasets.large),
        *PostgresProbe(connection, "small", plan).run_case(case, postgres_datasets.small),
        *filled_after_prepare.without_statistics(case, plan),
        *filled_after_prepare.with_kept_plans(case),
    ]
    finishes = [one for one in ran if one.name in ("complete", "finish")]
    assert {one.name for one in finishes} == {"complete", "finish"}
    assert len(finishes) == 8
    assert [one.plan for one in finishes if one.indexes != {"id"}] == []


@pytest.mark.parametrize("library", [True, False], ids=["library", "default"])
def test_pages_of_identical_jobs_are_efficient(postgres_datasets: PostgresDatasets, library: bool):
    """With statistics of one status, the planner expects that any index finds a job immediately."""
    url, schema = postgres_datasets.url, f"alike_{library}".lower()
    make_tables(url, schema)
    with psycopg.connect(url, autocommit=True) as filling:
        fill_postgres(filling, schema, OnlyCompleted(SMALL))
        filling.execute(f"VACUUM (ANALYZE) {schema}.jobs")
    plan = generic if library else custom  # as sessions of a pooler do
    with contextlib.closing(ProbeConnection.open(url, library=library)) as connection:
        probe = PostgresProbe(connection, schema, plan)
        connection.probe = probe
        for wanted in (Filter(status=frozenset({Status.COMPLETED})), Filter(entity=("order", "3"))):
            page = probe.search(wanted, limit=LIMIT)
            probe.search(wanted, after=page.next, limit=LIMIT)
    assert len(probe.explained) == 4
    assert [one.says("rows") for one in probe.explained if one.rows > 2 * LIMIT or one.scans] == []


LOSE = {
    "id": "ALTER TABLE small.jobs DROP CONSTRAINT jobs_pkey CASCADE",
    "attempts": "ALTER TABLE small.attempts DROP CONSTRAINT attempts_pkey",
    "logs": "ALTER TABLE small.logs DROP CONSTRAINT logs_pkey",
}
WITHOUT = [(case, index) for case in CASES for index in case.needs]


@pytest.fixture(scope="module")
def connection(postgres_datasets: PostgresDatasets) -> Iterator[ProbeConnection]:
    with contextlib.closing(ProbeConnection.open(postgres_datasets.url, library=True)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("case", "index"), WITHOUT, ids=[f"{case.name} without {index}" for case, index in WITHOUT]
)
def test_a_lost_index_is_noticed(
    connection: ProbeConnection, postgres_datasets: PostgresDatasets, case: Case, index: str
):
    """The check of the check: without the index that it needs, a case must be found out."""
    probe = PostgresProbe(connection, "small", custom)
    lose = LOSE.get(index, f"DROP INDEX small.jobs_{index}")
    assert problems(case, probe.run_case(case, postgres_datasets.small, lose)) != []


def test_every_statement_has_a_case(
    filled_after_prepare: FilledAfterPrepare, sqlite_datasets: SqliteDatasets
):
    """A new statement cannot come without a look at its plan: on some engine a case must run it."""
    ran = {
        one.name for case in CASES for one in filled_after_prepare.without_statistics(case, custom)
    }
    for case in CASES:
        with contextlib.closing(SqliteProbe(sqlite_datasets[SMALL].path)) as probe:
            ran |= {one.name for one in probe.run_case(case, sqlite_datasets[SMALL].dataset)}
    assert ran == set(Statements("sqlite", WORDS)) | set(Statements("postgres", WORDS))
    assert {f"search-{status}" for status in Status} <= {case.name for case in CASES}
