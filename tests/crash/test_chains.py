from tests.crash import chains
from tests.crash.scene import Scene


def test_chains_and_workflows_survive_random_kills(scene: Scene) -> None:
    proof = chains.prove(
        scene, chains=200, flows=30, nodes=15, kills=12, apart=0.4, heartbeat=0.5, seed=1
    )
    assert proof.problems == []
