"""A scene for each test: on both engines, as `database` is."""

from pathlib import Path

import pytest

from tests.conftest import Database
from tests.crash.scene import Scene


@pytest.fixture
def scene(request: pytest.FixtureRequest, database: Database, tmp_path: Path) -> Scene:
    server = request.getfixturevalue("server") if database.kind == "postgres" else None
    return Scene(database.kind, database.url, database.schema, tmp_path, server)
