from tests.crash import limits
from tests.crash.scene import Scene


def test_no_limit_is_exceeded_and_no_room_is_lost(scene: Scene) -> None:
    proof = limits.prove(
        scene, jobs=1000, kills=8, freezes=2, restarts=1, apart=0.5, heartbeat=0.5, seed=1
    )
    assert proof.problems == []
