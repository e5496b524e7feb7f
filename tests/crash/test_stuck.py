import pytest

from tests.crash import stuck
from tests.crash.scene import Scene


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_thread_that_never_returns_costs_its_process_and_harms_no_other(scene: Scene) -> None:
    proof = stuck.prove(scene, rounds=1, beside=11.0)
    assert proof.problems == []
