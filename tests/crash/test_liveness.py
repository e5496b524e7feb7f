from tests.crash import liveness
from tests.crash.testbed import CrashTestbed


def test_long_and_blocking_handlers_are_never_taken_over(testbed: CrashTestbed) -> None:
    """Ten heartbeats, five of them behind the application's write lock on SQLite; three would do
    to be declared dead."""
    report = liveness.run(testbed, heartbeat=0.5, patient=5.0, blocked=4.0, locked=2.5, busy=0.3)
    assert report.problems == []
