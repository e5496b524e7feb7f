"""These tests check that the events happen; the long form measures how soon, on an idle machine."""

from tests.crash import isolation
from tests.crash.testbed import CrashTestbed, Report


def test_the_jobs_of_a_killed_process_tree_run_again_concurrently(testbed: CrashTestbed) -> None:
    report = Report()
    isolation.run_killed_tree(testbed, report, 12, heartbeat=2.0, soon=60.0)
    assert report.problems == []


def test_many_suspects_of_one_death_finish_soon_and_new_jobs_do_not_wait(
    testbed: CrashTestbed,
) -> None:
    """Run one at a time, the jobs would take a minute."""
    report = Report()
    isolation.run_killed_process(testbed, report, 60, soon=45.0, delay=30.0)
    assert report.problems == []


def test_an_operators_kill_never_counts_as_a_crash(testbed: CrashTestbed) -> None:
    report = Report()
    isolation.run_operator_kills(testbed, report, 5)
    assert report.problems == []


def test_only_started_jobs_become_suspects(testbed: CrashTestbed) -> None:
    """Claimed jobs that waited for the event loop run again as ordinary jobs."""
    report = Report()
    isolation.run_killed_before_begun(testbed, report, 10)
    assert report.problems == []
