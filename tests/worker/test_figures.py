"""The figures of real workers: written while they run, by each for itself, and never in the way."""

import logging
from collections import Counter
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.errors import DatabaseBusy
from holdfast.worker.housekeeping import rollup_writer
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollup_writer, "EVERY", 0.05)


def test_workers_write_figures_while_they_run_and_rows_add_up(app: Holdfast) -> None:
    ran: Counter[str] = Counter()

    @app.task
    async def send(n: int) -> None:
        ran["send"] += 1

    @app.task(max_attempts=1, queue="mail")
    def fails() -> None:
        ran["fails"] += 1
        raise ValueError

    with app.worker(queues="default=2,mail") as one, app.worker(queues="default=2") as two:
        until(lambda: one.id and two.id)
        send.enqueue_many([{"n": number} for number in range(200)])
        for _ in range(3):
            fails.enqueue()
        until(lambda: app.stats().figures.finished == 203)
        stats = app.stats()
        assert ran == {"send": 200, "fails": 3}
        assert (stats.by_task["send"].completed, stats.by_task["fails"].failed) == (200, 3)
        assert stats.by_queue["mail"].failure_rate == 1.0
        shares = app.engine.shares(stats.series[0].at)
        done = {share.worker_id: share.finished for share in shares if share.queue == "default"}
        assert set(done) <= {one.id, two.id}
        assert sum(done.values()) == 200
        send.enqueue(n=1)
        until(lambda: app.stats().by_task["send"].completed == 201)
    assert app.stats().by_task["send"].completed == 201  # nothing is written twice


@pytest.mark.parametrize("problem", [DatabaseBusy("held"), RuntimeError("a bug")])
def test_figures_that_cannot_be_written_disturb_no_job(
    app: Holdfast,
    problem: Exception,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tried: list[Any] = []

    def refuse(rollups: Any) -> None:
        tried.append(rollups)
        raise problem

    @app.task
    def send() -> None: ...

    monkeypatch.setattr(app.engine, "roll_up", refuse)
    with caplog.at_level(logging.WARNING), app.worker() as worker:
        send.enqueue_many([{}] * 5)
        until(lambda: app.stats().jobs["completed"] == 5)
        until(lambda: tried)
        assert worker.stop()
    assert app.stats().workers == 0  # it took its leave
    assert app.stats().figures.finished == 0
    assert "the last figures of this worker are lost" in caplog.text
