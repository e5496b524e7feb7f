from tests.crash import chains
from tests.crash.testbed import CrashTestbed


def test_chains_and_workflows_survive_random_kills(testbed: CrashTestbed) -> None:
    report = chains.run(
        testbed, chains=200, flows=30, nodes=15, kills=12, interval=0.4, heartbeat=0.5, seed=1
    )
    assert report.problems == []
