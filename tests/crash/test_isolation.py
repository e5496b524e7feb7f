"""The moments come; how soon, on a quiet machine, is for the long form to measure."""

from tests.crash import isolation
from tests.crash.scene import Proof, Scene


def test_the_jobs_of_a_killed_tree_run_again_together(scene: Scene) -> None:
    proof = Proof()
    isolation.prove_tree(scene, proof, 12, heartbeat=2.0, soon=60.0)
    assert proof.problems == []


def test_many_victims_of_one_death_are_done_soon_and_others_do_not_wait(scene: Scene) -> None:
    """One at a time they would take a minute."""
    proof = Proof()
    isolation.prove_victims(scene, proof, 60, soon=45.0, delay=30.0)
    assert proof.problems == []


def test_an_operators_kill_is_never_a_crash(scene: Scene) -> None:
    proof = Proof()
    isolation.prove_operator(scene, proof, 5)
    assert proof.problems == []


def test_only_what_had_begun_is_a_victim(scene: Scene) -> None:
    """What was claimed and waited for the event loop runs among the ordinary jobs."""
    proof = Proof()
    isolation.prove_begun(scene, proof, 10)
    assert proof.problems == []
