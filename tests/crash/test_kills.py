from tests.crash import kills
from tests.crash.scene import Scene


def test_random_kills_lose_nothing_and_overlap_nothing(scene: Scene) -> None:
    proof = kills.prove(scene, jobs=2000, kills=20, apart=0.4, heartbeat=0.5, seed=1)
    assert proof.problems == []
