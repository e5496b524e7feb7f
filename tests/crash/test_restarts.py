import pytest

from tests.crash import restarts
from tests.crash.scene import Scene


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_workers_go_on_by_themselves_after_the_server_crashed(scene: Scene) -> None:
    if scene.server is None or not scene.server.can_restart:
        pytest.skip("the server is not ours to restart")
    proof = restarts.prove(scene, times=2, load=1.0, back=60.0, measured=False)
    assert proof.problems == []
