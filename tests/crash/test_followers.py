from tests.crash import followers
from tests.crash.testbed import CrashTestbed


def test_a_reader_that_is_killed_sees_every_transition_once_and_in_order(
    testbed: CrashTestbed,
) -> None:
    report = followers.run(testbed, jobs=320, kills=4, interval=0.1, heartbeat=0.5, seed=1)
    assert report.problems == []
    assert report.figures["rescued"], "no kill of a worker hit a run"
