import pytest

from tests.crash import writers
from tests.crash.scene import Scene


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_nobody_hears_that_the_database_is_locked(scene: Scene) -> None:
    proof = writers.prove(scene, seconds=5.0)
    assert proof.problems == []
