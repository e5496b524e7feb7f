"""A host process with thousands of open files: numbers from 1,024 on are no use to `select()`."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Database

ROOT = Path(__file__).resolve().parents[2]

MODULE = """
import os
from holdfast import Holdfast

app = Holdfast(os.environ["MANY_URL"], schema=os.environ["MANY_SCHEMA"], poll_interval=60)


@app.task
def plain(n: int) -> int:
    return n


@app.task
async def awaited(n: int) -> int:
    return n


@app.task(process=True)
def apart(n: int) -> int:
    return n
"""

PROGRAM = """
import asyncio, logging, os, resource, sys, threading
from pathlib import Path

logging.basicConfig(level=logging.WARNING)
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = [os.open(os.devnull, os.O_RDONLY) for _ in range(2000)]

import shop
from tests.web.serving import serving


assert max(held) > 1024
with shop.app.events(kinds="completed", timeout=60) as events:
    with serving(shop.app) as site, site.socket() as follower, shop.app.worker() as worker:
        # Without a hint the worker would look after a minute: each of these is a wait that was ended.
        for round in range(5):
            jobs = [task.enqueue(n=round) for task in (shop.plain, shop.awaited, shop.apart)]
            for job in jobs:
                assert shop.app.jobs.wait_for(job.id, timeout=60) == round
        follower.until("job:complete")
        seen = [next(iter(events)) for _ in range(15)]
        asyncio.run(shop.plain.aenqueue(n=1))
        assert worker.join(30)
        assert shop.app.health().ok, shop.app.health().problems
assert [event.kind for event in seen] == ["completed"] * 15
shop.app.close()
print("done", min(os.dup(0) for _ in range(3)))
"""


def test_databases_work_with_two_thousand_open_files(database: Database, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(MODULE)
    (tmp_path / "main.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "main.py")],
        env={
            **os.environ,
            "MANY_URL": database.url,
            "MANY_SCHEMA": database.schema,
            "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "src"), str(ROOT)]),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert int(done.stdout.split()[1]) > 1024  # no descriptor below was free for anything above
    assert "no work can be taken" not in done.stderr


@pytest.fixture(autouse=True)
def enough_descriptors() -> None:
    """The machine must allow it: what is checked here cannot be checked otherwise."""
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] > 2500, "raise 'ulimit -Hn' to 4096"
