from tests.crash import points
from tests.crash.scene import Scene


def test_the_applications_row_and_the_job_never_disagree(scene: Scene) -> None:
    proof = points.prove(scene, rounds=1, heartbeat=0.5)
    assert proof.problems == []
