from tests.crash import zombies
from tests.crash.scene import Scene


def test_no_write_of_a_frozen_worker_is_accepted(scene: Scene) -> None:
    proof = zombies.prove(scene, rounds=2, jobs=25, heartbeat=0.5)
    assert proof.problems == []
    assert proof.figures["frozen"] == 50
