from tests.crash import poison_jobs
from tests.crash.testbed import CrashTestbed


def test_a_poison_job_is_quarantined_and_harms_no_other_job(testbed: CrashTestbed) -> None:
    report = poison_jobs.run(testbed, rounds=1, innocents=30)
    assert report.problems == []


def test_a_recurring_poison_job_is_disabled_after_three_kills(testbed: CrashTestbed) -> None:
    assert poison_jobs.run_recurring(testbed).problems == []


def test_a_poison_job_kills_an_application_with_an_embedded_worker_at_most_twice(
    testbed: CrashTestbed,
) -> None:
    assert poison_jobs.run_embedded(testbed).problems == []
