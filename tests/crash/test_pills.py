from tests.crash import pills
from tests.crash.scene import Scene


def test_a_poison_pill_is_given_up_and_harms_no_other(scene: Scene) -> None:
    proof = pills.prove(scene, rounds=1, innocents=20)
    assert proof.problems == []
