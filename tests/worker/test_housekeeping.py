"""What a worker does besides: pruning, and removing what dead workers left behind."""

import os
import threading
import time
from pathlib import Path

from holdfast import Holdfast, Job
from holdfast.core.ids import new_id
from holdfast.jobs import pruning
from holdfast.jobs.job import Claim
from holdfast.testing import drain
from holdfast.worker.housekeeping.workdir import ORPHAN_AGE, make_workdir
from tests.conftest import Database
from tests.support.engine_commands import claim_as
from tests.support.jobs import insert
from tests.support.waiting import until
from tests.worker.conftest import quick


def aged(path: Path) -> Path:
    moment = time.time() - ORPHAN_AGE - 60
    os.utime(path, (moment, moment))
    return path


def test_old_folders_are_removed_unless_their_run_is_live(app: Holdfast) -> None:
    app.migrate()
    root = app.settings.workdir
    job = insert(app.engine, "works")
    app.engine.beat("w", "{}")
    [claimed] = claim_as(app.engine, "default", 1, worker="w", types=["works"])
    spared = [
        aged(make_workdir(root, claimed.claim)),
        make_workdir(root, Claim(new_id(), 1)),  # new: its run may just have begun
    ]
    (root / "mine").mkdir()  # not ours
    spared.append(aged(root / "mine"))
    gone = [
        aged(make_workdir(root, Claim(job.id, claimed.claim_no - 1))),
        aged(make_workdir(root, Claim(new_id(), 1))),
    ]
    with app.worker() as worker:  # at its start, and from then on
        until(lambda: worker.counts["workdirs"] == 2)
    assert [path.exists() for path in (*spared, *gone)] == [True] * 3 + [False] * 2


def test_folders_of_another_database_are_kept(
    app: Holdfast, database: Database, tmp_path: Path
) -> None:
    """Only that one knows whether their runs live. By default all of one user share a folder."""
    with Holdfast(f"sqlite:///{tmp_path}/other.db", workdir=tmp_path / "work") as other:
        theirs = aged(make_workdir(other.settings.workdir, Claim(new_id(), 1)))
    ours = aged(make_workdir(app.settings.workdir, Claim(new_id(), 1)))
    with app.worker() as worker:
        until(lambda: worker.counts["workdirs"] == 1)
    assert (theirs.exists(), ours.exists()) == (True, False)


def test_finished_jobs_are_pruned_after_their_retention(database: Database, tmp_path: Path) -> None:
    """By a worker; asynchronous hooks run on its loop."""
    app = quick(database, tmp_path, retention={"completed": 0, "failed": "1h"})
    hooked: list[str] = []

    async def on_prune(job: Job) -> None:
        assert threading.current_thread().name == "holdfast-loop"
        hooked.append(job.id)

    @app.task
    def works() -> None: ...

    @app.task(on_prune=on_prune)
    def hooks() -> None: ...

    @app.task(max_attempts=1)
    def fails() -> None:
        raise ValueError

    works.enqueue()
    drain(app)
    fails.enqueue()
    drain(app, raise_errors=False)
    works.using(delay="1h").enqueue()
    job = hooks.enqueue()
    drain(app)
    with app.worker() as worker:
        until(lambda: worker.counts["pruned"] == 2)
        assert app.engine.run(pruning.hooks, write=False) == ["hooks"]
    assert hooked == [job.id]
    assert sorted(job.status for job in app.jobs.search()) == ["failed", "scheduled"]
