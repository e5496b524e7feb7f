"""PostgreSQL: every statement walks an index, whatever the settings, with plans of either kind."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.plans.cases import CASES, Case
from tests.plans.conftest import Grown, PostgresWorlds
from tests.plans.explained import growth, problems
from tests.plans.postgres_probe import PostgresProbe, custom, generic

EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
MODES = [
    pytest.param((library, plan), id=f"{'library' if library else 'default'}-{plan.__name__}")
    for library in (True, False)
    for plan in (custom, generic)
]
Open = Callable[[str], PostgresProbe]


@pytest.fixture(scope="module", params=MODES)
def opened(request: pytest.FixtureRequest, postgres_worlds: PostgresWorlds) -> Iterator[Any]:
    """An engine on the large tables and one on the small: with the library's session settings or
    the server's own (a pooler, the caller's connection), with plans for the parameters or for any."""
    library, plan = request.param
    with (
        contextlib.closing(
            PostgresProbe(postgres_worlds.url, "large", plan, library=library)
        ) as large,
        contextlib.closing(
            PostgresProbe(postgres_worlds.url, "small", plan, library=library)
        ) as small,
    ):
        yield large, small


@EVERY_CASE
def test_work_follows_the_batch(opened: Any, postgres_worlds: PostgresWorlds, case: Case):
    large, small = opened
    less = small.run_case(case, postgres_worlds.small)
    more = large.run_case(case, postgres_worlds.large)
    assert problems(case, more) == []
    assert growth(less, more, factor=2.0, free=400) == []


@EVERY_CASE
def test_plans_without_statistics(grown: Grown, case: Case):
    """Much was enqueued, and autovacuum has not come yet."""
    assert problems(case, grown.fresh.run_case(case, grown.world), by_name=False) == []


def test_plans_made_on_empty_tables_walk_indexes(grown: Grown):
    assert [found.says("scans") for found in grown.when_empty if found.scans] == []


@EVERY_CASE
def test_plans_made_on_empty_tables_stay_good(grown: Grown, case: Case):
    """A prepared statement keeps the plan that was made before the first job came."""
    assert problems(case, grown.kept.run_case(case, grown.world), by_name=False) == []


def test_finish_goes_by_primary_key(opened: Any, grown: Grown, postgres_worlds: PostgresWorlds):
    """The index of running rows would be walked past every row that left it since the vacuum."""
    [case] = [case for case in CASES if case.name == "finish"]
    probes = [(opened[0], postgres_worlds.large), (opened[1], postgres_worlds.small)]
    for probe, world in [*probes, (grown.kept, grown.world), (grown.fresh, grown.world)]:
        [finish] = [one for one in probe.run_case(case, world) if one.name == "finish"]
        assert finish.indexes == {"id"}, finish.plan


LOSE = {
    "id": "ALTER TABLE small.jobs DROP CONSTRAINT jobs_pkey CASCADE",
    "attempts": "ALTER TABLE small.attempts DROP CONSTRAINT attempts_pkey",
}
WITHOUT = [(case, index) for case in CASES for index in case.needs]


@pytest.fixture(scope="module")
def small(postgres_worlds: PostgresWorlds) -> Iterator[PostgresProbe]:
    with contextlib.closing(PostgresProbe(postgres_worlds.url, "small", custom)) as probe:
        yield probe


@pytest.mark.parametrize(
    ("case", "index"), WITHOUT, ids=[f"{case.name} without {index}" for case, index in WITHOUT]
)
def test_a_lost_index_is_noticed(
    small: PostgresProbe, postgres_worlds: PostgresWorlds, case: Case, index: str
):
    """The check of the check: without the index that it needs, a case must be found out."""
    lose = LOSE.get(index, f"DROP INDEX small.jobs_{index}")
    assert problems(case, small.run_case(case, postgres_worlds.small, lose)) != []
