from tests.crash import zombies
from tests.crash.testbed import CrashTestbed


def test_no_write_of_a_frozen_worker_is_accepted(testbed: CrashTestbed) -> None:
    report = zombies.run(testbed, rounds=2, jobs=25, heartbeat=0.5)
    assert report.problems == []
    assert report.figures["frozen"] == 50
