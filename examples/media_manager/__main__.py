"""`python -m examples.media_manager`: check the application end to end; with `serve`: serve
sample data.

It runs on SQLite, or on the empty database that MEDIA_DATABASE names.
"""

import os
import sys

from examples.harness import Harness, run_harness
from examples.media_manager import checks, failure_checks
from examples.media_manager.fakes import Limited
from examples.media_manager.testbed import CHAINED, MediaTestbed, open_testbed

STEPS = (
    *(
        checks.prepare,
        checks.priorities,
        checks.crash_recovery,
        checks.phase_switches,
        checks.inheritance,
    ),
    *(
        checks.concurrency_limit,
        checks.events,
        checks.requests,
        checks.schedules,
        checks.transactional_enqueue,
    ),
    *(
        failure_checks.rate_limited,
        failure_checks.timed_out,
        failure_checks.server_errors,
        failure_checks.unmounted_share,
    ),
    *(
        failure_checks.lost_database,
        failure_checks.not_found,
        failure_checks.deleted,
        failure_checks.malformed,
    ),
    *(
        failure_checks.permission_denied,
        failure_checks.manual_retry,
        failure_checks.worker_settings,
        failure_checks.statistics,
    ),
)


def url_of(harness: Harness) -> str:
    return os.environ.get("MEDIA_DATABASE") or f"sqlite:///{harness.folder}/media.db"


def run() -> None:
    with run_harness("media manager") as harness, open_testbed(harness, url_of(harness)) as testbed:
        for step in STEPS:
            step(testbed)


def serve() -> None:
    """Serve with a slow provider that limits one title and does not know another."""
    with (
        Harness("media-manager") as harness,
        open_testbed(harness, url_of(harness), concurrency=2) as testbed,
    ):
        show(testbed)
        print(f"{testbed.client.base_url}/library/  the key: {testbed.client.headers['x-api-key']}")
        try:
            testbed.process.wait()
        except KeyboardInterrupt:
            testbed.stop()


def show(testbed: MediaTestbed) -> None:
    testbed.provider.pace = 0.7
    testbed.provider.script("Solaris", Limited(3))
    testbed.provider.script("Home video", 404)
    testbed.set(phases=CHAINED | {"scanning": {"chainToEnrich": False}})
    titles = ("Solaris (1972)", "Stalker (1979)", "Mirror (1975)", "Home video (2019)", "Roadside")
    folder = testbed.library("films", *titles)
    testbed.post("/api/v1/libraries", {"path": str(folder)}, 201)


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else run()
