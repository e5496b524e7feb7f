from tests.crash import recovery
from tests.crash.testbed import CrashTestbed


def test_a_job_runs_again_after_its_worker_was_killed(testbed: CrashTestbed) -> None:
    """The test checks that the job runs again; the long form measures how soon, with default
    heartbeats."""
    report = recovery.run(testbed, rounds=1, heartbeat=0.5, all_dead=30.0, child_dead=30.0)
    assert report.problems == []
