"""The whole reader, end to end, on PostgreSQL and on SQLite: `python -m examples.feeds [URL]`.

The URL, or HOLDFAST_TEST_POSTGRES_URL, names a PostgreSQL server, on which databases are made and
dropped; without one, a server is started in a temporary folder.
"""

import logging
import os
import sys

from examples.feeds.crowd import LIVE
from examples.feeds.proof import STILL
from examples.feeds.scene import live_scene, scene
from examples.stage import Stage, on_stage
from holdfast.testing import FakeClock
from tests.support.machine import find_programs
from tests.support.server import PostgresServer


def prove(stage: Stage, still: str, live: str) -> None:
    with live_scene(stage, live) as lively:  # its processes start meanwhile
        with scene(stage, still, FakeClock()) as quiet:
            for show in STILL:
                show(quiet)
        for show in LIVE:
            show(lively)


def main() -> None:
    logging.getLogger("holdfast").addHandler(logging.NullHandler())  # runs fail here on purpose
    if len(sys.argv) > 1:
        os.environ["HOLDFAST_TEST_POSTGRES_URL"] = sys.argv[1]
    if problem := no_postgres():
        print(f"feeds on PostgreSQL: left out: {problem}")
    else:
        with PostgresServer() as server, on_stage("feeds on PostgreSQL") as stage:
            prove(stage, server.create_database(), server.create_database())
    with on_stage("feeds on SQLite") as stage:
        prove(stage, f"sqlite:///{stage.folder}/still.db", f"sqlite:///{stage.folder}/live.db")


def no_postgres() -> str | None:
    """Why there is none to be had."""
    if os.environ.get("HOLDFAST_TEST_POSTGRES_URL"):
        return None
    try:
        find_programs(os.environ.get("HOLDFAST_TEST_POSTGRES", ""))
    except RuntimeError as problem:
        return str(problem)
    return None


if __name__ == "__main__":
    main()
