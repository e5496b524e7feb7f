from tests.crash import kill_points
from tests.crash.testbed import CrashTestbed


def test_the_applications_row_and_the_job_never_disagree(testbed: CrashTestbed) -> None:
    report = kill_points.run(testbed, rounds=1, heartbeat=0.5)
    assert report.problems == []
