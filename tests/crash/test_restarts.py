import pytest

from tests.crash import restarts
from tests.crash.testbed import CrashTestbed


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_workers_recover_by_themselves_after_a_server_crash(testbed: CrashTestbed) -> None:
    if testbed.server is None or not testbed.server.can_restart:
        pytest.skip("the server is not ours to restart")
    report = restarts.run(testbed, times=2, load=1.0, back=60.0, measured=False)
    assert report.problems == []
