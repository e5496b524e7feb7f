from pathlib import Path

import pytest

from tests.conftest import Database
from tests.crash import migrations
from tests.crash.scene import Scene


@pytest.fixture
def scene(request: pytest.FixtureRequest, bare_database: Database, tmp_path: Path) -> Scene:
    server = request.getfixturevalue("server") if bare_database.kind == "postgres" else None
    return Scene(bare_database.kind, bare_database.url, bare_database.schema, tmp_path, server)


def test_workers_go_on_while_the_tables_are_migrated(scene: Scene) -> None:
    proof = migrations.prove(scene, rows=50_000, release="", stall=10.0)
    assert proof.problems == []
