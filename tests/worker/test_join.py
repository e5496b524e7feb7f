"""`worker.join()`: until nothing is left to do."""

import threading
from pathlib import Path

import pytest

from holdfast import Context
from tests.conftest import Database
from tests.support.waiting import PATIENCE, until
from tests.worker.conftest import quick


def test_join_waits_for_jobs_enqueued_by_a_finish(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first job ends, and enqueues the second, right after a look that found nothing pending."""
    app = quick(database, tmp_path)
    first, second = threading.Event(), threading.Event()

    @app.task
    def child() -> None:
        assert second.wait(PATIENCE)

    @app.task
    def parent(ctx: Context) -> None:
        assert first.wait(PATIENCE)
        ctx.enqueue(child)

    with app.worker() as worker:
        job = parent.enqueue()
        until(worker.executions, "the start of the first job")
        has_nothing = worker._has_nothing

        def look() -> bool:
            found = has_nothing()
            first.set()
            until(lambda: app.jobs.get(job.id).status == "completed", "the end of the first job")
            until(lambda: all(x.job.id != job.id for x in worker.executions()), "its slot")
            return found

        monkeypatch.setattr(worker, "_has_nothing", look)
        threading.Timer(0.5, first.set).start()  # for a join that does not look while jobs run
        try:
            assert not worker.join(1.5)
        finally:
            monkeypatch.setattr(worker, "_has_nothing", has_nothing)
            second.set()
        assert worker.join(PATIENCE)
    assert {one.status for one in app.jobs.search()} == {"completed"}
