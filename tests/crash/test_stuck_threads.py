import pytest

from tests.crash import stuck_threads
from tests.crash.testbed import CrashTestbed


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_stuck_thread_has_its_process_replaced_and_harms_no_other_job(
    testbed: CrashTestbed,
) -> None:
    report = stuck_threads.run(testbed, rounds=1, beside=11.0)
    assert report.problems == []
