from tests.crash import poison_jobs
from tests.crash.testbed import CrashTestbed


def test_a_poison_pill_is_given_up_and_harms_no_other(testbed: CrashTestbed) -> None:
    report = poison_jobs.run(testbed, rounds=1, innocents=30)
    assert report.problems == []


def test_a_recurring_pill_is_disabled_after_three_kills(testbed: CrashTestbed) -> None:
    assert poison_jobs.run_recurring(testbed).problems == []


def test_a_pill_in_an_embedded_worker_kills_its_host_twice_and_no_more(
    testbed: CrashTestbed,
) -> None:
    assert poison_jobs.run_embedded(testbed).problems == []
