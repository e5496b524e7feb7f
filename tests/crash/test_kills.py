from tests.crash import kills
from tests.crash.testbed import CrashTestbed


def test_random_kills_lose_nothing_and_overlap_nothing(testbed: CrashTestbed) -> None:
    report = kills.run(testbed, jobs=2000, kills=20, interval=0.4, heartbeat=0.5, seed=1)
    assert report.problems == []
