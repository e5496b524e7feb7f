import pytest

from tests.crash import stuck_threads
from tests.crash.testbed import CrashTestbed


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_thread_that_never_returns_costs_its_process_and_harms_no_other(
    testbed: CrashTestbed,
) -> None:
    report = stuck_threads.run(testbed, rounds=1, beside=11.0)
    assert report.problems == []
