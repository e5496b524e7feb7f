"""A testbed for each test, on both engines."""

from pathlib import Path

import pytest

from tests.conftest import Database
from tests.crash.testbed import CrashTestbed


@pytest.fixture
def testbed(request: pytest.FixtureRequest, database: Database, tmp_path: Path) -> CrashTestbed:
    server = request.getfixturevalue("server") if database.kind == "postgres" else None
    return CrashTestbed(database.kind, database.url, database.schema, tmp_path, server)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Allow more time: these tests start and kill dozens of processes."""
    for item in items:
        if "crash" in item.path.parts:
            item.add_marker(pytest.mark.timeout(300))
