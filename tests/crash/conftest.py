"""A scene for each test: on both engines, as `database` is."""

from pathlib import Path

import pytest

from tests.conftest import Database
from tests.crash.scene import Scene


@pytest.fixture
def scene(request: pytest.FixtureRequest, database: Database, tmp_path: Path) -> Scene:
    server = request.getfixturevalue("server") if database.kind == "postgres" else None
    return Scene(database.kind, database.url, database.schema, tmp_path, server)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Processes start and die here by the dozen: a busy machine may need its time."""
    for item in items:
        if "crash" in item.path.parts:
            item.add_marker(pytest.mark.timeout(300))
