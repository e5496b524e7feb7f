"""Check the whole reader end to end, on PostgreSQL and on SQLite: `python -m examples.feeds [URL]`.

The URL, or HOLDFAST_TEST_POSTGRES_URL, names a PostgreSQL server, on which databases are made and
dropped; without one, a server is started in a temporary folder.
"""

import logging
import os
import sys

from examples.feeds.checks import CLOCK_CHECKS
from examples.feeds.concurrency_checks import PROCESS_CHECKS
from examples.feeds.testbed import open_testbed, open_testbed_with_workers
from examples.harness import Harness, run_harness
from holdfast.testing import FakeClock
from tests.support.machine import find_programs
from tests.support.server import PostgresServer


def check(harness: Harness, still: str, live: str) -> None:
    with open_testbed_with_workers(harness, live) as live_testbed:  # its processes start meanwhile
        with open_testbed(harness, still, FakeClock()) as clock_testbed:
            for run_check in CLOCK_CHECKS:
                run_check(clock_testbed)
        for run_check in PROCESS_CHECKS:
            run_check(live_testbed)


def main() -> None:
    logging.getLogger("holdfast").addHandler(logging.NullHandler())  # runs fail here on purpose
    if len(sys.argv) > 1:
        os.environ["HOLDFAST_TEST_POSTGRES_URL"] = sys.argv[1]
    if problem := no_postgres():
        print(f"feeds on PostgreSQL: skipped: {problem}")
    else:
        with PostgresServer() as server, run_harness("feeds on PostgreSQL") as harness:
            check(harness, server.create_database(), server.create_database())
    with run_harness("feeds on SQLite") as harness:
        check(
            harness, f"sqlite:///{harness.folder}/still.db", f"sqlite:///{harness.folder}/live.db"
        )


def no_postgres() -> str | None:
    """Return why PostgreSQL cannot be used, or None if it can."""
    if os.environ.get("HOLDFAST_TEST_POSTGRES_URL"):
        return None
    try:
        find_programs(os.environ.get("HOLDFAST_TEST_POSTGRES", ""))
    except RuntimeError as problem:
        return str(problem)
    return None


if __name__ == "__main__":
    main()
