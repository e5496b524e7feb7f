from tests.crash import followers
from tests.crash.scene import Scene


def test_a_reader_that_is_killed_sees_every_transition_once_and_in_order(scene: Scene) -> None:
    proof = followers.prove(scene, jobs=320, kills=4, apart=0.1, heartbeat=0.5, seed=1)
    assert proof.problems == []
    assert proof.figures["rescued"], "no kill of a worker hit a run"
