"""Wake-ups: hints reach those who wait, from this process and from others."""

import threading
import time

import pytest

from holdfast.engine.engine import Engine
from holdfast.engine.wakeups import Wakeups
from tests.conftest import Database
from tests.support import engine_commands
from tests.support.engine_commands import claim_as
from tests.support.jobs import claim, insert, new

LONG = 10.0  # a wait that ends by a hint ends long before


def woken(wakeups: Wakeups) -> frozenset[str]:
    began = time.monotonic()
    hints = wakeups.wait(LONG)
    assert time.monotonic() - began < LONG / 2, "no hint came"
    return hints


def quiet(wakeups: Wakeups) -> bool:
    """Nothing more comes: hints of the past are taken first."""
    while wakeups.wait(0.2):
        pass
    return wakeups.wait(0.2) == frozenset()


@pytest.mark.parametrize("same", [True, False], ids=["same engine", "another engine"])
def test_an_insert_wakes_a_waiting_worker(database: Database, same: bool) -> None:
    engine = database.engine()
    other = engine if same else database.engine()
    insert(other)
    wakeups = engine.wakeups()
    assert quiet(wakeups)
    insert(other, queue="media")
    assert woken(wakeups) & {"media", "*"}


def test_a_thread_that_already_waits_is_woken(database: Database) -> None:
    engine, other = database.engine(), database.engine()
    wakeups = engine.wakeups()
    assert quiet(wakeups)
    heard: list[frozenset[str]] = []
    waiting = threading.Thread(target=lambda: heard.append(woken(wakeups)))
    waiting.start()
    insert(other)
    waiting.join(LONG)
    assert heard[0] != frozenset()


def test_the_last_insert_of_a_burst_is_noticed(database: Database) -> None:
    """Hints of a burst are joined, and one comes after the last insert."""
    engine, other = database.engine(), database.engine()
    wakeups = engine.wakeups()
    claim(engine)
    for _ in range(200):
        insert(other)
    seen = 0
    deadline = time.monotonic() + LONG
    while seen < 200 and time.monotonic() < deadline:
        if wakeups.wait(LONG):
            seen += len(claim_as(engine, "default", 500, worker="host-1-a", types=["send"]))
    assert seen == 200


def test_wake_ends_the_wait_of_another_thread(engine: Engine) -> None:
    wakeups = engine.wakeups()
    assert quiet(wakeups)
    timer = threading.Timer(0.05, wakeups.wake)
    timer.start()
    assert woken(wakeups) == {"*"}
    timer.join()


def test_own_claims_do_not_wake_a_worker(database: Database) -> None:
    engine = database.engine()
    engine.insert([new() for _ in range(5)])
    wakeups = engine.wakeups()
    assert quiet(wakeups)
    claim(engine)
    assert wakeups.wait(0.2) == frozenset()


def test_closing_twice_is_harmless(engine: Engine) -> None:
    wakeups = engine.wakeups()
    wakeups.close()
    wakeups.close()
    wakeups.wake()
    assert insert(engine).created


def test_a_retry_and_a_resumed_queue_wake_workers(database: Database) -> None:
    engine, other = database.engine(), database.engine()
    job = insert(other)
    engine_commands.cancel(other, [job.id], keep=60.0)
    for waiting in (engine, other):
        wakeups = waiting.wakeups()
        assert quiet(wakeups)
        engine_commands.retry(other, [job.id])
        assert woken(wakeups)
        assert quiet(wakeups)
        engine_commands.pause(other, "default", False)
        assert woken(wakeups)
        wakeups.close()
        engine_commands.cancel(other, [job.id], keep=60.0)
