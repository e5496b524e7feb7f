from tests.crash import limits
from tests.crash.testbed import CrashTestbed


def test_no_limit_is_exceeded_and_no_capacity_is_lost(testbed: CrashTestbed) -> None:
    report = limits.run(
        testbed, jobs=1000, kills=8, freezes=2, restarts=1, interval=0.5, heartbeat=0.5, seed=1
    )
    assert report.problems == []
