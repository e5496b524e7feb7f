from tests.crash import pills
from tests.crash.scene import Scene


def test_a_poison_pill_is_given_up_and_harms_no_other(scene: Scene) -> None:
    proof = pills.prove(scene, rounds=1, innocents=30)
    assert proof.problems == []


def test_a_recurring_pill_is_disabled_after_three_kills(scene: Scene) -> None:
    assert pills.prove_recurring(scene).problems == []


def test_a_pill_in_an_embedded_worker_kills_its_host_twice_and_no_more(scene: Scene) -> None:
    assert pills.prove_embedded(scene).problems == []
