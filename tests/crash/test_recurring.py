from tests.crash import recurring
from tests.crash.testbed import CrashTestbed


def test_five_frozen_schedulers_miss_no_due_time_and_run_none_twice(
    testbed: CrashTestbed,
) -> None:
    report = recurring.run(
        testbed,
        moments=40,
        freezes=2,
        heartbeat=0.5,
        seed=1,
        rows=2000,
        rate=50,
        seconds=2.0,
        late=30.0,
    )
    assert report.problems == []
    assert report.figures["runs again"] != 0
