"""The thread that calls functions at intervals: a failure of one call never ends it."""

import logging
import threading

import pytest

from holdfast.errors import DatabaseUnavailable
from holdfast.worker.ticker import Ticker
from tests.support.waiting import until


@pytest.mark.parametrize("problem", [DatabaseUnavailable("away"), ValueError("a bug")])
def test_a_failed_tick_is_called_again(
    problem: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    def tick() -> float:
        calls.append(len(calls))
        if len(calls) < 3:
            raise problem
        return 60.0

    ticker = Ticker("test", {"a tick": tick}, retry=0.01)
    ticker.start()
    until(lambda: len(calls) == 3)
    ticker.close(10.0)
    bugs = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(bugs) == (0 if isinstance(problem, DatabaseUnavailable) else 2)


def test_ticks_are_called_when_due_or_asked_for_and_the_last_call_follows_them() -> None:
    calls: list[str] = []

    def tick(name: str, pause: float) -> float:
        assert threading.current_thread().name == "holdfast-test"
        calls.append(name)
        return pause

    ticks = {"often": lambda: tick("often", 0.01), "rarely": lambda: tick("rarely", 60.0)}
    ticker = Ticker("test", ticks, last=lambda: tick("last", 0.0))
    ticker.start()
    until(lambda: calls.count("often") > 3)
    assert calls.count("rarely") == 1
    ticker.call_now("rarely")
    until(lambda: calls.count("rarely") == 2)
    ticker.close(10.0)
    assert (calls.count("last"), calls[-1]) == (1, "last")
