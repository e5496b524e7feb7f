from pathlib import Path

import pytest

from tests.conftest import Database
from tests.crash import migrations
from tests.crash.testbed import CrashTestbed


@pytest.fixture
def testbed(
    request: pytest.FixtureRequest, bare_database: Database, tmp_path: Path
) -> CrashTestbed:
    server = request.getfixturevalue("server") if bare_database.kind == "postgres" else None
    return CrashTestbed(
        bare_database.kind, bare_database.url, bare_database.schema, tmp_path, server
    )


def test_workers_keep_working_while_the_tables_are_migrated(testbed: CrashTestbed) -> None:
    report = migrations.run(testbed, rows=50_000, release="", stall=10.0)
    assert report.problems == []
