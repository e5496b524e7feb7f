from tests.crash import recovery
from tests.crash.scene import Scene


def test_a_job_runs_again_after_its_worker_was_killed(scene: Scene) -> None:
    """The moments come; how soon, with the usual heartbeat, is for the long form to measure."""
    proof = recovery.prove(scene, rounds=1, heartbeat=0.5, all_dead=30.0, child_dead=30.0)
    assert proof.problems == []
