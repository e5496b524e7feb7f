from tests.crash import recurring
from tests.crash.scene import Scene


def test_five_schedulers_that_are_frozen_miss_no_moment_and_have_none_twice(scene: Scene) -> None:
    proof = recurring.prove(
        scene,
        moments=40,
        freezes=2,
        heartbeat=0.5,
        seed=1,
        rows=2000,
        rate=50,
        seconds=2.0,
        late=30.0,
    )
    assert proof.problems == []
    assert proof.figures["runs again"] != 0
